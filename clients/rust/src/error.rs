use std::fmt;
use std::sync::Arc;

use tokio_postgres::error::DbError;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Others hold the lock or are queued for it. The caller holds nothing and has no place.
    NotAcquired,
    /// The lease or the hold has ended. The server reports this (LE001), or the local deadline has passed.
    Lost,
    /// The hold was released by the application.
    Released,
    /// The session was closed.
    Closed,
    /// `PostgreSQL` has detected a deadlock (40P01). Roll the transaction back and repeat it.
    Deadlock,
    /// A limit of the server was reached (53200, 53400). The message names its setting.
    Limit,
    /// A privilege is missing, or the password is wrong (42501, 28xxx).
    Denied,
    /// An argument is invalid (also 22xxx).
    Invalid,
    /// No server, no such database, or no reply in time. The call has no lasting effect: the session releases
    /// anything that was granted.
    Unavailable,
    /// There was no reply, so that the statement may have taken effect. Its effect ends with the lease at the latest.
    Unknown,
    /// The extension is not in this database, or not in `shared_preload_libraries`. The message names the command to
    /// run.
    NotInstalled,
    /// Any other error of the server.
    Failed,
}

/// The error of all calls. It never contains a part of a connection string.
#[derive(Clone, Debug)]
pub struct Error(Arc<Details>);

#[derive(Debug)]
struct Details {
    kind: Kind,
    message: String,
    sqlstate: Option<String>,
}

/// Maps SQLSTATEs or their prefixes to kinds. The first match applies. 55P03 and 58 mean that the server cannot write
/// now.
const KINDS: [(Kind, &[&str]); 8] = [
    (Kind::Lost, &["LE001"]),
    (Kind::Deadlock, &["40P01"]),
    (Kind::Limit, &["53200", "53400"]),
    (Kind::Denied, &["42501", "28"]),
    (Kind::Invalid, &["22"]),
    (Kind::Unknown, &["08007", "57014", "40003"]),
    (Kind::NotInstalled, &["55000", "42883", "3F000"]),
    (Kind::Unavailable, &["57", "53", "08", "25006", "55P03", "58", "3D000"]),
];

pub(crate) const TO_INSTALL: &str = "CREATE EXTENSION lock_election, or lockctl install for the portable edition";

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Arc::new(Details { kind, message: message.into(), sqlstate: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, message)
    }

    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Error::new(Kind::Lost, message)
    }

    pub(crate) fn no_answer() -> Self {
        Error::new(Kind::Unavailable, "no answer in time")
    }

    /// Returns the error for a server error, with the kind of its SQLSTATE. The message names a command that helps.
    pub(crate) fn server(code: &str, message: &str, detail: Option<&str>, hint: Option<&str>) -> Self {
        let matches = |codes: &[&str]| codes.iter().any(|prefix| code.starts_with(prefix));
        let kind = KINDS.iter().find(|(_, codes)| matches(codes)).map_or(Kind::Failed, |(kind, _)| *kind);
        let mut text = match code {
            "42883" | "3F000" => format!("{message} ({TO_INSTALL})"),
            "55000" => format!("{message} (add it to shared_preload_libraries, and restart the server)"),
            _ => message.to_owned(),
        };
        for more in [detail, hint].into_iter().flatten().filter(|more| !more.is_empty()) {
            text.push_str(". ");
            text.push_str(more.trim_end_matches('.'));
        }
        Error(Arc::new(Details { kind, message: text, sqlstate: Some(code.to_owned()) }))
    }

    /// Returns the same error, with the message of its cause appended.
    pub(crate) fn because(&self, cause: Option<&Error>) -> Self {
        let Some(cause) = cause.filter(|cause| cause.0.message != self.0.message) else { return self.clone() };
        let message = format!("{}: {cause}", self.0.message);
        Error(Arc::new(Details { kind: self.0.kind, message, sqlstate: cause.0.sqlstate.clone() }))
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Error(Arc::new(Details { kind, message: self.0.message.clone(), sqlstate: self.0.sqlstate.clone() }))
    }

    pub(crate) fn about(&self, what: &str) -> Self {
        let message = format!("{what}: {}", self.0.message);
        Error(Arc::new(Details { kind: self.0.kind, message, sqlstate: self.0.sqlstate.clone() }))
    }

    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The SQLSTATE, if the server has returned the error.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// Whether the statement did not find the extension's schema or functions.
    pub(crate) fn is_no_function(&self) -> bool {
        matches!(self.sqlstate(), Some("3F000" | "42883"))
    }

    /// Whether a prepared statement cannot be used, because the connection is pooled or the function has changed.
    pub(crate) fn is_of_preparing(&self) -> bool {
        matches!(self.sqlstate(), Some("26000" | "42P05" | "0A000"))
    }

    /// Whether a new connection is necessary, because the connection has failed, or another server is needed.
    pub(crate) fn ends_connection(&self) -> bool {
        match self.sqlstate() {
            None | Some("57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "53300" | "25006") => true,
            Some(code) => code.starts_with("08"),
        }
    }

    /// Whether the error is temporary, so that the same statement may succeed later.
    pub(crate) fn passes(&self) -> bool {
        let code = self.sqlstate().unwrap_or_default();
        matches!(self.kind(), Kind::Unavailable | Kind::Unknown)
            || code.starts_with("XX")
            || code.starts_with("40") && code != "40P01"
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(server) = error.as_db_error() {
            return server.into();
        }
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Error::new(Kind::Unavailable, format!("{error}{}", cause.unwrap_or_default()))
    }
}

impl From<&DbError> for Error {
    fn from(error: &DbError) -> Self {
        Error::server(error.code().code(), error.message(), error.detail(), error.hint())
    }
}

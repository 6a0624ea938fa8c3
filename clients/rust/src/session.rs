use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};
use tokio_util::sync::CancellationToken;

use crate::arguments::{check_ttl, check_zero};
use crate::clock::{now, random_digits};
use crate::connect::{Connector, Dial, With, default_tls, parse};
use crate::state::{OWN, Query, State, call_limit};
use crate::wire::Rows;
use crate::{Error, Kind, worker};

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The lease is kept alive.
    Connected,
    /// The server does not reply. All holds stay held until the deadline.
    Suspended,
    /// The lease and all its holds are lost or were released.
    Ended,
}

/// The data that the session's task and the handles share.
pub(crate) struct Inner {
    pub(crate) connector: Connector,
    pub(crate) options: Options,
    pub(crate) work: Notify,               // wakes up the session's task
    pub(crate) granted: Notify,            // wakes up watch() after a new lease
    pub(crate) abort: CancellationToken,   // cancelled when the session's task must end now
    pub(crate) stopped: CancellationToken, // cancelled when the session's task has ended
    state: Mutex<State>,
}

impl Inner {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time limit of a statement that concerns the session's own lease, or none.
    pub(crate) fn limit(&self) -> Duration {
        self.lock().limit(self.options.ttl)
    }

    /// Ends the session. Its task revokes the lease within the limit.
    fn stop(&self, limit: Duration) {
        let mut state = self.lock();
        state.expire();
        if state.close_at.is_none() {
            state.close_at = Some(now() + limit);
            state.stop(&Error::new(Kind::Closed, "the session was closed"));
        }
        drop(state);
        self.work.notify_one();
    }

    /// Runs one statement, in which {schema} is the extension's schema. Repeats it after reconnects.
    pub(crate) async fn ask(&self, sql: &'static str, args: Vec<String>) -> Result<Rows, Error> {
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.lock();
            state.expire();
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            state.queries.push_back(Query { sql, args, reply, at: Duration::ZERO });
        }
        self.work.notify_one();
        match timeout(call_limit(self.options.ttl), answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(self.lock().error.clone().unwrap_or_else(Error::no_answer)),
            Err(_) => Err(self.lock().troubled(&Error::no_answer())),
        }
    }
}

/// The application's handle of a session. When the last one is dropped, the session ends.
pub(crate) struct Handle(pub(crate) Arc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.stop(call_limit(self.0.options.ttl));
    }
}

/// The options of a session.
///
/// ```no_run
/// # async fn example() -> Result<(), lock_election::Error> {
/// use std::time::Duration;
/// let session = lock_election::Options::new()
///     .ttl(Duration::from_secs(10))
///     .name("billing")
///     .connect("host=db-1,db-2 dbname=app user=app")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) ttl: Duration,
    name: String,
    tls: Option<Arc<dyn Dial>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { ttl: Duration::from_secs(30), name: String::new(), tls: None }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("ttl", &self.ttl).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Options {
    /// Returns the defaults: a TTL of 30 s, and the TLS that the crate's features select.
    #[must_use]
    pub fn new() -> Self {
        Options::default()
    }

    /// Sets the TTL, from 100 ms to 24 days: the time for which holds outlive the last renewal of the lease.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the session's name, with which "owner" begins in the server's views. It is cut to 200 bytes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the TLS connector, of any type that tokio-postgres supports.
    #[must_use]
    pub fn tls<T>(mut self, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.tls = Some(Arc::new(With(tls)));
        self
    }

    /// Connects and gets a lease. The text is a URL, or keywords and values. If it has several hosts, the session uses
    /// the primary.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, `NotInstalled`, `Limit`, `Invalid` or another error of the server. The message shows no
    /// part of a text that cannot be parsed, because it may contain a password.
    pub async fn connect(self, text: &str) -> Result<Session, Error> {
        self.open(&parse(text)?).await
    }

    /// Like `connect`, with a configuration of tokio-postgres. Ignores its `target_session_attrs`.
    ///
    /// # Errors
    /// The errors of `connect`.
    pub async fn open(mut self, config: &Config) -> Result<Session, Error> {
        self.ttl = check_ttl(self.ttl)?;
        check_zero("name of the session", &self.name)?;
        let tls = match &self.tls {
            Some(tls) => tls.clone(),
            None => default_tls()?,
        };
        Session::start(Connector::new(config, tls)?, self).await
    }
}

/// One connection and one lease, on which all holds and waits of the session depend. A process needs only one session;
/// clones are handles of the same session.
///
/// The session runs as a task of the tokio runtime that has opened it. It ends when the last handle and the last hold
/// are dropped. [`close`](Session::close) ends it, too, and waits for the server.
#[derive(Clone)]
pub struct Session {
    pub(crate) handle: Arc<Handle>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("lease", &self.lease()).field("state", &self.state()).finish()
    }
}

impl Session {
    /// Connects with the default options: see [`Options::connect`].
    ///
    /// # Errors
    /// The errors of [`Options::connect`].
    pub async fn connect(text: &str) -> Result<Self, Error> {
        Options::new().connect(text).await
    }

    async fn start(connector: Connector, options: Options) -> Result<Self, Error> {
        let mut end = options.name.len().min(200);
        while !options.name.is_char_boundary(end) {
            end -= 1;
        }
        let owner = format!("{}#{}-", &options.name[..end], random_digits());
        let inner = Arc::new(Inner {
            connector,
            work: Notify::new(),
            granted: Notify::new(),
            abort: CancellationToken::new(),
            stopped: CancellationToken::new(),
            state: Mutex::new(State::new(options.ttl, owner)),
            options,
        });
        let session = Session { handle: Arc::new(Handle(inner.clone())) };
        let (opened, result) = oneshot::channel();
        tokio::spawn(worker::watch(inner.clone()));
        tokio::spawn(worker::run(inner.clone(), opened));
        match result.await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => {
                inner.stopped.cancelled().await;
                Err(error)
            }
            Err(_) => Err(Error::new(Kind::Closed, "the runtime was shut down")),
        }
    }

    /// Opens a new session with the options of this one, which has ended.
    ///
    /// # Errors
    /// The errors of [`Options::connect`].
    pub async fn reopen(&self) -> Result<Self, Error> {
        let inner = &self.handle.0;
        Session::start(inner.connector.again(), inner.options.clone()).await
    }

    /// A token that is cancelled when the session has ended: the lease is lost, or the session was closed.
    #[must_use]
    pub fn ended(&self) -> CancellationToken {
        self.handle.0.lock().ended.clone()
    }

    /// The reason why the session has ended: an error whose kind is `Lost` or `Closed`. None if it has not ended.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        let mut state = self.handle.0.lock();
        state.expire();
        state.error.clone()
    }

    /// The session's state, without I/O.
    #[must_use]
    pub fn state(&self) -> SessionState {
        let mut state = self.handle.0.lock();
        state.expire();
        match state.failures {
            _ if state.error.is_some() => SessionState::Ended,
            0 => SessionState::Connected,
            _ => SessionState::Suspended,
        }
    }

    /// The lease's number on the server.
    #[must_use]
    pub fn lease(&self) -> i64 {
        self.handle.0.lock().leases.get(&OWN).map_or(0, |lease| lease.id)
    }

    /// The time left until the local deadline, which a renewal moves.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.handle.0.lock().left(OWN)
    }

    /// Revokes the lease, which immediately ends all holds and waits of the session, and closes the connection. Waiting
    /// calls return an error of the kind `Closed`. Waits for the server for at most a quarter of the TTL. Call it only
    /// after all work under the session's holds has stopped.
    ///
    /// # Errors
    /// `Unknown` if the server has not confirmed that the lease has ended; the lease then expires.
    pub async fn close(&self) -> Result<(), Error> {
        self.close_within(call_limit(self.handle.0.options.ttl)).await
    }

    /// Like `close`, but with a time limit of at most a quarter of the TTL.
    ///
    /// # Errors
    /// The errors of `close`.
    pub async fn close_within(&self, limit: Duration) -> Result<(), Error> {
        let inner = &self.handle.0;
        let limit = limit.min(call_limit(inner.options.ttl)).max(Duration::from_millis(1));
        inner.stop(limit);
        if timeout(limit, inner.stopped.cancelled()).await.is_err() {
            inner.abort.cancel();
            _ = timeout(Duration::from_millis(200), inner.stopped.cancelled()).await;
        }
        let state = inner.lock();
        match &state.error {
            Some(error) if error.kind() == Kind::Closed && !state.revoked => {
                Err(Error::new(Kind::Unknown, "the server has not confirmed the end of the lease"))
            }
            _ => Ok(()),
        }
    }
}

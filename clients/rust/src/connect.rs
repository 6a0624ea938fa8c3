//! Connection strings, hosts and TLS.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_util::sync::CancellationToken;

use crate::wire::Wire;
use crate::{Error, Kind};

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The half of a connection that sends and receives its messages, over any type of stream.
pub(crate) trait Messages: Send {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>>;
}

impl<S, T> Messages for Connection<S, T>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        self.poll_message(context)
    }
}

type Dialed = Result<(Client, Box<dyn Messages>), tokio_postgres::Error>;

/// Connects with a given TLS connector.
pub(crate) trait Dial: Send + Sync {
    fn dial<'a>(&'a self, config: &'a Config) -> Boxed<'a, Dialed>;
}

pub(crate) struct With<T>(pub(crate) T);

impl<T> Dial for With<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn dial<'a>(&'a self, config: &'a Config) -> Boxed<'a, Dialed> {
        Box::pin(async move {
            let (client, connection) = config.connect(self.0.clone()).await?;
            Ok((client, Box::new(connection) as Box<dyn Messages>))
        })
    }
}

/// Returns the TLS connector that the crate's features select.
#[cfg(feature = "rustls")]
pub(crate) fn default_tls() -> Result<Arc<dyn Dial>, Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("no TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(With(tokio_postgres_rustls::MakeRustlsConnect::new(config))))
}

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
pub(crate) fn default_tls() -> Result<Arc<dyn Dial>, Error> {
    let tls = native_tls::TlsConnector::new().map_err(|error| Error::invalid(format!("no TLS: {error}")))?;
    Ok(Arc::new(With(postgres_native_tls::MakeTlsConnector::new(tls))))
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn default_tls() -> Result<Arc<dyn Dial>, Error> {
    Ok(Arc::new(With(tokio_postgres::NoTls)))
}

// --- connection strings ---

// A connection string may contain a password; in a string with a mistake, any part may belong to the password. So no
// error shows any part of the string.

/// Options whose names are safe to show in an error.
const OPTIONS: [&str; 11] = [
    "sslmode",
    "sslnegotiation",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
    "options",
];

pub(crate) fn parse(text: &str) -> Result<Config, Error> {
    text.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let of = |option: &&&str| cause == format!("invalid value for option `{option}`");
        let option = OPTIONS.iter().find(of).map(|option| format!(", the value of {option}")).unwrap_or_default();
        Error::invalid(format!(
            "cannot parse the connection string{option} (it is not shown, for it may have a password)"
        ))
    })
}

/// Rejects strings that were parsed wrongly, because a password contains an unencoded @, / or space.
fn check(config: &Config) -> Result<(), Error> {
    let mut parts: Vec<&str> = config.get_user().into_iter().chain(config.get_dbname()).collect();
    for host in config.get_hosts() {
        match host {
            Host::Tcp(name) if name.contains('@') => return Err(misread("a host has an @")),
            Host::Tcp(name) => parts.push(name),
            #[cfg(unix)]
            Host::Unix(_) => {}
        }
    }
    for part in parts.iter().map(|part| part.to_lowercase()) {
        let strays = part.contains("password=") || part.contains("passwd=");
        if strays || part.contains('@') && part.contains(['/', '?', '#']) {
            return Err(misread("what seems to be a password is in the host, the user or the database"));
        }
    }
    Ok(())
}

fn misread(what: &str) -> Error {
    Error::invalid(format!(
        "the connection string is wrong: {what}. In a URL write %40 for @ and %2F for / in a password; of keywords and \
         values quote the value"
    ))
}

/// Returns the same configuration, for host number `n`.
fn for_host(all: &Config, n: usize) -> Config {
    let mut one = Config::new();
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .port(*all.get_ports().get(n).or(all.get_ports().first()).unwrap_or(&5432));
    match all.get_hosts().get(n) {
        Some(Host::Tcp(name)) => _ = one.host(name),
        #[cfg(unix)]
        Some(Host::Unix(path)) => _ = one.host_path(path),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(n) {
        one.hostaddr(*address);
    }
    one
}

// --- hosts ---

/// Connects to the primary among the hosts of a configuration.
pub(crate) struct Connector {
    tls: Arc<dyn Dial>,
    hosts: Mutex<VecDeque<Config>>,
    timeout: Option<Duration>,
}

impl Connector {
    pub(crate) fn new(config: &Config, tls: Arc<dyn Dial>) -> Result<Self, Error> {
        check(config)?;
        let number = config.get_hosts().len().max(config.get_hostaddrs().len());
        if number == 0 {
            return Err(Error::invalid("the connection string has no host"));
        }
        let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let fits = |length: usize, least: usize| length <= least || length == number;
        if !fits(names.len(), 0) || !fits(addresses.len(), 0) || !fits(ports.len(), 1) {
            return Err(Error::invalid("the connection string has other numbers of hosts, addresses and ports"));
        }
        let hosts = (0..number).map(|n| for_host(config, n)).collect();
        Ok(Connector { tls, hosts: Mutex::new(hosts), timeout: config.get_connect_timeout().copied() })
    }

    /// Returns a copy, for another session.
    pub(crate) fn again(&self) -> Self {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Connector { tls: self.tls.clone(), hosts: Mutex::new(hosts), timeout: self.timeout }
    }

    /// Connects to the first host that is a primary with the extension, with a time limit for each host. A host that
    /// does not reply is tried last from now on. If all hosts fail, returns the last error from a server, or else the
    /// last error.
    pub(crate) async fn connect(&self, limit: Duration, abort: &CancellationToken) -> Result<Wire, Error> {
        let limit = self.timeout.map_or(limit, |timeout| timeout.min(limit));
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failed: Option<Error> = None;
        for host in hosts {
            let error = match tokio::time::timeout(limit, self.connect_to(&host, abort)).await {
                Ok(Ok(wire)) => return Ok(wire),
                Ok(Err(error)) => error,
                Err(_) => {
                    self.put_last(&host);
                    Error::new(Kind::Unavailable, "no connection in time")
                }
            };
            if failed.as_ref().is_none_or(|before| before.sqlstate().is_none()) || error.sqlstate().is_some() {
                failed = Some(error);
            }
        }
        Err(failed.unwrap_or_else(Error::no_answer))
    }

    fn put_last(&self, host: &Config) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = hosts.iter().position(|other| other == host) {
            hosts.remove(n);
            hosts.push_back(host.clone());
        }
    }

    async fn connect_to(&self, host: &Config, abort: &CancellationToken) -> Result<Wire, Error> {
        let dialed = self.tls.dial(host).await.map_err(|error| match Error::from(error) {
            // The server's message contains the parameter's name, which may be part of a password.
            error if error.sqlstate() == Some("42704") => {
                Error::invalid("the server does not know a parameter of the connection string")
            }
            error => error,
        })?;
        let pid = process_id(&dialed.0).await;
        let database = host.get_dbname().or(host.get_user()).unwrap_or_default();
        Wire::new(dialed, pid, database, abort).await
    }
}

// --- the process id in BackendKeyData ---

/// Returns the process id from `BackendKeyData`, or 0 on failure. `Client` does not expose it, but writes it into a
/// cancel request. So let the client write a cancel request into a stream in memory, and read the process id there.
async fn process_id(client: &Client) -> i32 {
    let (mut ours, theirs) = tokio::io::duplex(64);
    let mut request = Vec::new();
    // The reply to the client's request for encryption.
    let answered = ours.write_all(b"S").await;
    let asked = client.cancel_token().cancel_query_raw(theirs, InMemory).await;
    if answered.is_err() || asked.is_err() || ours.read_to_end(&mut request).await.is_err() {
        return 0;
    }
    // The request ends with the process id and the key.
    let start = request.len().saturating_sub(8);
    request.get(start..start + 4).and_then(|id| id.try_into().ok()).map_or(0, i32::from_be_bytes)
}

struct InMemory;

struct InMemoryStream(DuplexStream);

impl TlsConnect<DuplexStream> for InMemory {
    type Stream = InMemoryStream;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<InMemoryStream, std::io::Error>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        std::future::ready(Ok(InMemoryStream(stream)))
    }
}

impl TlsStream for InMemoryStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for InMemoryStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for InMemoryStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

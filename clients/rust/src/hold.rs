use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Transaction;
use tokio_util::sync::CancellationToken;

use crate::arguments::{
    Names, check_candidate, check_distinct, check_election, check_hold_for, check_names, check_ttl,
};
use crate::connect::Boxed;
use crate::session::{Handle, Session};
use crate::state::{Item, Phase, Request, call_limit};
use crate::{Error, Kind};

impl Session {
    /// Requests a lock, or several locks that are acquired together or not at all. Await the request: it waits in order
    /// of arrival, without a limit unless [`wait`](Acquire::wait) sets one. A broken connection does not end the wait,
    /// and loses no place. Two holds of one session exclude each other, like those of two processes. A name has 1 to
    /// 255 bytes.
    ///
    /// If the request is dropped, its wait ends, and a grant that arrives at the same moment is released.
    ///
    /// ```no_run
    /// # async fn example(session: lock_election::Session) -> Result<(), lock_election::Error> {
    /// let invoices = session.lock("invoices").await?;
    /// let summary = session.lock("summary").shared().await?;
    /// let mailer = session.lock("mailer").permit(3).await?; // one of three
    /// let both = session.lock(["account 7", "account 9"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, names: impl Into<Names>) -> Acquire<Hold> {
        Acquire::new(self, names.into(), None)
    }

    /// Like `lock`, but does not wait: the error is of the kind [`NotAcquired`](Kind::NotAcquired) if others hold the
    /// lock or are queued for it.
    pub fn try_lock(&self, names: impl Into<Names>) -> Acquire<Hold> {
        self.lock(names).wait(Duration::ZERO)
    }

    /// Tries to acquire each of these locks independently, with one call to the server per 128 locks. Returns a hold
    /// for each name in order, or None if others hold that lock or are queued for it.
    ///
    /// # Errors
    /// The errors of `try_lock`; in that case none of the locks is held.
    pub async fn try_lock_each(&self, names: impl Into<Names>) -> Result<Vec<Option<Hold>>, Error> {
        let names = names.into().0;
        check_distinct(&names)?;
        let start = Instant::now();
        let requests: Vec<Hold> = names.iter().map(|name| self.try_lock(name).send()).collect::<Result<_, _>>()?;
        let mut holds = Vec::with_capacity(requests.len());
        for hold in requests {
            holds.push(match hold.attend(start, Some(Duration::ZERO)).await {
                Ok(hold) => Some(hold),
                Err(error) if error.kind() == Kind::NotAcquired => None,
                Err(error) => return Err(error),
            });
        }
        Ok(holds)
    }
}

/// A request for a lock or a term. Await it.
#[must_use = "a request does nothing unless it is awaited"]
pub struct Acquire<T> {
    handle: Arc<Handle>,
    names: Names,
    candidate: Option<String>,
    shared: bool,
    permits: Option<u32>,
    ttl: Duration,
    wait: Option<Duration>,
    result: PhantomData<fn() -> T>,
}

impl Acquire<Hold> {
    /// Requests a shared lock, which other shared holders may hold at the same time.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Requests one of `permits` permits of the name. All users of a name must pass the same number.
    pub fn permit(mut self, permits: u32) -> Self {
        self.permits = Some(permits);
        self
    }
}

impl<T> Acquire<T> {
    pub(crate) fn new(session: &Session, names: Names, candidate: Option<String>) -> Self {
        let ttl = session.handle.0.options.ttl;
        let handle = session.handle.clone();
        Acquire { handle, names, candidate, shared: false, permits: None, ttl, wait: None, result: PhantomData }
    }

    /// Sets a TTL that differs from the session's. All holds with this TTL share a separate lease, which the session
    /// keeps alive on the same connection.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Limits the time in the queue. At the limit the error is of the kind [`NotAcquired`](Kind::NotAcquired). The time
    /// for the server's first reply, which may take up to a quarter of the TTL, does not count. So a free lock is
    /// acquired even if the limit is shorter than a round trip. With zero the request does not wait.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Queues the request.
    fn send(self) -> Result<Hold, Error> {
        let several = self.names.0.len() > 1;
        let ttl = check_ttl(self.ttl)?;
        match &self.candidate {
            Some(candidate) => {
                check_election(&self.names.0[0])?;
                check_candidate(candidate)?;
            }
            None => check_names(&self.names.0)?,
        }
        let tries = self.wait.is_some_and(|wait| wait.is_zero());
        let action = match (self.permits, self.shared, &self.candidate) {
            (Some(_), true, _) => return Err(Error::invalid("a permit is not shared")),
            (Some(_), ..) if several => return Err(Error::invalid("a permit has only one name, and these are several")),
            (Some(_), ..) if tries => "try_permit",
            (Some(_), ..) => "enqueue_permit",
            (_, true, _) if tries => "try_shared",
            (_, true, _) => "enqueue_shared",
            (_, _, Some(_)) if tries => "try_candidate",
            (_, _, Some(_)) => "enqueue_candidate",
            _ if tries => "try_lock",
            _ => "enqueue_lock",
        };
        let number = self.permits.map(|permits| permits.to_string());
        let item = Item::new(action, self.names.0.clone(), number, self.candidate);
        Ok(Hold {
            #[cfg(feature = "tracing")]
            acquiring: Some(crate::spans::Acquiring::new(action, &item.names)),
            asked: Asked::new(self.handle, item, ttl),
            names: self.names,
            token: 0,
        })
    }

    async fn acquire(self) -> Result<Hold, Error> {
        let (start, wait) = (Instant::now(), self.wait);
        self.send()?.attend(start, wait).await
    }
}

impl<T: From<Hold> + 'static> IntoFuture for Acquire<T> {
    type Output = Result<T, Error>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

    fn into_future(self) -> Boxed<'static, Result<T, Error>> {
        Box::pin(async { self.acquire().await.map(T::from) })
    }
}

/// A request that was passed to the session. When it is dropped, the session releases its grant or place.
pub(crate) struct Asked {
    handle: Arc<Handle>,
    number: u64,
    ttl: Duration,
    changed: Arc<Notify>,
    ended: CancellationToken,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.handle.0.lock().leave(self.number);
        self.handle.0.work.notify_one();
    }
}

impl Asked {
    pub(crate) fn new(handle: Arc<Handle>, item: Item, ttl: Duration) -> Self {
        let mut state = handle.0.lock();
        let number = state.request(item, ttl);
        let (changed, ended) =
            state.requests.get(&number).map(|r| (r.changed.clone(), r.ended.clone())).unwrap_or_default();
        drop(state);
        handle.0.work.notify_one();
        Asked { handle, number, ttl, changed, ended }
    }

    fn read<T>(&self, read: impl FnOnce(&mut Request) -> T) -> Option<T> {
        self.handle.0.lock().requests.get_mut(&self.number).map(read)
    }

    /// Waits for the result, and ends the wait at its time limit. If the first reply has not arrived by that limit,
    /// waits for it for at most the time limit of a call; then only a grant counts, and a place is released.
    pub(crate) async fn attend(&self, start: Instant, wait: Option<Duration>) -> Result<(), Error> {
        let most = call_limit(self.ttl);
        let mut limit = if wait == Some(Duration::ZERO) { Some(most) } else { wait };
        loop {
            {
                let mut state = self.handle.0.lock();
                let late = limit.is_some_and(|limit| start.elapsed() >= limit);
                let no_answer = state.troubled(&Error::no_answer());
                let Some(request) = state.requests.get_mut(&self.number) else { return Err(no_answer) };
                match &request.phase {
                    Phase::Held => return Ok(()),
                    Phase::Over(result) => return result.clone(),
                    Phase::Waiting if late && request.queued => {
                        state.finish(self.number, Err(Error::new(Kind::NotAcquired, "held by somebody else")));
                    }
                    Phase::Waiting if late && limit >= Some(most) => {
                        let kind = if wait == Some(Duration::ZERO) { Kind::Unavailable } else { Kind::NotAcquired };
                        state.finish(self.number, Err(no_answer.of_kind(kind)));
                    }
                    Phase::Waiting if late => (request.impatient, limit) = (true, Some(most)),
                    Phase::Waiting => {}
                }
            }
            match limit {
                Some(limit) => _ = timeout_at(start + limit, self.changed.notified()).await,
                None => self.changed.notified().await,
            }
        }
    }
}

/// Returns a text as an SQL expression, without any character that an ORM could interpret as a parameter.
fn literal(text: &str) -> String {
    if text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_ .,/-".contains(&c)) {
        return format!("'{text}'");
    }
    let hex: Vec<_> = text.bytes().map(|c| format!("{c:02x}")).collect();
    format!("pg_catalog.convert_from(pg_catalog.decode('{}', 'hex'), 'UTF8')", hex.concat())
}

/// A lock, a permit, or several locks that were acquired together. When it is dropped, the session releases them,
/// without waiting.
pub struct Hold {
    #[cfg(feature = "tracing")]
    acquiring: Option<crate::spans::Acquiring>,
    asked: Asked,
    names: Names,
    token: i64,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("names", &self.names.0).field("token", &self.token).finish_non_exhaustive()
    }
}

impl Hold {
    /// Waits for the grant.
    async fn attend(mut self, start: Instant, wait: Option<Duration>) -> Result<Self, Error> {
        let result = self.asked.attend(start, wait).await;
        self.token = self.asked.read(|request| request.token).unwrap_or(0);
        #[cfg(feature = "tracing")]
        if let Some(acquiring) = self.acquiring.take() {
            match &result {
                Ok(()) => {
                    let reason = self.asked.read(|request| request.reason.clone()).unwrap_or_default();
                    acquiring.granted(self.token, self.asked.ended.clone(), reason);
                }
                Err(error) => acquiring.refused(error),
            }
        }
        result.map(|()| self)
    }

    pub(crate) fn session(&self) -> Session {
        Session { handle: self.asked.handle.clone() }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.asked.ttl
    }

    /// A token that is cancelled when the hold is lost or released: at the latest at the local deadline, before any
    /// other client can get the lock.
    #[must_use]
    pub fn ended(&self) -> CancellationToken {
        self.asked.ended.clone()
    }

    /// Whether the hold is held and its local deadline has not passed. It checks the clock and does no I/O.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.asked.handle.0.lock().expire();
        self.asked.read(|request| matches!(request.phase, Phase::Held)).unwrap_or(false)
    }

    /// The time for which `is_valid` stays true without another renewal.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        if !self.is_valid() {
            return Duration::ZERO;
        }
        let lease = self.asked.read(|request| request.lease).unwrap_or(0);
        self.asked.handle.0.lock().left(lease)
    }

    /// The reason why the hold has ended: an error whose kind is `Lost`, `Closed` or `Released`. None if it is held.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.asked.handle.0.lock().expire();
        self.asked
            .read(|request| if let Phase::Over(Err(error)) = &request.phase { Some(error.clone()) } else { None })?
    }

    /// The token, which proves ownership. For an exclusive lock or a term it is also the fencing token, which is higher
    /// than the token of every earlier holder.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The names, in the order of the request.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names.0
    }

    /// Runs work until it is done. If the hold ends before, drops the work. Checks the clock before each step of the
    /// work, so that even a process that was stopped does no step after the deadline.
    ///
    /// # Errors
    /// The reason why the hold has ended.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let mut work = pin!(work);
        let mut ended = pin!(self.asked.ended.cancelled());
        poll_fn(|context| {
            if ended.as_mut().poll(context).is_ready() || !self.is_valid() {
                return Poll::Ready(Err(self.error().unwrap_or_else(|| Error::lost("the server has ended it"))));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Releases the hold, which is invalid from this call on. Waits for the server for at most a quarter of the TTL.
    ///
    /// # Errors
    /// `Lost` or `Closed` if the hold had ended before; `Unknown` if the server has not confirmed the release. The
    /// session then keeps retrying, and the server ends the hold with the lease at the latest.
    pub async fn release(self) -> Result<(), Error> {
        self.give_back(Duration::ZERO).await
    }

    /// Releases the hold, and keeps the name closed: it is not granted until `hold_for` after the hold was acquired.
    /// `hold_for` is at most 24 days, and at most the server's setting `lock_election.max_hold_for`.
    ///
    /// # Errors
    /// The errors of `release`; `Invalid` or `Limit` if `hold_for` is not allowed. The hold is then released without
    /// it.
    pub async fn release_hold_for(self, hold_for: Duration) -> Result<(), Error> {
        self.give_back(hold_for).await
    }

    /// Makes every later release, including by a drop, keep the name closed until `hold_for` after the acquire.
    pub(crate) fn keep_closed(&self, hold_for: Duration) {
        self.asked.read(|request| request.hold_for = hold_for);
    }

    pub(crate) async fn give_back(&self, hold_for: Duration) -> Result<(), Error> {
        let (inner, checked) = (&self.asked.handle.0, check_hold_for(hold_for));
        let limit = {
            let mut state = inner.lock();
            state.expire();
            if let Some(request) = state.requests.get_mut(&self.asked.number).filter(|request| !request.over()) {
                match &checked {
                    Ok(()) => request.hold_for = hold_for,
                    Err(error) => request.release_error = Some(error.clone()),
                }
            }
            let released = state.release(self.asked.number);
            inner.work.notify_one();
            released?;
            state.limit(self.asked.ttl)
        };
        let done = async {
            loop {
                match self.asked.read(|request| request.done.then(|| request.release_error.take())) {
                    Some(None) => self.asked.changed.notified().await,
                    Some(Some(Some(error))) => return Err(error),
                    _ => return Ok(()),
                }
            }
        };
        match timeout(limit, done).await {
            Ok(result) => result,
            Err(_) => Err(inner.lock().troubled(&Error::no_answer()).of_kind(Kind::Unknown)),
        }
    }

    /// Returns the statement of a [`fence`](Hold::fence) as a text without parameters, for any other driver, such as
    /// sqlx and diesel. Execute it in an open transaction, before its writes. If it fails, with SQLSTATE LE001 if the
    /// hold is lost, roll back. Outside of a transaction it succeeds, but protects nothing.
    ///
    /// # Errors
    /// `Lost` if the hold has ended.
    pub fn fence_sql(&self) -> Result<String, Error> {
        if !self.is_valid() {
            return Err(self.error().unwrap_or_else(|| Error::lost("the server has ended it")).of_kind(Kind::Lost));
        }
        let term = self.asked.read(|request| request.is_term()).unwrap_or(false);
        let function = if term { "fence_leader" } else { "fence_lock" };
        let schema = self.asked.handle.0.lock().schema.clone();
        let names = self.names.0.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
        let call = format!("pg_catalog.count({schema}.{function}(n, {}))", self.token);
        Ok(format!("SELECT {call} AS fenced FROM pg_catalog.unnest(ARRAY[{names}]) AS n"))
    }

    /// Binds the application's transaction, in the same database, to the hold: until the transaction ends, the lock is
    /// granted to no other client, and no other candidate is elected. So the transaction's later writes are committed
    /// only if the hold was still held.
    ///
    /// ```no_run
    /// # async fn example(session: lock_election::Session, mut client: tokio_postgres::Client)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let account = session.lock("account 7").await?;
    /// let transaction = client.transaction().await?;
    /// account.fence(&transaction).await?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Lost` if the hold is lost, or any error of the transaction: roll back.
    pub async fn fence(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let fence = self.fence_sql()?;
        let Err(error) = transaction.batch_execute(&fence).await else { return Ok(()) };
        let error = Error::from(error);
        if error.is_no_function() {
            // Make the session read the schema.
            let sql = "SELECT {schema}.is_held($1, $2::pg_catalog.int8)::pg_catalog.text";
            _ = self.asked.handle.0.ask(sql, vec![self.names.0[0].clone(), self.token.to_string()]).await;
            if self.fence_sql()? != fence {
                let what = "the extension's schema has another name: roll back, and repeat the transaction";
                return Err(Error::new(Kind::Unavailable, what));
            }
        }
        Err(error)
    }
}

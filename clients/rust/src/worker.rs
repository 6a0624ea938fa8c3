//! The session's task: it runs all turns, reconnects, and listens while a hold waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::clock::{Time, now};
use crate::session::Inner;
use crate::state::{FIRST_RETRY, LINGERS, Lease, OWN, Query, State, Turn, call_limit, milliseconds};
use crate::wire::{Rows, Wire};
use crate::{Error, Kind};

/// The next step of the session's task.
enum Step {
    Rest(Duration),
    Connect,
    Grant(u64),
    Revoke(u64),
    Turn(Turn),
    Query(Query),
    Listen(BTreeSet<String>),
}

struct Worker {
    inner: Arc<Inner>,
    wire: Option<Wire>,
    asked: bool, // whether the last step was a query
}

/// Guard that ends the session when its task ends, even if the runtime is shut down.
struct Ending(Arc<Inner>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().stop(&Error::new(Kind::Closed, "the runtime of the session was shut down"));
        self.0.stopped.cancel();
    }
}

/// Checks the deadlines, even if the session's connection hangs. Checks at least once a second, because timers stop
/// while the machine is suspended.
pub(crate) async fn watch(inner: Arc<Inner>) {
    let ended = inner.lock().ended.clone();
    loop {
        let next = {
            let mut state = inner.lock();
            state.expire();
            if state.leases.values().any(|lease| lease.renew_at <= now()) {
                inner.work.notify_one(); // after a suspend, the timers of the session's task are late, too
            }
            let deadlines = state.leases.values().filter(|lease| lease.id != 0).map(Lease::deadline);
            deadlines.min().map_or(Duration::from_secs(1), |at| at.saturating_sub(now()))
        };
        tokio::select! {
            () = ended.cancelled() => return,
            () = sleep(next.min(Duration::from_secs(1))) => {}
            () = inner.granted.notified() => {}
        }
    }
}

pub(crate) async fn run(inner: Arc<Inner>, opened: oneshot::Sender<Result<(), Error>>) {
    let ending = Ending(inner);
    let mut worker = Worker { inner: ending.0.clone(), wire: None, asked: false };
    let result = worker.open().await;
    if let Err(error) = &result {
        worker.inner.lock().stop(error);
    }
    _ = opened.send(result);
    #[cfg(feature = "tracing")]
    let mut reported = crate::spans::Reported::default();
    while worker.inner.lock().error.is_none() {
        worker.step().await;
        worker.inner.lock().expire();
        #[cfg(feature = "tracing")]
        reported.look(&worker.inner);
    }
    worker.shut_down().await;
}

impl Worker {
    async fn open(&mut self) -> Result<(), Error> {
        self.connect().await?;
        let trouble = |error: Error, state: &State| match &state.trouble {
            Some(trouble) if error.kind() == Kind::Unknown => trouble.clone(),
            _ => error,
        };
        self.grant(OWN).await.map_err(|error| trouble(error, &self.inner.lock()))?;
        let turn = self.inner.lock().begin(OWN);
        if let Some(turn) = turn {
            self.turn(turn).await;
        }
        Ok(())
    }

    fn plan(&self, state: &mut State) -> Step {
        let time = now();
        let Some(wire) = &self.wire else {
            let pause = state.retry_at.saturating_sub(time);
            return if pause.is_zero() { Step::Connect } else { Step::Rest(pause) };
        };
        let hears = |channel: &Option<String>| wire.hears && channel.as_ref().is_some_and(|c| wire.listens.contains(c));
        let urgency = state.leases.iter().map(|(key, lease)| {
            let due = state.due(lease, !hears(&lease.channel));
            (due, usize::MAX - lease.releases(), lease.last_at, *key)
        });
        let Some((due, _, _, key)) = urgency.min() else { return Step::Rest(Duration::from_secs(1)) };
        let query = state.queries.front().map(|query| query.at);
        let lease = &state.leases[&key];
        let renews = due <= time && lease.renew_at <= time;
        if query.is_some_and(|at| at <= time) && !renews && !self.asked {
            return state.queries.pop_front().map_or(Step::Connect, Step::Query);
        } else if due <= time {
            let unused = key != OWN && lease.unused();
            return match lease.id {
                _ if unused => Step::Revoke(key),
                0 => Step::Grant(key),
                _ => state.begin(key).map_or(Step::Connect, Step::Turn),
            };
        } else if query.is_some_and(|at| at <= time) {
            return state.queries.pop_front().map_or(Step::Connect, Step::Query);
        }
        let mut next = query.map_or(due, |at| at.min(due));
        match self.wanted(state, time, &mut next) {
            Some(wanted) => Step::Listen(wanted),
            None => Step::Rest(next.saturating_sub(time)),
        }
    }

    /// Does the most urgent work, or waits if there is none.
    async fn step(&mut self) {
        let step = self.plan(&mut self.inner.lock());
        self.asked = matches!(step, Step::Query(_));
        match step {
            Step::Rest(limit) => self.rest(limit).await,
            Step::Connect => {
                if let Err(error) = self.connect().await {
                    let mut state = self.inner.lock();
                    state.retry_at = state.failed(&error);
                }
            }
            Step::Grant(key) => {
                if let Err(error) = self.grant(key).await {
                    let mut state = self.inner.lock();
                    if error.passes() {
                        let at = state.failed(&error);
                        state.leases.entry(key).and_modify(|lease| lease.renew_at = at);
                    } else {
                        state.lose(key, &error);
                    }
                }
            }
            Step::Revoke(key) => {
                let id = {
                    let mut state = self.inner.lock();
                    let id = state.leases.get(&key).map_or(0, |lease| lease.id);
                    state.lose(key, &Error::new(Kind::Released, "released"));
                    id
                };
                if id != 0 {
                    _ = self
                        .exec("SELECT {schema}.revoke_lease($1::pg_catalog.int8)::pg_catalog.text", &[id.to_string()])
                        .await;
                }
            }
            Step::Turn(turn) => self.turn(turn).await,
            Step::Query(query) => self.query(query).await,
            Step::Listen(wanted) => self.listen(wanted).await,
        }
    }

    /// Makes a connection. The time limit for each host is shorter while the session has a lease that may expire.
    async fn connect(&mut self) -> Result<(), Error> {
        let (limit, ended) = {
            let state = self.inner.lock();
            let lease = state.leases.get(&OWN).filter(|lease| lease.id != 0);
            let most = Duration::from_secs(5);
            let limit = lease.map_or(most, |lease| most.min((lease.ttl / 4).max(Duration::from_millis(200))));
            // A close may need a new connection, so only an abort ends that one.
            (limit, if state.error.is_some() { self.inner.abort.clone() } else { state.ended.clone() })
        };
        let wire = tokio::select! {
            wire = self.inner.connector.connect(limit, &self.inner.abort) => wire?,
            () = ended.cancelled() => return Err(Error::no_answer()),
        };
        let mut state = self.inner.lock();
        state.schema.clone_from(&wire.schema);
        state.leases.values_mut().for_each(|lease| lease.renew_at = Time::ZERO);
        drop(state);
        self.wire = Some(wire);
        Ok(())
    }

    /// Requests a lease. It may not be durable yet; the first call of `lease_sync` returns its validity.
    async fn grant(&mut self, key: u64) -> Result<(), Error> {
        let sent = now();
        let (ttl, owner) = {
            let state = self.inner.lock();
            let Some(lease) = state.leases.get(&key) else { return Ok(()) };
            (lease.ttl, state.owner.clone())
        };
        let args = [milliseconds(ttl), owner, milliseconds(call_limit(ttl) / 2)];
        let sql = "SELECT {schema}.grant_lease($1::pg_catalog.interval, $2, $3::pg_catalog.interval)::pg_catalog.text";
        let rows = self.exec(sql, &args).await?;
        let id = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).unwrap_or(0);
        if let Some(lease) = self.inner.lock().leases.get_mut(&key) {
            (lease.id, lease.born_at) = (id, sent);
        }
        self.inner.granted.notify_one();
        Ok(())
    }

    /// Sends a call and handles its reply. If the reply has woken up callers, lets them queue their next requests
    /// before the next turn begins.
    async fn turn(&mut self, turn: Turn) {
        let Some(wire) = self.wire.as_mut() else {
            return self.inner.lock().ended(turn, Err(Error::no_answer()), true);
        };
        wire.limit(turn.limit);
        let result = wire.sync(&turn.call).await;
        let plain = matches!(&result, Err(error) if error.is_of_preparing()) && !wire.plain;
        wire.plain |= plain;
        self.hear().await;
        let told = {
            let mut state = self.inner.lock();
            let told = state.told;
            if plain {
                state.unsent(turn);
            } else {
                state.ended(turn, result, self.wire.is_none());
            }
            state.told > told
        };
        if told {
            yield_now().await;
        }
    }

    /// Runs one statement. If the connection breaks, the error is of the kind `Unknown`.
    async fn exec(&mut self, sql: &str, args: &[String]) -> Result<Rows, Error> {
        let Some(wire) = self.wire.as_mut() else { return Err(Error::no_answer()) };
        wire.limit(self.inner.limit());
        let result = wire.call(sql, args).await;
        self.hear().await;
        self.inner.lock().expire();
        match result {
            Err(error) if self.wire.is_none() => Err(error.of_kind(Kind::Unknown)),
            result => result,
        }
    }

    /// Runs the statement of a caller. After a temporary failure, queues it again, until the caller stops waiting.
    async fn query(&mut self, mut query: Query) {
        if query.reply.is_closed() {
            return;
        }
        let result = self.exec(query.sql, &query.args).await;
        match result {
            Err(error) if error.passes() && self.inner.lock().error.is_none() => {
                query.at = now() + FIRST_RETRY;
                self.inner.lock().queries.push_back(query);
            }
            result => _ = query.reply.send(result),
        }
        yield_now().await;
    }

    /// Handles the notifications, each of which signals that there may be news. Closes a broken connection.
    async fn hear(&mut self) {
        let Some(wire) = self.wire.as_mut() else { return };
        let heard = wire.heard();
        let broken = wire.broken().cloned();
        {
            let mut state = self.inner.lock();
            state.schema.clone_from(&wire.schema);
            for channel in heard {
                for lease in state.leases.values_mut().filter(|lease| lease.channel.as_ref() == Some(&channel)) {
                    (lease.look, wire.hears) = (true, true);
                }
                state.observers.values().filter(|(other, _)| *other == channel).for_each(|(_, hint)| hint.notify_one());
            }
            if let Some(error) = &broken {
                state.retry_at = state.failed(error);
            }
        }
        if broken.is_some() {
            if let Some(wire) = self.wire.take() {
                wire.close().await;
            }
        }
    }

    /// Waits until it is woken up or the limit passes, and serves the connection meanwhile.
    async fn rest(&mut self, limit: Duration) {
        match self.wire.as_mut() {
            Some(wire) => wire.rest(limit, &self.inner.work).await,
            None => _ = timeout(limit, self.inner.work.notified()).await,
        }
        self.hear().await;
    }

    /// Returns the channels of the observers, and of the leases that have places or had one until a moment ago. Returns
    /// None if the connection already listens on them, or cannot listen. Lowers `next` to the time of the next change.
    fn wanted(&self, state: &State, time: Time, next: &mut Time) -> Option<BTreeSet<String>> {
        let wire = self.wire.as_ref().filter(|wire| !wire.deaf)?;
        let mut wanted: BTreeSet<String> = state.observers.values().map(|(channel, _)| channel.clone()).collect();
        for lease in state.leases.values() {
            let Some(channel) = &lease.channel else { continue };
            let until = if lease.waited_at > Time::ZERO { lease.waited_at + LINGERS } else { Time::ZERO };
            if lease.waiting > 0 || time < until {
                wanted.insert(channel.clone());
            }
            if lease.waiting == 0 && time < until {
                *next = (*next).min(until);
            }
        }
        (wanted != wire.listens).then_some(wanted)
    }

    /// Changes the channels of the connection. The first time, the connection also sends itself a notification, as a
    /// test. If LISTEN is rejected or that notification does not arrive, the session polls.
    async fn listen(&mut self, wanted: BTreeSet<String>) {
        let Some(wire) = self.wire.as_mut() else { return };
        let mut sql = Vec::new();
        sql.extend(wanted.difference(&wire.listens).map(|channel| format!("LISTEN {channel}")));
        sql.extend(wire.listens.difference(&wanted).map(|channel| format!("UNLISTEN {channel}")));
        let own = |state: &State| {
            let mut channels = state.leases.values().filter_map(|lease| lease.channel.clone());
            channels.find(|channel| wanted.contains(channel))
        };
        if let Some(channel) = own(&self.inner.lock()).filter(|_| !wire.tested) {
            sql.push(format!("SET LOCAL synchronous_commit = off; NOTIFY {channel}"));
            wire.tested = true;
        }
        wire.listens = wanted;
        wire.limit(self.inner.limit());
        if wire.batch(&sql.join("; ")).await.is_err() {
            (wire.deaf, wire.listens) = (true, BTreeSet::new());
        }
        self.hear().await;
        let mut state = self.inner.lock();
        // Read the news now, because this connection was not notified of a grant before the LISTEN.
        state.leases.values_mut().for_each(|lease| lease.look |= lease.waiting > 0);
        state.observers.values().for_each(|(_, hint)| hint.notify_one());
    }

    /// Sends the releases with `hold_for`, and revokes the leases.
    async fn shut_down(&mut self) {
        let keys: Vec<u64> = {
            let mut state = self.inner.lock();
            state.failures = 0;
            state.leases.iter().filter(|(_, lease)| lease.id != 0).map(|(key, _)| *key).collect()
        };
        let mut revoked = true;
        for key in keys {
            revoked &= self.wind_up(key).await;
            let mut state = self.inner.lock();
            let error = state.error.clone().unwrap_or_else(Error::no_answer);
            state.leases.entry(key).and_modify(|lease| lease.over = true);
            state.drop_all(key, &error);
        }
        self.inner.lock().revoked = revoked;
        if let Some(wire) = self.wire.take() {
            wire.close().await;
        }
    }

    /// Sends a lease's last releases and revokes it. Retries until the time limit of the close, over new connections if
    /// necessary. If the session was lost and not closed, makes no new connection: the lease then expires. Returns
    /// whether the lease was revoked.
    async fn wind_up(&mut self, key: u64) -> bool {
        loop {
            let (closes, turn, failures, id) = {
                let mut state = self.inner.lock();
                let (closes, failures) = (state.close_at, state.failures);
                let Some(lease) = state.leases.get_mut(&key) else { return true };
                lease.queue.iter_mut().for_each(|item| item.at = Time::ZERO);
                let (gives, id) = (closes.is_some() && !lease.queue.is_empty(), lease.id);
                (closes, (gives && self.wire.is_some()).then(|| state.begin(key)).flatten(), failures, id)
            };
            let gives = turn.is_some();
            let mut failed = false;
            if let Some(turn) = turn {
                self.turn(turn).await;
            } else if self.wire.is_some() {
                let sql = "SELECT {schema}.revoke_lease($1::pg_catalog.int8)::pg_catalog.text";
                match self.exec(sql, &[id.to_string()]).await {
                    Ok(_) => return true,
                    Err(error) if !error.passes() => return false,
                    Err(_) => failed = true,
                }
            } else if closes.is_some() {
                failed = self.connect().await.is_err();
            }
            if closes.is_none_or(|at| now() >= at) || self.inner.abort.is_cancelled() {
                return false;
            }
            let again = {
                let state = self.inner.lock();
                gives && state.leases.get(&key).is_some_and(|lease| !lease.queue.is_empty())
                    || state.failures > failures
            };
            if failed || again {
                sleep(FIRST_RETRY).await;
            }
        }
    }
}

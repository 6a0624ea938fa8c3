//! The requests, holds and leases of a session, and how calls of `lease_sync` change them. Nothing here does I/O: the
//! session's task makes a turn with `begin`, sends it, and passes the reply to `ended`; callers queue requests and
//! releases.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::arguments::MAX_NAMES;
use crate::clock::{Time, jitter, now};
use crate::wire::{Call, Row, Rows};
use crate::{Error, Kind};

const MOST_ITEMS: usize = 128; // maximum number of items in a call
const PAUSE: Duration = Duration::from_millis(100); // before an item that the server cannot carry out now is sent again
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250); // interval of turns while LISTEN does not work
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(50);
pub(crate) const LINGERS: Duration = Duration::from_secs(1); // time for which a session listens after its last wait
/// The key of the session's own lease. The other leases are for holds with another TTL.
pub(crate) const OWN: u64 = 0;

fn margin(ttl: Duration) -> Duration {
    (ttl / 20).min(Duration::from_secs(1))
}

/// The time limit of a call.
pub(crate) fn call_limit(ttl: Duration) -> Duration {
    (ttl / 4).clamp(Duration::from_millis(200), Duration::from_secs(10))
}

fn longest_pause(ttl: Duration) -> Duration {
    (ttl / 20).clamp(FIRST_RETRY, Duration::from_secs(1))
}

pub(crate) fn milliseconds(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}

fn from_ms(ms: i64) -> Duration {
    Duration::from_millis(ms.try_into().unwrap_or(0))
}

/// A request or a release, which is sent by one or more calls.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) action: &'static str,
    pub(crate) names: Arc<[String]>,
    pub(crate) number: Option<String>, // number and value are arguments of lease_sync
    pub(crate) value: Option<String>,
    pub(crate) request: u64, // 0 = the release of a ghost
    pub(crate) at: Time,     // earliest time to send it
    again: bool,             // whether it may have been carried out already
    lost: bool,              // whether the reply to such a call was lost
}

impl Item {
    pub(crate) fn new(
        action: &'static str,
        names: Arc<[String]>,
        number: Option<String>,
        value: Option<String>,
    ) -> Self {
        Item { action, names, number, value, request: 0, at: Time::ZERO, again: false, lost: false }
    }

    pub(crate) fn gives(&self) -> bool {
        matches!(self.action, "release" | "resign")
    }
}

pub(crate) enum Phase {
    Waiting,
    Held,
    Over(Result<(), Error>),
}

/// A request, and the hold that it becomes.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Request {
    pub(crate) lease: u64,
    pub(crate) item: Item,
    pub(crate) phase: Phase,
    pub(crate) token: i64,
    pub(crate) changed: Arc<Notify>, // notified when the phase changes, and when it is done
    pub(crate) ended: CancellationToken, // cancelled when the hold ends
    #[cfg(feature = "tracing")]
    pub(crate) reason: Arc<std::sync::OnceLock<Error>>, // the reason why it has ended
    pub(crate) queued: bool,         // whether it has a place, and was not granted yet
    pub(crate) impatient: bool,      // whether its wait has timed out, so that only a grant in the first reply counts
    pub(crate) done: bool,           // whether its grant or place on the server has ended
    pub(crate) left: bool,           // whether the application has dropped it
    pub(crate) hold_for: Duration,
    pub(crate) release_error: Option<Error>,
    evicted: bool, // whether it was evicted, and the application has not released it yet
    pending: bool, // whether the server withholds its result until it is durable
    giving: usize, // number of names that are being released
}

impl Request {
    pub(crate) fn over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub(crate) fn is_term(&self) -> bool {
        self.item.action.ends_with("candidate")
    }

    pub(crate) fn what(&self) -> String {
        format!("{:.100?}", self.item.names.join(", "))
    }
}

/// The session's own lease, or a lease for the holds with another TTL.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Lease {
    pub(crate) ttl: Duration,
    pub(crate) id: i64,   // 0 = not granted yet
    pub(crate) end: Time, // the local deadline; zero = no reply had a validity yet
    pub(crate) born_at: Time,
    pub(crate) renew_at: Time,
    pub(crate) last_at: Time,   // time of the last call
    pub(crate) waited_at: Time, // time at which the last wait ended
    pub(crate) over: bool,
    pub(crate) channel: Option<String>,
    pub(crate) queue: VecDeque<Item>,
    pub(crate) waiting: usize, // number of places
    pub(crate) look: bool,     // whether there may be news, so that a call is due now
    call: i64,                 // number of the last call
    incarnation: Option<i64>,  // incarnation, and number of the newest news item that the client has seen
    news: Option<i64>,
    open: BTreeSet<u64>,         // requests that were sent and have no result yet
    by_token: HashMap<i64, u64>, // places and holds, including those that are being released
    bare: bool,                  // whether the next call has no items
    alone: usize,                // number of items to send one by one, to find out which one is rejected
    apart: bool,                 // whether the last call had releases and left the requests to the next call
}

impl Lease {
    pub(crate) fn new(ttl: Duration) -> Self {
        Lease {
            ttl,
            id: 0,
            end: Time::ZERO,
            born_at: Time::ZERO,
            renew_at: Time::ZERO,
            last_at: Time::ZERO,
            waited_at: Time::ZERO,
            over: false,
            channel: None,
            queue: VecDeque::new(),
            waiting: 0,
            look: false,
            call: 0,
            incarnation: None,
            news: None,
            open: BTreeSet::new(),
            by_token: HashMap::new(),
            bare: false,
            alone: 0,
            apart: false,
        }
    }

    /// The local deadline. If no reply had a validity yet, it is one TTL (minus the margin) after the grant.
    pub(crate) fn deadline(&self) -> Time {
        if self.end == Time::ZERO { self.born_at + self.ttl.saturating_sub(margin(self.ttl)) } else { self.end }
    }

    /// The number of queued releases. Leases with releases go first, because others may be waiting for these locks.
    pub(crate) fn releases(&self) -> usize {
        self.queue.iter().filter(|item| item.gives()).count()
    }

    pub(crate) fn unused(&self) -> bool {
        self.queue.is_empty() && self.open.is_empty() && self.by_token.is_empty()
    }
}

/// A statement that a caller waits for.
pub(crate) struct Query {
    pub(crate) sql: &'static str,
    pub(crate) args: Vec<String>,
    pub(crate) reply: oneshot::Sender<Result<Rows, Error>>,
    pub(crate) at: Time, // earliest time to send it
}

/// A call of `lease_sync`.
pub(crate) struct Turn {
    pub(crate) lease: u64,
    pub(crate) call: Call,
    pub(crate) limit: Duration,
    items: Vec<Option<Item>>,
    silent: bool, // whether it has only releases, so that the reply does not renew the lease
    sent: Time,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) error: Option<Error>,   // the reason why the session has ended
    pub(crate) trouble: Option<Error>, // the last error of a connection or a renewal
    pub(crate) failures: u32,          // failed renewals and connections since the last successful renewal
    pub(crate) retry_at: Time,         // earliest time for the next connection
    pub(crate) close_at: Option<Time>,
    pub(crate) schema: String, // the extension's schema, for fences
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) requests: HashMap<u64, Request>,
    pub(crate) queries: VecDeque<Query>,
    pub(crate) observers: HashMap<u64, (String, Arc<Notify>)>, // channels of elections, and hints for observers
    pub(crate) told: usize,                                    // number of callers that were woken up
    pub(crate) revoked: bool,
    pub(crate) owner: String, // prefix of the owner texts of all requests, before their number
    pub(crate) ended: CancellationToken,
    ttl: Duration,
    number: u64, // number of the last request, lease or observer
}

impl State {
    pub(crate) fn new(ttl: Duration, owner: String) -> Self {
        State { ttl, owner, leases: BTreeMap::from([(OWN, Lease::new(ttl))]), ..State::default() }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    // --- requests ---

    /// Queues a request, and returns its number. If the session has ended, the request fails immediately.
    pub(crate) fn request(&mut self, mut item: Item, ttl: Duration) -> u64 {
        self.expire();
        let number = self.next_number();
        let lease = self.lease_of(ttl);
        item.request = number;
        let request = Request {
            lease,
            item: item.clone(),
            phase: Phase::Waiting,
            token: 0,
            changed: Arc::default(),
            ended: CancellationToken::new(),
            #[cfg(feature = "tracing")]
            reason: Arc::default(),
            queued: false,
            impatient: false,
            done: false,
            left: false,
            hold_for: Duration::ZERO,
            release_error: None,
            evicted: false,
            pending: false,
            giving: 0,
        };
        self.requests.insert(number, request);
        if let Some(error) = self.error.clone() {
            self.settle(number, Err(error));
        } else if let Some(lease) = self.leases.get_mut(&lease) {
            lease.queue.push_back(item);
        }
        number
    }

    /// Returns the key of the lease for holds with this TTL. Creates the lease for the first hold.
    fn lease_of(&mut self, ttl: Duration) -> u64 {
        if let Some((key, _)) = self.leases.iter().find(|(_, lease)| lease.ttl == ttl) {
            return *key;
        }
        let key = self.next_number();
        self.leases.insert(key, Lease::new(ttl));
        key
    }

    /// Releases a hold. Returns an error if it had been lost before.
    pub(crate) fn release(&mut self, number: u64) -> Result<(), Error> {
        self.expire();
        let Some(request) = self.requests.get_mut(&number) else { return Ok(()) };
        if let Phase::Over(result) = &request.phase {
            let result = result.clone();
            if request.evicted && !request.done {
                request.evicted = false;
                self.give_back(number);
            }
            return match result {
                Err(error) if matches!(error.kind(), Kind::Lost | Kind::Closed) => Err(error),
                _ => Ok(()),
            };
        }
        self.finish(number, Err(Error::new(Kind::Released, "released")));
        Ok(())
    }

    /// Releases a hold, or ends a wait, that the application has dropped.
    pub(crate) fn leave(&mut self, number: u64) {
        _ = self.release(number);
        if let Some(request) = self.requests.get_mut(&number) {
            request.left = true;
            if request.done {
                self.requests.remove(&number);
            }
        }
    }

    /// The time until the deadline of a lease; zero if it has ended.
    pub(crate) fn left(&self, lease: u64) -> Duration {
        match self.leases.get(&lease) {
            Some(lease) if !lease.over && self.error.is_none() => lease.deadline().saturating_sub(now()),
            _ => Duration::ZERO,
        }
    }

    // --- the end ---

    /// Ends the leases whose deadline has passed.
    pub(crate) fn expire(&mut self) {
        let late = |lease: &Lease| lease.id != 0 && now() >= lease.deadline();
        while self.error.is_none() {
            let Some(key) = self.leases.iter().rev().find(|(_, lease)| late(lease)).map(|(key, _)| *key) else {
                return;
            };
            let cause = self.trouble.as_ref().filter(|_| self.failures > 0);
            self.lose(key, &Error::lost("the lease could not be renewed in time").because(cause));
        }
    }

    /// Ends a lease. The session's own lease ends the session.
    pub(crate) fn lose(&mut self, key: u64, error: &Error) {
        if key == OWN {
            self.stop(error);
        } else {
            self.drop_all(key, error);
            self.leases.remove(&key);
        }
    }

    /// Ends all holds and waits of a lease. Keeps releases with `hold_for`, which a close sends before the revocation.
    pub(crate) fn drop_all(&mut self, key: u64, error: &Error) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        lease.over |= self.close_at.is_none();
        let over = lease.over;
        let (kept, dropped) = std::mem::take(&mut lease.queue)
            .into_iter()
            .partition::<VecDeque<_>, _>(|item| !over && item.gives() && item.value.is_some());
        lease.queue = kept;
        let settled: Vec<u64> = dropped.iter().map(|item| item.request).chain(lease.open.iter().copied()).collect();
        let held: Vec<u64> = lease.by_token.values().copied().collect();
        for number in settled {
            self.settle(number, Err(error.clone()));
        }
        for number in held {
            self.finish(number, Err(error.clone()));
            if over || self.requests.get(&number).is_none_or(|request| request.hold_for.is_zero()) {
                self.forget(number);
            }
        }
    }

    pub(crate) fn stop(&mut self, error: &Error) {
        if self.error.is_some() {
            return;
        }
        self.error = Some(error.clone());
        for key in self.leases.keys().copied().collect::<Vec<_>>() {
            self.drop_all(key, error);
        }
        for query in self.queries.drain(..) {
            _ = query.reply.send(Err(error.clone()));
        }
        self.observers.values().for_each(|(_, hint)| hint.notify_one());
        self.ended.cancel();
    }

    /// The time limit for the server's reply to a statement.
    pub(crate) fn limit(&self, ttl: Duration) -> Duration {
        let limit = call_limit(ttl);
        match self.close_at {
            Some(at) => limit.min(at.saturating_sub(now()).max(Duration::from_millis(1))),
            None => limit,
        }
    }

    /// Counts a failure and returns the time of the next attempt: now after the first failure, then after 50 ms,
    /// doubled each time up to a twentieth of the TTL, at most 1 s.
    pub(crate) fn failed(&mut self, error: &Error) -> Time {
        self.trouble = Some(error.clone());
        self.failures += 1;
        match self.failures {
            1 => now(),
            n => now() + jitter((FIRST_RETRY * (1 << (n - 2).min(10))).min(longest_pause(self.ttl))),
        }
    }

    /// Returns the error, with the last error of the connection or the renewal as its cause.
    pub(crate) fn troubled(&self, error: &Error) -> Error {
        error.because(self.trouble.as_ref().filter(|_| self.failures > 0))
    }

    // --- turns ---

    /// Returns the time of the next turn of a lease. `polls`: whether no notifications announce its grants.
    pub(crate) fn due(&self, lease: &Lease, polls: bool) -> Time {
        let mut due = lease.renew_at;
        if self.failures > 0 {
            return due;
        } else if lease.look {
            return Time::ZERO;
        }
        if lease.waiting > 0 && polls {
            due = due.min(lease.last_at + LOOK_EVERY);
        }
        let mut blocked = false; // whether an earlier request must be sent first, as in begin
        for item in &lease.queue {
            if item.gives() || !blocked {
                due = due.min(item.at);
            }
            blocked |= !item.gives() && item.at > Time::ZERO;
            if due == Time::ZERO {
                break;
            }
        }
        due
    }

    /// Makes a turn from the queued items. After a failure the first call only renews and reads the news, because the
    /// items of the failed call may have been carried out.
    pub(crate) fn begin(&mut self, key: u64) -> Option<Turn> {
        let (time, limit) = (now(), self.limit(self.leases.get(&key)?.ttl));
        let lease = self.leases.get_mut(&key)?;
        let mut silent = time < lease.renew_at && lease.waiting == 0 && !lease.look;
        // The reply to a call with requests waits for a flush to disk, which would delay releases in the same call. So
        // send releases in a call of their own: their callers can add their next requests to the following call.
        lease.apart = !lease.apart && !lease.bare && lease.queue.iter().any(|item| item.gives() && item.at <= time);
        let mut most = MOST_ITEMS;
        if lease.bare {
            most = 0;
        } else if lease.alone > 0 {
            (most, lease.alone) = (1, lease.alone - 1);
        }
        let (mut names, mut blocked, mut items, mut gone) = (0, false, Vec::new(), Vec::new());
        for item in std::mem::take(&mut lease.queue) {
            let gives = item.gives();
            if gives || !lease.apart {
                names += item.names.len();
            }
            if !gives && !lease.bare && self.requests.get(&item.request).is_none_or(Request::over) {
                gone.push(item.request); // the caller no longer waits for the result
            } else if item.at > time || items.len() >= most || names > MAX_NAMES || !gives && (blocked || lease.apart) {
                blocked |= !gives;
                lease.queue.push_back(item);
            } else {
                if !gives {
                    lease.open.insert(item.request);
                }
                silent &= gives && item.value.is_none();
                items.push(item);
            }
        }
        silent &= !items.is_empty() && lease.open.is_empty();
        lease.call += 1;
        (lease.look, lease.last_at) = (false, time);
        let call = Call {
            lease: lease.id,
            number: lease.call,
            incarnation: lease.incarnation,
            news: lease.news,
            items: texts(&items, &self.owner),
            wait: (!silent).then(|| milliseconds(limit / 2)),
        };
        for number in gone {
            self.forget(number);
        }
        Some(Turn { lease: key, call, limit, items: items.into_iter().map(Some).collect(), silent, sent: time })
    }

    /// Handles the reply of a turn, or the error of its call. `broken`: whether the connection has broken during the
    /// call, so that the call may have taken effect.
    pub(crate) fn ended(&mut self, mut turn: Turn, result: Result<Vec<Row>, Error>, broken: bool) {
        self.expire();
        let stopped = self.error.is_some();
        let error = match result {
            Ok(rows) => return self.reply(turn, &rows),
            Err(error) => error,
        };
        let renew_at = if broken || stopped { Time::ZERO } else { self.failed(&error) };
        let mut items: Vec<Item> = std::mem::take(&mut turn.items).into_iter().flatten().collect();
        match self.leases.get_mut(&turn.lease) {
            Some(lease) if !lease.over && !stopped => {
                lease.bare = true;
                if broken {
                    for item in &mut items {
                        (item.again, item.lost) = (true, true);
                    }
                } else {
                    lease.renew_at = renew_at;
                    if error.passes() {
                        for item in &mut items {
                            item.at = now() + PAUSE;
                        }
                    } else if items.len() == 1 {
                        lease.bare = false;
                        return self.refused(turn.lease, items.remove(0), &error);
                    } else {
                        lease.alone = items.len();
                    }
                }
            }
            _ => {}
        }
        self.requeue(turn.lease, items);
    }

    /// Handles a call that was not carried out, because its prepared statement could not be used.
    pub(crate) fn unsent(&mut self, turn: Turn) {
        let key = turn.lease;
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.look = true;
        }
        self.requeue(key, turn.items.into_iter().flatten().collect());
    }

    /// Puts items in front of all others. Forgets the items of a lease that has ended.
    fn requeue(&mut self, key: u64, items: Vec<Item>) {
        match self.leases.get_mut(&key) {
            Some(lease) if !lease.over => items.into_iter().rev().for_each(|item| lease.queue.push_front(item)),
            _ => items.iter().for_each(|item| self.forget(item.request)),
        }
    }

    /// Handles a reply: the row of the lease, the results of the items, and the news.
    fn reply(&mut self, mut turn: Turn, rows: &[Row]) {
        let (key, head) = (turn.lease, &rows[0]);
        let mut items = std::mem::take(&mut turn.items);
        let open = self.leases.get(&key).is_some_and(|lease| !lease.over);
        if open && head.event == "gone" {
            let reason = head.reason.as_deref().unwrap_or_default();
            self.lose(key, &Error::lost(format!("the server has ended the lease: {reason}")));
        }
        if !open || head.event == "gone" {
            return self.requeue(key, items.into_iter().flatten().collect());
        }
        self.head(&turn, head);
        let mut there: HashMap<i64, usize> = HashMap::new(); // number of names in the reply, by token
        let mut again = Vec::new();
        for row in &rows[1..] {
            let token = row.token.unwrap_or(0);
            *there.entry(token).or_default() += 1;
            let Some(item) = row.item else {
                self.news(key, row, token);
                continue;
            };
            let place = usize::try_from(item - 1).ok().and_then(|n| items.get_mut(n));
            if let Some(item) = place.and_then(Option::take) {
                *there.entry(token).or_default() += item.names.len();
                if let Some(item) = self.result(key, item, row, token) {
                    again.push(item);
                }
            }
        }
        // Items without a row were not carried out, because the server took this call for an old one.
        again.extend(items.into_iter().flatten());
        self.requeue(key, again);
        if head.complete == Some(true) {
            self.compare(key, &there);
        }
        if head.complete.is_some() {
            self.ask_again(key);
        }
    }

    /// Handles the row of the lease. The deadline is the time at which the call was sent, plus the validity that the
    /// server has returned, minus the margin. A reply never shortens the deadline.
    fn head(&mut self, turn: &Turn, head: &Row) {
        let Some(lease) = self.leases.get_mut(&turn.lease) else { return };
        if head.incarnation.is_some() {
            (lease.incarnation, lease.news, lease.channel) = (head.incarnation, head.news, head.channel.clone());
            // Without "complete", the server withholds the news until they are durable.
            lease.bare &= head.complete.is_none();
            lease.look |= head.complete.is_none();
        }
        if let Some(validity) = head.validity_ms.map(from_ms) {
            lease.end = lease.end.max(turn.sent + validity.min(lease.ttl).saturating_sub(margin(lease.ttl)));
            let third = (lease.ttl / 3).min((validity / 3).max(longest_pause(lease.ttl)));
            lease.renew_at = turn.sent + jitter(third);
            self.failures = 0;
        } else if !turn.silent && lease.renew_at <= now() {
            let again = self.failed(&Error::new(Kind::Unavailable, "the lease is not durable yet"));
            if let Some(lease) = self.leases.get_mut(&turn.lease) {
                lease.renew_at = again;
            }
        }
    }

    /// Handles the result of an item. Returns the item if it must be sent again.
    fn result(&mut self, key: u64, mut item: Item, row: &Row, token: i64) -> Option<Item> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match row.event.as_str() {
            "error" => {
                let error = Error::server(
                    &text(&row.sqlstate),
                    &text(&row.message),
                    row.detail.as_deref(),
                    row.hint.as_deref(),
                );
                self.refused(key, item, &error);
            }
            "pending" if item.gives() || item.action == "proclaim" => {
                item.again = true;
                if let Some(lease) = self.leases.get_mut(&key) {
                    lease.look = true;
                }
                return Some(item);
            }
            "pending" => {
                if let Some(request) = self.requests.get_mut(&item.request) {
                    request.pending = true;
                }
            }
            event if item.gives() => self.gave_back(&item, event == "released"),
            "proclaimed" => self.settle(item.request, Ok(())),
            "not_held" => self.settle(item.request, Err(Error::lost("this candidate does not lead any more"))),
            "not_granted" => self.settle(item.request, Err(Error::new(Kind::NotAcquired, "held by somebody else"))),
            event => self.adopt(item.request, token, event == "granted"),
        }
        None
    }

    /// Handles the error of one item.
    fn refused(&mut self, key: u64, mut item: Item, error: &Error) {
        let too_long = item.value.is_some() && error.sqlstate() == Some("53400"); // hold_for exceeds max_hold_for
        if error.passes() || item.gives() && error.kind() == Kind::Limit && !too_long {
            item.at = now() + PAUSE;
            self.requeue(key, vec![item]);
        } else if item.gives() && item.value.is_some() {
            if let Some(request) = self.requests.get_mut(&item.request) {
                request.release_error = Some(error.clone());
            }
            (item.value, item.again) = (None, false); // release it without hold_for
            self.requeue(key, vec![item]);
        } else if item.gives() {
            // Keep retrying: the error may be a revoked privilege, which may be granted again.
            if let Some(request) = self.requests.get_mut(&item.request) {
                request.release_error = Some(error.of_kind(Kind::Unknown));
                self.gave_back(&item, true);
            }
            if let Some(lease) = self.leases.get_mut(&key) {
                let at = now() + lease.ttl / 3;
                lease.queue.push_back(Item { request: 0, at, ..item });
            }
        } else {
            let what = self.requests.get(&item.request).map(Request::what).unwrap_or_default();
            self.settle(item.request, Err(error.about(&what)));
        }
    }

    /// Handles the result of a release. If a repeated one finds nothing held, an earlier copy has released the hold.
    fn gave_back(&mut self, item: &Item, done: bool) {
        let Some(request) = self.requests.get_mut(&item.request) else { return };
        if !done && !item.again {
            request.release_error = Some(Error::lost("the server has ended it"));
        } else if !done && item.value.is_some() && item.lost {
            request.release_error =
                Some(Error::new(Kind::Unknown, "the release may have been applied without hold_for"));
        }
        request.giving = request.giving.saturating_sub(1);
        if request.giving == 0 {
            self.forget(item.request);
        }
    }

    /// Handles a row that is not the result of an item: a request whose reply was lost or pending, a place that was
    /// granted, the end of a hold, or a ghost, which is a grant or place without a hold.
    fn news(&mut self, key: u64, row: &Row, token: i64) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let (known, granted, evicted) =
            (lease.by_token.get(&token).copied(), row.event == "granted", row.event == "evicted");
        let number = row.owner.as_deref().and_then(|owner| owner.strip_prefix(self.owner.as_str()));
        if let Some(number) = known {
            let Some(request) = self.requests.get_mut(&number) else { return };
            if row.event == "lost" {
                let reason = row.reason.as_deref().unwrap_or_default();
                self.finish(number, Err(Error::lost(format!("the server has ended it: {reason}"))));
            } else if evicted {
                // The row may be repeated, or may concern another name of the hold.
                request.evicted |= matches!(request.phase, Phase::Held);
                self.finish(number, Err(Error::lost("it was evicted")));
            } else if granted && request.queued {
                self.granted(number);
            }
        } else if row.event == "lost" {
        } else if let Some(number) = number.and_then(|n| n.parse().ok()).filter(|n| lease.open.contains(n)) {
            lease.queue.retain(|item| item.request != number || item.gives());
            if evicted {
                self.finish(number, Err(Error::lost("it was evicted"))); // evicted before its grant was known
            }
            self.adopt(number, token, granted);
        } else if number.is_some() {
            let action = if row.kind.as_deref() == Some("election") { "resign" } else { "release" };
            let names = row.name.iter().cloned().collect();
            lease.queue.push_back(Item::new(action, names, Some(token.to_string()), None));
        }
    }

    /// Handles a complete reply: ends the holds and places that do not appear in it.
    fn compare(&mut self, key: u64, there: &HashMap<i64, usize>) {
        let Some(lease) = self.leases.get(&key) else { return };
        for (token, number) in lease.by_token.clone() {
            let names = self.requests.get(&number).map_or(0, |request| request.item.names.len());
            if there.get(&token).is_none_or(|there| *there < names) {
                self.finish(number, Err(Error::lost("the server has ended it")));
            }
        }
    }

    /// Called after a reply with all news: sends the pending requests again that did not appear in it, because they
    /// were not carried out, or have ended.
    fn ask_again(&mut self, key: u64) {
        let Some(lease) = self.leases.get(&key) else { return };
        let mut again = Vec::new();
        for number in &lease.open {
            if let Some(request) = self.requests.get_mut(number).filter(|request| request.pending) {
                request.pending = false;
                again.push(request.item.clone());
            }
        }
        self.requeue(key, again);
    }

    // --- the life of a hold ---

    /// Handles the grant or the place of a request. Releases it if the application no longer waits for it.
    fn adopt(&mut self, number: u64, token: i64, granted: bool) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let Some(lease) = self.leases.get_mut(&request.lease) else { return };
        request.token = token;
        lease.open.remove(&number);
        lease.by_token.insert(token, number);
        if request.over() {
            self.give_back(number);
        } else if granted {
            self.granted(number);
        } else {
            request.queued = true;
            lease.waiting += 1;
            if request.impatient {
                self.finish(number, Err(Error::new(Kind::NotAcquired, "held by somebody else")));
            }
        }
    }

    fn granted(&mut self, number: u64) {
        self.expire();
        self.leave_queue(number);
        let Some(request) = self.requests.get_mut(&number).filter(|request| !request.over()) else { return };
        if let Some(lease) = self.leases.get_mut(&request.lease) {
            lease.end = lease.deadline(); // the server reports a grant only when it and its lease are durable
        }
        request.phase = Phase::Held;
        request.changed.notify_one();
        self.told += 1;
    }

    fn leave_queue(&mut self, number: u64) {
        if let Some(request) = self.requests.get_mut(&number).filter(|request| request.queued) {
            request.queued = false;
            if let Some(lease) = self.leases.get_mut(&request.lease) {
                (lease.waiting, lease.waited_at) = (lease.waiting.saturating_sub(1), now());
            }
        }
    }

    /// Ends a request or a hold, and releases its grant or place on the server. An evicted hold is not released before
    /// the application releases it. If no reply has arrived yet, the release follows after the reply.
    pub(crate) fn finish(&mut self, number: u64, result: Result<(), Error>) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| !request.over()) else { return };
        #[cfg(feature = "tracing")]
        result.as_ref().err().map(|error| request.reason.set(error.clone()));
        request.phase = Phase::Over(result);
        request.changed.notify_one();
        request.ended.cancel();
        let (lease, token, evicted) = (request.lease, request.token, request.evicted);
        self.told += 1;
        self.leave_queue(number);
        let known = self.leases.get(&lease).and_then(|lease| lease.by_token.get(&token)) == Some(&number);
        if known && !evicted {
            self.give_back(number);
        }
    }

    /// Ends a hold of which the server has neither a grant nor a place.
    fn settle(&mut self, number: u64, result: Result<(), Error>) {
        self.finish(number, result);
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| !request.done) else { return };
        request.done = true;
        request.changed.notify_one();
        if let Some(lease) = self.leases.get_mut(&request.lease) {
            lease.open.remove(&number);
            if lease.by_token.get(&request.token) == Some(&number) {
                lease.by_token.remove(&request.token);
            }
        }
        if request.left {
            self.requests.remove(&number);
        }
    }

    /// Queues the release of a hold or a place, name by name.
    fn give_back(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| request.giving == 0) else { return };
        let Some(lease) = self.leases.get_mut(&request.lease).filter(|lease| !lease.over) else { return };
        if self.error.is_some() {
            return;
        }
        let action = if request.is_term() { "resign" } else { "release" };
        let hold_for = (!request.hold_for.is_zero()).then(|| milliseconds(request.hold_for));
        request.giving = request.item.names.len();
        for name in request.item.names.iter() {
            let item = Item::new(action, Arc::new([name.clone()]), Some(request.token.to_string()), hold_for.clone());
            lease.queue.push_back(Item { request: number, ..item });
        }
    }
}

/// Returns the items as the argument of `lease_sync`: six texts for each name.
fn texts(items: &[Item], owner: &str) -> Option<Vec<Option<String>>> {
    let mut texts = Vec::new();
    for (n, item) in items.iter().enumerate() {
        for name in item.names.iter() {
            texts.push(Some((n + 1).to_string()));
            texts.push(Some(item.action.to_owned()));
            texts.push(Some(name.clone()));
            texts.push(item.number.clone());
            texts.push((!item.gives()).then(|| format!("{owner}{}", item.request)));
            texts.push(item.value.clone());
        }
    }
    (!texts.is_empty()).then_some(texts)
}

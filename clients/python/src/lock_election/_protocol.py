"""The state machine of a session (docs/reference/lease-sync.md), for asyncio and for threads.

The state machine does no I/O and has no threads. A *job* is a generator that uses the connection and yields the events
to wait for. A session runs one job at a time, which next_job() selects. No method blocks. Times are seconds of the
session's clock.
"""

from __future__ import annotations

import contextvars
import hashlib
import itertools
import logging
import os
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Generator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union
from typing import Protocol as Shape

from . import _errors as errors
from ._errors import Error

log = logging.getLogger("lock_election")

NEVER = float("inf")
ITEMS, NAMES = 128, 1000  # maximum numbers of items and of names in one call
OWNER_BYTES = 200
LISTEN_PATIENCE = 0.3
LISTEN_ON = 1.0  # seconds for which a session keeps listening after the last wait
PAUSE = 0.1
RETRY_FIRST = 0.05
LOOK_INTERVAL = 5.0
POLL_INTERVAL = 0.25
MAX_SLICE = 1.0  # maximum seconds between checks of the clock, because timers do not count time in suspend

Rows = List[Sequence[Optional[str]]]
Params = Sequence[Union[str, List[Optional[str]], None]]  # a list is an array of texts
Wait = Tuple[int, bool, bool, float]  # descriptor (-1 = none), wait for reading, wait for writing, end of the wait
Job = Generator[Wait, bool, Any]  # receives True if the descriptor is ready, False if it must check the clock


class Broken(Exception):
    """The connection has broken. The statement that was running may have taken effect."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error))
        self.error = error


class Wire(Shape):
    """The connection. Every wait also ends at the limit of a close()."""

    @property
    def fd(self) -> int: ...

    def connect(self, host_limit: Optional[float]) -> Generator[Wait, bool, str]:
        """Closes the old connection and makes a new one. Returns the process id from BackendKeyData. Raises Broken.

        host_limit: seconds for each host; None = the default.
        """

    def prepare(self, name: str, sql: str, until: float) -> Job:
        """Prepares a statement. Raises Broken, or an Error of the server."""

    def query(self, sql: str, params: Optional[Params], until: float, name: str = "") -> Generator[Wait, bool, Rows]:
        """Runs a statement and returns its rows. Raises Broken, also if there is no reply by `until`, or an Error.

        params: None = sql may contain several statements. name: the prepared statement to run instead of sql.
        """

    def take_notifications(self) -> None:
        """Calls notified() for each notification that has arrived while no job used the connection. Raises Broken."""

    def avoid_host(self) -> None:
        """Moves the host of this connection to the end of the list, so that it is tried last."""

    def close(self) -> None:
        """Closes the connection."""

    def shut(self) -> None:
        """Ends another thread's wait for the server."""


# The state of a claim, as the application sees it.
WAITING, HELD, OVER, LOST = "waiting", "held", "over", "lost"
# The phase of a claim on the server. SENT = no reply yet, PENDING = not durable yet, DONE = no grant or place left.
NEW, SENT, PENDING, QUEUED, GRANTED, DONE = "new", "sent", "pending", "queued", "granted", "done"
# The state of a lease: NEW, LIVE or ENDED.
LIVE, ENDED = "live", "ended"


@dataclass(eq=False)
class Request:
    """An object that callers wait for. Each caller adds a function that wakes it up at the object's next change."""

    wakers: List[Callable[[], object]] = field(default_factory=list, init=False, repr=False)

    def wake(self) -> None:
        wakers, self.wakers = self.wakers, []
        for waker in wakers:
            waker()


@dataclass(eq=False)
class Lease(Request):
    """The session's own lease, or the lease of all holds with some other TTL."""

    ttl: float
    state: str = NEW
    id: str = ""
    certain: bool = False  # whether any reply had a validity
    deadline: float = -NEVER  # the latest deadline of all confirmed renewals
    renew_at: float = NEVER
    poll_at: float = NEVER  # time at which a call is due for other reasons than a renewal
    hinted: bool = False  # whether a notification has arrived since the last call was sent
    number: int = 0  # number of the last call
    incarnation: Optional[str] = None  # of the newest reply, like the next two fields
    news: Optional[str] = None
    channel: Optional[str] = None
    apart: bool = False  # whether the last call had releases and left the requests to the next call
    unsure: bool = False  # whether a call got no reply, so that the news must be read before requests are sent again
    trouble: bool = False  # whether the server has rejected the last call as a whole
    claims: Dict[str, Claim] = field(default_factory=dict)  # claims that are not DONE, by owner text
    asks: Dict[Claim, None] = field(default_factory=dict)  # requests, in order; each stays until a reply has its result
    back: Dict[Claim, None] = field(default_factory=dict)  # claims to be released
    ghosts: Dict[Tuple[str, str, str], None] = field(default_factory=dict)  # unwanted grants: kind, name, token
    ops: Dict[Op, None] = field(default_factory=dict)
    queued: Dict[Claim, None] = field(default_factory=dict)  # claims in phase QUEUED that are still wanted
    pending: Dict[Claim, None] = field(default_factory=dict)
    flight: Dict[int, Tuple[Any, str]] = field(default_factory=dict)  # items of the current call: request and name

    @property
    def call(self) -> float:
        """The limit of a statement, in seconds."""
        return min(max(self.ttl / 4, 0.2), 10.0)

    @property
    def margin(self) -> float:
        return min(self.ttl / 20, 1.0)

    @property
    def longest_pause(self) -> float:
        """The longest pause between two failed renewals, in seconds."""
        return max(self.margin, RETRY_FIRST)

    def renewed(self, sent: float, validity: float) -> None:
        """Records a renewal that was sent at that time.

        validity: seconds for which the lease stays valid even if the server crashes. It can be less than the TTL, for
        example after a restart.
        """
        self.deadline = max(self.deadline, sent + validity - self.margin)
        self.renew_at = sent + jitter(min(max(validity / 3, self.longest_pause), self.ttl / 3))


@dataclass(eq=False)
class Claim(Request):
    """A request for a lock, a permit, several locks or a term, from the call until its release."""

    kind: str  # lock, shared, permit, candidate
    names: Tuple[str, ...]
    lease: Lease
    attempt: bool
    last: Optional[str]  # number of permits, or the candidate's text
    owner: str
    state: str = WAITING
    phase: str = NEW
    token: int = 0
    alone: bool = False  # sent in a separate call, because a call with other items was rejected as a whole
    overdue: bool = False  # its wait has timed out, so only a grant in the first reply counts
    error: Optional[Error] = None
    evicted: bool = False  # LOST, and not released yet
    hold_for: float = 0.0
    left: List[str] = field(default_factory=list)  # names that are not released yet
    sent: int = 0  # number of times that the release was sent
    released: Optional[bool] = None
    since: float = 0.0  # time of the request, then of the grant
    context: Optional[contextvars.Context] = None  # of the caller, for on_event
    ended: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        kind = {"shared": "lock", "candidate": "election"}.get(self.kind, self.kind)
        return f"{kind} {', '.join(map(repr, self.names))}"

    def time_left(self, now: float) -> float:
        return max(self.lease.deadline - now, 0.0) if self.state is HELD else 0.0


@dataclass(eq=False)
class Op(Request):
    """Any other item, for one caller: a proclaim, or a release that only tests whether its hold_for is allowed."""

    item: Tuple[Optional[str], ...]  # action, name, number, owner, value
    sent: bool = False
    alone: bool = False
    answer: Any = None  # the event of its row, or an Error


@dataclass(eq=False)
class Call(Request):
    """A read-only statement for one caller."""

    sql: str
    params: Sequence[str]
    answer: Any = None  # the rows, or an Error


class Leader(NamedTuple):
    """The leader of an election: its text and its term."""

    value: str
    term: int


class Event(NamedTuple):
    """A change, for on_event.

    kind: acquired, not_acquired, released or lost; of the session: suspended, resumed, or ended if its lease is lost.
    mode: lock, shared, permit, election or session.
    names: the names of the locks, or of the election; empty for a session.
    token: the hold's token; 0 = none.
    time: seconds since the epoch, like time.time().
    seconds: how long the caller has waited, the lock was held, or the session was suspended.
    error: the reason of not_acquired, lost, suspended or ended; otherwise None.
    """

    kind: str
    mode: str
    names: Tuple[str, ...]
    token: int
    time: float
    seconds: float
    error: Optional[Error]


END: Any = object()  # tells an observer that no more leaders will follow


@dataclass(eq=False)
class Observer:
    election: str
    tell: Callable[[Any], object]  # a Leader, None or END
    after: Optional[int] = None  # the last change that was reported; None = start with the current leader
    last: Any = END  # the last leader that was reported; END = none yet
    due: float = 0.0

    @property
    def channel(self) -> str:
        return "le_" + hashlib.sha256(b"election " + self.election.encode()).hexdigest()[:32]


# Finds the schema of the extension or of the portable edition. The portable edition works only in READ COMMITTED, so
# the statement makes that the default if the backend is the session's own, and not one of a pooler.
_LEARN = (
    "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.current_database(),"
    " pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),"
    " pg_catalog.current_setting('lock_election.notify', true)"
    " FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE("
    "(SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election'),"
    " (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {pid}"
    " AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL"
    " AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL"
    " THEN NULL ELSE p.pronamespace END"
    " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election'"
    " AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"
)
# The validity in whole milliseconds, because the texts of intervals and of floats depend on settings.
_SYNC = (
    "SELECT item, event, token, name, owner, kind, reason, sqlstate, message, hint,"
    " pg_catalog.floor(pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000)::bigint,"
    " incarnation, news, complete, channel FROM {s}.lease_sync($1, $2, $3, $4, $5::pg_catalog.text[], $6::interval)"
)
_CHANGES = "SELECT change, term, how, candidate FROM {s}.election_history($1, $2) ORDER BY change LIMIT 100"
# The last change, or the current term itself if the history no longer has its changes.
_PRESENT = (
    "SELECT change, term, how, candidate FROM {s}.election_history($1,"
    " COALESCE((SELECT term FROM {s}.current_leader($1)), 0))"
    " UNION ALL SELECT 0, term, 'elected', candidate FROM {s}.current_leader($1) ORDER BY 1 DESC LIMIT 1"
)


def ms(seconds: float) -> str:
    """Returns the seconds as the text of an interval."""
    return f"{seconds * 1000:.0f} ms"


def jitter(seconds: float) -> float:
    return seconds * random.uniform(0.9, 1.1)


class Protocol(Request):
    """The state machine of one session. It is the Request that callers of close() wait for: it changes at its end."""

    wire: Wire

    def __init__(self, ttl: float, name: str, clock: Callable[[], float]) -> None:
        super().__init__()
        self.clock = clock
        self.pid = os.getpid()
        self.ttl = ttl
        digits = os.urandom(8).hex()
        self.marker = name.encode()[:OWNER_BYTES].decode(errors="ignore") + "#" + digits
        self.numbers = itertools.count(1)
        self.main = Lease(ttl)
        self.leases: Dict[float, Lease] = {ttl: self.main}
        self.revoke: Deque[str] = deque()
        self.by_token: Dict[int, Claim] = {}
        self.dropped: Deque[Claim] = deque()  # filled by finalizers, which run in any thread
        self.calls: Deque[Call] = deque()
        self.observers: List[Observer] = []
        # state of the connection
        self.schema = self.notify = self.told_pid = self.prepared = ""
        self.connected = self.pooled = self.heard = False
        self.listens: Optional[bool] = None  # whether LISTEN works; None = not tested yet
        self.test_channel = "le_self_" + digits
        self.listening: Set[str] = set()
        self.unlisten_at = NEVER
        self.failures = 0  # failed connections and renewals since the last successful renewal
        self.connect_at = self.pause_until = 0.0
        # state of the session
        self.turned = self.is_turn = False  # whether the last job was a turn; whether the job of next_job() is one
        self.opened = self.ending = self.finished = False
        self.end_error: Optional[Error] = None  # the reason why the session has ended
        self.trouble: Optional[Error] = None  # last error of the connection
        self.close_until: Optional[float] = None
        self.suspended_at: Optional[float] = None  # time of the last suspension that was reported to on_event
        self.report: Optional[Callable[[Event, contextvars.Context], object]] = None  # calls on_event later

    # --- the application's side ------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if self.forked or self.end_error is not None or self.close_until is not None or self.main.state is not LIVE:
            return "ended"
        return "connected" if self.connected and self.failures == 0 else "suspended"

    @property
    def call(self) -> float:
        """The limit of a statement, in seconds: the shortest of all leases."""
        return min(lease.call for lease in self.leases.values())

    def time_left(self, claim: Claim) -> float:
        """Returns the seconds until a hold's deadline; 0.0 in a forked child, which holds nothing."""
        return 0.0 if self.forked else claim.time_left(self.clock())

    @property
    def forked(self) -> bool:
        """Whether this is a forked child, which has no session and must not touch that of its parent."""
        return os.getpid() != self.pid

    def check_process(self) -> None:
        if self.forked:
            raise errors.InvalidRequest("this session belongs to the parent process: open one after the fork")

    def check_closed(self) -> None:
        if self.close_until is not None:
            raise errors.Canceled("the session is closed")

    def check_open(self) -> None:
        self.tick()
        self.check_closed()
        if self.end_error is not None:
            raise errors.LockLost(f"the session has ended: {self.end_error}", self.end_error.sqlstate)

    def ask(self, kind: str, names: Sequence[str], ttl: Optional[float], attempt: bool, last: Optional[str]) -> Claim:
        self.check_open()
        lease = self.leases.setdefault(ttl or self.ttl, Lease(ttl or self.ttl))
        claim = Claim(kind, tuple(names), lease, attempt, last, f"{self.marker}-{next(self.numbers)}")
        claim.since, claim.context = self.clock(), contextvars.copy_context() if self.report else None
        lease.claims[claim.owner] = claim
        lease.asks[claim] = None
        return claim

    def over(self, claim: Claim, error: Error) -> None:
        """Ends a wait or a hold, and releases its grant or place on the server. If a reply is outstanding, releases it
        after that reply.
        """
        if claim.evicted and claim.phase is GRANTED:
            claim.evicted = False
            self._give_back(claim)
        if claim.state not in (WAITING, HELD):
            return
        held = claim.state is HELD
        claim.state, claim.error = OVER, error
        claim.lease.queued.pop(claim, None)
        if claim.phase is NEW:
            self._done(claim)
        elif claim.phase in (QUEUED, GRANTED):
            self._give_back(claim)
        if held:
            claim.ended()
        self._report("released" if held else "not_acquired", claim, None if held else error)
        claim.wake()

    def release(self, claim: Claim, hold_for: float = 0.0) -> None:
        self.tick()
        if claim.state is HELD:
            claim.hold_for = hold_for
        self.over(claim, errors.Canceled("it was released"))

    def _evicted(self, claim: Claim, token: int) -> None:
        """Reports an evicted hold to the application as lost. Releases it on the server after the application has
        released it.

        A reply contains one such row for each name of the hold.
        """
        if claim.evicted:
            return
        error = errors.LockLost("it was evicted", "LE001")
        if claim.state is HELD:
            claim.state, claim.error, claim.evicted, claim.released = LOST, error, True, False
            log.warning("lost %s: %s", claim, error)
            claim.ended()
            self._report("lost", claim, error)
        elif claim.token == 0:
            self.over(claim, error)  # the hold was evicted before its grant was known
            self._placed(claim, token, True)
        else:
            self.over(claim, error)

    def lost(self, claim: Claim, error: Error) -> None:
        """Ends a claim of which the server has lost all names, or some of them."""
        if claim.evicted and len(claim.names) > 1 and claim.lease.state is LIVE:
            return  # its other names stay held until the application releases the hold
        held = claim.state is HELD
        if claim.state in (WAITING, HELD):
            claim.state, claim.error = LOST, error
            self._report("lost" if held else "not_acquired", claim, error)
        if held:
            log.warning("lost %s: %s", claim, error)
            claim.ended()
        claim.released = False
        if len(claim.names) > 1 and claim.lease.state is LIVE:
            claim.lease.queued.pop(claim, None)
            self._give_back(claim)
            claim.wake()
        else:
            self._done(claim)

    def tick(self) -> None:
        """Ends the leases whose deadline has passed, and releases the holds that the program dropped unreleased."""
        while self.dropped:
            self.over(self.dropped.popleft(), errors.Canceled("the program has forgotten it"))
        now = self.clock()
        for lease in list(self.leases.values()):
            if lease.state is LIVE and now >= lease.deadline:
                self.end_lease(lease, errors.LockLost("the lease could not be renewed in time" + self.why()))

    def end_lease(self, lease: Lease, error: Error, gone: bool = False) -> None:
        """Ends a lease and all its claims; the session's own lease ends the session.

        gone: whether the server has ended the lease already, so that it needs no revocation.
        """
        if lease.state is LIVE and not gone:
            self.revoke.append(lease.id)
        lease.state, lease.renew_at, lease.poll_at = ENDED, NEVER, NEVER
        if lease is not self.main:
            self.leases.pop(lease.ttl, None)
        for claim in list(lease.claims.values()):
            self.lost(claim, error)
        for op in lease.ops:
            self._answer(op, error)
        lease.ops.clear()
        if lease is self.main and self.end_error is None:
            for other in list(self.leases.values()):
                if other is not lease:
                    self.end_lease(other, error)
            self.end_error = error
            self._report("ended", None, error)
            lease.wake()

    def reopen(self) -> None:
        """Prepares a new lease if the session has ended."""
        self.tick()
        self.check_closed()
        if self.end_error is not None:
            if self.finished:
                raise Error(str(self.end_error))
            self.end_error = None
            self.main = Lease(self.ttl)
            self.leases = {self.ttl: self.main}

    def close(self, limit: Optional[float]) -> None:
        if self.close_until is None:
            self.close_until = self.clock() + (self.call if limit is None else limit)
            for claim in self._claims():
                self.over(claim, errors.Canceled("the session was closed"))
            self.main.wake()

    def forget(self, limit: float) -> None:
        """Ends all holds and requests without waking up any caller: the loop of the callers no longer runs."""
        self.close_until, self.finished, self.connected = self.clock() + limit, True, False
        self.report = None
        for claim in self._claims():
            if claim.state in (WAITING, HELD):
                claim.state, claim.error = OVER, errors.Canceled("the process ends")

    def _claims(self) -> List[Claim]:
        return [claim for lease in self.leases.values() for claim in lease.claims.values()]

    def notified(self, channel: str) -> None:
        """Handles a notification that a lock was granted to a lease, or an election has changed. A call reads more."""
        self.heard = self.heard or channel == self.test_channel
        for lease in self.leases.values():
            if lease.channel == channel:
                lease.hinted = True  # may concern a request of the current call, whose reply is not read yet
                lease.poll_at = 0.0 if lease.queued else lease.poll_at
        self._observe_soon({channel})

    def _observe_soon(self, channels: Set[str]) -> None:
        for observer in self.observers:
            if observer.channel in channels:
                observer.due = 0.0

    def observe(self, observer: Observer) -> None:
        self.check_closed()
        self.observers.append(observer)

    def unobserve(self, observer: Observer) -> None:
        if observer in self.observers:
            self.observers.remove(observer)
            observer.tell(END)

    def operate(self, lease: Lease, *item: Optional[str]) -> Op:
        self.check_closed()
        op = Op(item)
        lease.ops[op] = None
        return op

    def read(self, sql: str, *params: str) -> Call:
        self.check_closed()
        call = Call(sql, params)
        self.calls.append(call)
        return call

    @staticmethod
    def _answer(request: Any, answer: object) -> None:
        request.answer = answer
        request.wake()

    def _report(self, kind: str, claim: Optional[Claim] = None, error: Optional[Error] = None) -> None:
        """Reports a change of the claim, or of the session, to on_event."""
        if self.report is None:
            return
        now = self.clock()
        of: Tuple[str, Tuple[str, ...], int] = "session", (), 0
        if claim is None:
            since = now if self.suspended_at is None else self.suspended_at
            self.suspended_at = now if kind == "suspended" else None
        else:
            of = "election" if claim.kind == "candidate" else claim.kind, claim.names, claim.token
            since, claim.since = claim.since, now
        event = Event(kind, *of, time.time(), now - since, error)
        self.report(event, (claim and claim.context) or contextvars.Context())

    def why(self) -> str:
        return f": {self.trouble}" if self.trouble is not None and not self.connected else ""

    # --- the next job ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        return min((lease.deadline for lease in self.leases.values() if lease.state is LIVE), default=NEVER)

    def next_job(self) -> Optional[Job]:
        """Returns the most urgent job for the connection, or None. The job starts when it is run."""
        now = self.clock()
        job: Optional[Job] = None
        self.is_turn = False
        if self.ending:
            return None
        if self.close_until is not None or (self.end_error is not None and not self.opened):
            return self._finish()
        if not self.connected:
            job = self._connect() if now >= self.connect_at else None
        elif any(lease.renew_at <= now for lease in self.leases.values()):
            self.is_turn = True
            job = self._turn(min(self.leases.values(), key=lambda lease: lease.renew_at))
        elif now >= self.pause_until:
            job = (self._other(now) if self.turned else None) or self._asked(now) or self._other(now)
        return None if job is None else self._guarded(job, self.is_turn)

    def is_quiet(self) -> bool:
        """Whether only renewals are left to do."""
        if self.calls or self.revoke or self.observers or self.listening or len(self.leases) > 1:
            return False
        lease = self.main
        busy = lease.asks or lease.back or lease.ops or lease.ghosts or lease.queued or lease.pending
        return self.connected and lease.state is LIVE and not busy and lease.poll_at == NEVER and lease.renew_at > 0.0

    def _asked(self, now: float) -> Optional[Job]:
        # Leases with releases go first, because others may be waiting for these locks.
        for lease in sorted(self.leases.values(), key=lambda lease: not (lease.back or lease.ghosts)):
            if lease.state is NEW and (lease is self.main or lease.asks):
                return self._grant(lease)
            if lease.state is LIVE and (
                lease.asks or lease.back or lease.ops or lease.ghosts or now >= lease.poll_at
            ):  # fmt: skip
                self.is_turn = True
                return self._turn(lease)
        return None

    def _other(self, now: float) -> Optional[Job]:
        wanted = self._wanted() if self.listening or self.observers or self._waits() else set()
        if self.listens is not False and wanted - self.listening:
            return self._listen(wanted - self.listening)
        for observer in self.observers:
            if now >= observer.due:
                return self._observe(observer)
        if self.calls:
            return self._call()
        if self.revoke:
            return self._revoke()
        if not self.listening - wanted:
            self.unlisten_at = NEVER
        elif self.unlisten_at == NEVER:
            self.unlisten_at = now + LISTEN_ON
        elif now >= self.unlisten_at:
            return self._unlisten(self.listening - wanted)
        return None

    def _waits(self) -> bool:
        return any(lease.queued for lease in self.leases.values())

    def _wanted(self) -> Set[str]:
        """Returns the channels that the session needs to listen on."""
        channels = {lease.channel for lease in self.leases.values() if lease.queued and lease.channel is not None}
        return channels | {observer.channel for observer in self.observers}

    def due(self) -> float:
        """Returns the time of the next job, if there is none now and no new request arrives."""
        if not self.connected:
            due = self.connect_at
        else:
            due = 0.0 if self.calls or self.revoke else self.unlisten_at
            for lease in self.leases.values():
                due = min(due, 0.0 if lease.asks or lease.back or lease.ops or lease.state is NEW else lease.poll_at)
            for observer in self.observers:
                due = min(due, observer.due)
            due = min([max(due, self.pause_until), *(lease.renew_at for lease in self.leases.values())])
        return min(due, self.watch())

    def watch(self) -> float:
        """Returns the time of the next clock check, which is due even while a job runs."""
        watch = self.next_deadline()
        if any(lease.claims for lease in self.leases.values()):
            watch = min(watch, self.clock() + MAX_SLICE)
        return watch if self.close_until is None else min(watch, self.close_until)

    def _guarded(self, job: Job, is_turn: bool) -> Job:
        self.turned = is_turn
        try:
            yield from job
        except Broken as broken:
            self.broken(broken.error)

    # --- statements -------------------------------------------------------------------------------------------------

    def _query(self, sql: str, *params: Optional[str], simple: bool = False) -> Generator[Wait, bool, Rows]:
        try:
            return (yield from self._send(sql, None if simple else params, self.call))
        except Error as error:
            if not self.opened or error.sqlstate not in ("3F000", "42883") or "{s}" not in sql:
                raise
        # The schema was renamed, or the extension was created again in another schema.
        yield from self._learn()
        return (yield from self._send(sql, None if simple else params, self.call))

    def _send(self, sql: str, params: Optional[Params], limit: float, name: str = "") -> Generator[Wait, bool, Rows]:
        try:
            return (yield from self.wire.query(sql.replace("{s}", self.schema), params, self.clock() + limit, name))
        except Error as error:
            if errors.breaks(error):
                raise Broken(error) from error
            self.trouble = error
            raise

    def _sync(self, lease: Lease, items: List[Optional[str]], wait: Optional[str]) -> Generator[Wait, bool, Rows]:
        """Calls lease_sync() and returns the rows of the reply."""
        learned = False
        while True:
            lease.number += 1
            params = (lease.id, str(lease.number), lease.incarnation, lease.news, items, wait)
            try:
                return (yield from self._send(_SYNC, params, lease.call, self.prepared))
            except Error as error:
                if self.prepared and error.sqlstate in ("26000", "42P05", "0A000"):
                    self.prepared = ""
                elif not learned and error.sqlstate in ("3F000", "42883"):
                    learned = True
                    yield from self._learn()
                else:
                    raise

    def _failed(self) -> float:
        """Counts a failure. Returns the time of the next attempt to connect or renew. The first retry is immediate."""
        delay = min(RETRY_FIRST * 2.0 ** min(self.failures - 1, 10), self.main.longest_pause)
        self.failures += 1
        if self.suspended_at is None and self.state == "suspended":
            self._report("suspended", error=self.trouble)
        return self.clock() + (jitter(delay) if self.failures > 1 else 0.0)

    def _answering(self) -> None:
        self.failures = 0
        if self.suspended_at is not None:
            self._report("resumed")

    def _pause(self) -> None:
        self.pause_until = self.clock() + jitter(PAUSE)

    # --- the connection ---------------------------------------------------------------------------------------------

    def broken(self, error: Error) -> None:
        """Handles a broken connection. Its last call may still take effect until the server receives the next call."""
        if self.connected:
            log.info("the connection broke: %s", error)
        self.trouble = error
        self.wire.close()
        self.connected, self.prepared = False, ""
        self.listens = None
        self.listening.clear()
        self.connect_at = self._failed()
        for lease in list(self.leases.values()):
            self._unanswered(lease)
            if lease.state is NEW and not (self.opened and errors.passes(error)):
                self._not_granted(lease, error)  # fail now, because there is no lease yet that a retry could save
        if self.opened and not errors.passes(error):
            # Callers that do not wait get the error. Waiters and holds stay until the lease's deadline.
            for claim in [claim for lease in self.leases.values() for claim in lease.asks if claim.attempt]:
                self.over(claim, error)
            while self.calls:
                self._answer(self.calls.popleft(), error)

    @staticmethod
    def _unanswered(lease: Lease) -> None:
        lease.unsure = lease.unsure or any(isinstance(request, Claim) for request, _ in lease.flight.values())
        lease.flight = {}

    def _connect(self) -> Job:
        alive = any(lease.state is LIVE for lease in self.leases.values())
        self.told_pid = yield from self.wire.connect(self.call if alive else None)
        try:
            yield from self._learn()
        except Error as error:
            raise Broken(error) from error
        self.connected = True
        for lease in self.leases.values():
            lease.renew_at = 0.0 if lease.state is LIVE else NEVER
        for observer in self.observers:
            observer.due = 0.0

    def _learn(self) -> Job:
        """Reads the extension's schema and the connection's properties, and prepares the statement."""
        self.prepared = ""
        learn = _LEARN.replace("{pid}", self.told_pid or "0")
        ((schema, database, standby, pid, notify),) = yield from self._send(learn, (), self.call)
        if standby == "t":
            self.wire.avoid_host()
            raise Broken(errors.Unavailable("the server is a standby", "25006"))
        if schema is None:
            told = f'lock_election is not installed in database "{database}"'
            raise errors.of_server("3F000", told, errors.INSTALL)
        self.schema, self.notify, self.pooled = schema, notify or "", pid != self.told_pid
        if not self.pooled:  # a pooler may send each call to a different backend
            name = f"lock_election_sync_{next(self.numbers)}"
            yield from self.wire.prepare(name, _SYNC.replace("{s}", schema), self.clock() + self.call)
            self.prepared = name

    # --- leases -----------------------------------------------------------------------------------------------------

    def _grant(self, lease: Lease) -> Job:
        sent = self.clock()
        try:
            params = (ms(lease.ttl), self.marker, ms(lease.call / 2))
            rows = yield from self._query("SELECT {s}.grant_lease($1, $2, $3)", *params)
        except Error as error:
            if self.opened and errors.passes(error):
                self._pause()
            else:
                self._not_granted(lease, error)
            return
        lease.id, lease.state = str(rows[0][0]), LIVE
        self._answering()
        lease.renewed(sent, lease.ttl)
        self.opened = True
        lease.wake()

    def _not_granted(self, lease: Lease, error: Error) -> None:
        for claim in list(lease.claims.values()):
            self.over(claim, error)
        if lease is self.main:
            self.end_error = error
            lease.wake()
        else:
            self.leases.pop(lease.ttl, None)

    def _revoke(self) -> Job:
        try:
            yield from self._query("SELECT {s}.revoke_lease($1)", self.revoke[0])
        except Error as error:
            log.info("a lease is not revoked, and ends by itself: %s", error)
        self.revoke.popleft()

    # --- a turn: one call with all queued items ---------------------------------------------------------------------

    def _turn(self, lease: Lease) -> Job:
        if lease is not self.main and not lease.claims:
            self.end_lease(lease, errors.Canceled("nothing hangs on it"))
            return
        sent = self.clock()
        lease.hinted = False
        renews = lease.renew_at <= sent or lease.poll_at <= sent or bool(lease.queued or lease.pending)
        texts, waits = self._gather(lease, bare=lease.trouble and renews)
        if len(self.leases) > 1:
            self.leases[lease.ttl] = self.leases.pop(lease.ttl)  # the other leases go first next time
        wait = ms(lease.call / 2) if waits or renews or lease.unsure or not lease.flight else None
        try:
            rows = yield from self._sync(lease, texts, wait)
        except Error as error:
            self._turn_failed(lease, error)
            return
        flight, lease.flight = lease.flight, {}
        lease.trouble = False
        self.tick()  # a reply that arrives after the deadline is too late
        if lease.state is LIVE:
            self._read(lease, sent, rows, flight, wait is not None)

    def _gather(self, lease: Lease, bare: bool) -> Tuple[List[Optional[str]], bool]:
        """Returns the texts of the items, and whether the call has to wait for durability. Fills lease.flight.

        bare: whether the call gets no items.
        """
        texts: List[Optional[str]] = []
        flight = lease.flight = {}
        waits = False

        def add(request: Any, name: str, *item: Optional[str]) -> None:
            number = len(flight) + 1
            flight[number] = (request, name)
            texts.extend((str(number), item[0], name, *item[1:]))

        if bare:
            return texts, True
        for kind, name, token in list(lease.ghosts)[:ITEMS]:
            add((kind, name, token), name, "resign" if kind == "election" else "release", token, None, None)
        for claim in lease.back:
            room = ITEMS - len(flight) if not (claim.alone and flight) else 0
            action = "resign" if claim.kind == "candidate" else "release"
            for name in claim.left[:room]:
                add(claim, name, action, str(claim.token), None, ms(claim.hold_for) if claim.hold_for else None)
            claim.sent += room > 0
            if claim.alone or room <= 0:
                break
        # The reply to a call with requests waits for a flush to disk, which would delay releases in the same call. So
        # send releases in a call of their own: their callers can add their next requests to the following call.
        lease.apart = bool(flight) and not lease.apart
        for op in lease.ops:
            if len(flight) < ITEMS and not (op.alone and flight):
                add(op, op.item[1] or "", op.item[0], *op.item[2:])
                op.sent = waits = True
        names = len(flight)
        for claim in [] if lease.unsure or lease.apart else lease.asks:
            names += len(claim.names)
            if flight and (claim.alone or names > NAMES or len(flight) == ITEMS):
                break
            action = ("try_" if claim.attempt else "enqueue_") + claim.kind
            number, value = (claim.last, None) if claim.kind == "permit" else (None, claim.last)
            add(claim, claim.names[0], action, number, claim.owner, value)
            for name in claim.names[1:]:
                texts.extend((str(len(flight)), action, name, None, claim.owner, None))
            claim.phase, waits = SENT, True
            if claim.alone:
                break
        return texts, waits

    def _turn_failed(self, lease: Lease, error: Error) -> None:
        """Handles the rejection of a whole call, whose items may still have been carried out."""
        requests = list(dict.fromkeys(request for request, _ in lease.flight.values()))
        self._unanswered(lease)
        lease.trouble = True
        lease.renew_at = self._failed()
        if errors.passes(error) or error.sqlstate in ("3F000", "42883"):
            self._pause()
        for request in requests:
            if isinstance(request, Claim) and request in lease.back:
                if len(requests) == 1 and not errors.passes(error):
                    self._done(request)  # the hold ends with its lease
                request.alone = request.alone or len(requests) > 1
            elif isinstance(request, (Claim, Op)):
                attempt = isinstance(request, Claim) and request.attempt
                if attempt if errors.passes(error) else len(requests) == 1:
                    self._refused(lease, request, error)
                elif not errors.passes(error):
                    request.alone = True  # one of them was rejected: send each alone to find out which
            elif not errors.passes(error):
                lease.ghosts.pop(request, None)

    def _refused(self, lease: Lease, request: Any, error: Error) -> None:
        if isinstance(request, Op):
            lease.ops.pop(request, None)
            self._answer(request, error)
        else:
            self.over(request, error)

    # --- the reply --------------------------------------------------------------------------------------------------

    def _read(self, lease: Lease, sent: float, rows: Rows, flight: Dict[int, Tuple[Any, str]], waited: bool) -> None:
        _, event, *_, reason, _, _, _, validity, incarnation, news, complete, channel = rows[0]
        if event == "gone":
            told = f"the server has ended the lease: {reason}"
            self.end_lease(lease, errors.LockLost(told, "LE001"), gone=True)
            return
        if validity is not None:
            lease.certain = True
            self._answering()
            lease.renewed(sent, int(validity) / 1000)
        elif waited:
            lease.renew_at = self.clock() + jitter(lease.longest_pause)
            if not lease.certain:
                lease.deadline = sent + lease.ttl - lease.margin  # safe: no grant was reported yet
        if incarnation is not None:
            lease.incarnation, lease.news, lease.channel = incarnation, news, channel
        seen: Counter[Claim] = Counter()  # number of names of each claim in the reply
        for row in rows[1:]:
            if row[0] is None:
                self._news(lease, row, seen)
            else:
                self._result(lease, *flight.pop(int(row[0])), row, seen)
        if incarnation is None:
            return
        if complete == "t":
            missing = [claim for claim in lease.claims.values() if seen[claim] < len(claim.names)]
            self._ask_again(lease, [claim for claim in missing if claim.phase is PENDING])
            for claim in missing:
                if claim.phase in (QUEUED, GRANTED) and claim not in lease.back:
                    self.lost(claim, errors.LockLost("the server has ended it", "LE001"))
        lease.unsure = lease.unsure and complete is None  # NULL = the reply has no news yet
        for claim in [claim for claim in lease.asks if claim.state is not WAITING and not lease.unsure]:
            self._done(claim)  # the request was not carried out, and the application no longer wants it
        lease.poll_at = NEVER
        if lease.pending or complete is None:
            lease.poll_at = self.clock() + PAUSE
        elif lease.queued:
            deaf = not self.listens or lease.channel not in self.listening
            lease.poll_at = 0.0 if lease.hinted else self.clock() + (POLL_INTERVAL if deaf else LOOK_INTERVAL)

    def _news(self, lease: Lease, row: Sequence[Optional[str]], seen: Counter[Claim]) -> None:
        _, event, token, name, owner, kind, reason, *_ = row
        claim = self.by_token.get(int(token or 0)) or lease.claims.get(owner or "")
        if event == "lost":
            if claim is not None:
                self.lost(claim, errors.LockLost(f"the server has ended it: {reason}", "LE001"))
            else:
                self._ask_again(lease, list(lease.pending))
            return
        if claim is None or claim.token not in (0, int(token or 0)):
            if (owner or "").startswith(self.marker + "-"):
                lease.ghosts[kind or "", name or "", token or ""] = None
            return
        seen[claim] += 1
        if event == "evicted":
            self._evicted(claim, int(token or 0))
        elif claim.token == 0:
            self._placed(claim, int(token or 0), event == "granted")
        elif event == "granted" and claim.phase is QUEUED:
            self._held(claim)

    def _result(
        self, lease: Lease, request: Any, name: str, row: Sequence[Optional[str]], seen: Counter[Claim]
    ) -> None:
        """Handles the result of an item."""
        event, token = row[1], row[2]
        error = errors.of_server(row[7] or "", row[8] or "", row[9]) if event == "error" else None
        if (error is not None and errors.passes(error)) or (event == "pending" and request not in lease.asks):
            self._pause()  # the item is sent again
        if isinstance(request, tuple):  # a ghost
            if error is None or not errors.passes(error):
                lease.ghosts.pop(request, None)
        elif isinstance(request, Op):
            if event != "pending" and (error is None or not errors.passes(error)):
                lease.ops.pop(request, None)
                self._answer(request, error or event)
        elif request in lease.back:
            self._given_back(request, name, event, error)
        elif event in ("granted", "queued"):
            seen[request] = len(request.names)
            self._placed(request, int(token or 0), event == "granted")
        elif event == "pending":
            seen[request] = len(request.names)
            lease.asks.pop(request, None)
            request.phase = PENDING
            lease.pending[request] = None
        else:
            request.phase = NEW
            if event == "not_granted":
                self.over(request, errors.NotAcquired("somebody else holds it, or is queued for it"))
            elif error is not None and not (errors.passes(error) and not request.attempt):
                if isinstance(error, errors.LockLost):
                    lease.renew_at = 0.0
                self.over(request, error)
            if request.state is not WAITING:
                self._done(request)

    def _placed(self, claim: Claim, token: int, granted: bool) -> None:
        """Handles a grant or a place of a claim. The application may no longer want it."""
        lease = claim.lease
        lease.asks.pop(claim, None)
        lease.pending.pop(claim, None)
        claim.token = token
        self.by_token[token] = claim
        claim.phase = GRANTED if granted else QUEUED
        if claim.state is not WAITING:
            self._give_back(claim)
        elif granted:
            self._held(claim)
        elif claim.overdue:
            self.over(claim, errors.NotAcquired(f"{claim} was not granted in time"))
        else:
            lease.queued[claim] = None

    def _held(self, claim: Claim) -> None:
        claim.phase = GRANTED
        claim.lease.queued.pop(claim, None)
        if claim.state is WAITING:
            claim.state = HELD
            self._report("acquired", claim)
            claim.wake()

    @staticmethod
    def _ask_again(lease: Lease, claims: List[Claim]) -> None:
        """Sends claims again whose results were lost before they were durable. They precede all later requests."""
        for claim in claims:
            lease.pending.pop(claim, None)
            claim.phase = SENT
        lease.asks = {**dict.fromkeys(claims), **lease.asks}

    def _give_back(self, claim: Claim) -> None:
        if claim not in claim.lease.back:
            claim.left = list(claim.names)
            claim.lease.back[claim] = None

    def _given_back(self, claim: Claim, name: str, event: Optional[str], error: Optional[Error]) -> None:
        if error is not None:
            if claim.hold_for and (isinstance(error, errors.InvalidRequest) or error.sqlstate == "53400"):
                claim.error, claim.hold_for, claim.sent = error, 0.0, 0  # release it without hold_for
            elif not errors.passes(error):
                claim.error = error
                self._done(claim)  # the hold ends with its lease
        elif event != "pending":
            # If a repeated release finds nothing held, an earlier copy of it has released the hold. It is then unknown
            # whether its hold_for was applied.
            again = (None if claim.hold_for else True) if claim.sent > 1 else False
            released = True if event == "released" else again
            claim.released = released if claim.released is not False else False
            claim.left.remove(name)
            if not claim.left:
                self._done(claim)

    def _done(self, claim: Claim) -> None:
        claim.phase = DONE
        for claims in (claim.lease.asks, claim.lease.back, claim.lease.queued, claim.lease.pending):
            claims.pop(claim, None)
        claim.lease.claims.pop(claim.owner, None)
        self.by_token.pop(claim.token, None)
        claim.wake()

    # --- waiting, calls and observers -------------------------------------------------------------------------------

    def _listen(self, channels: Set[str]) -> Job:
        """Listens on more channels. On a new connection, first tests whether it receives its own notification."""
        test = self.listens is None
        if test and (self.pooled or self.notify not in ("all", "waiters", "elections")):
            self.listens = False
            return
        sql = [f'LISTEN "{channel}"' for channel in channels]
        if test:
            sql += [f"LISTEN {self.test_channel}", f"NOTIFY {self.test_channel}"]
            self.heard, self.listens = False, False
        try:
            yield from self._query("; ".join(sql), simple=True)
            until = self.clock() + LISTEN_PATIENCE
            while test and not self.heard and self.clock() < until and self.close_until is None:
                yield self.wire.fd, True, False, until
                self.wire.take_notifications()
            if test:
                yield from self._query(f"UNLISTEN {self.test_channel if self.heard else '*'}", simple=True)
        except Error as error:
            log.info("LISTEN does not work: %s", error)
            self.heard = False
        self.listens = self.heard
        if not self.listens:
            self.listening.clear()
            return
        self.listening |= channels
        # The notification of a grant before the LISTEN did not reach this connection, so read the news now.
        for lease in self.leases.values():
            if lease.channel in channels and lease.queued:
                lease.poll_at = 0.0
        self._observe_soon(channels)

    def _unlisten(self, channels: Set[str]) -> Job:
        self.listening -= channels
        self.unlisten_at = NEVER
        sql = [f'UNLISTEN "{channel}"' for channel in channels] if self.listening else ["UNLISTEN *"]
        try:
            yield from self._query("; ".join(sql), simple=True)
        except Error as error:
            log.info("UNLISTEN does not work: %s", error)

    def _call(self) -> Job:
        call = self.calls[0]
        if call.answer is None:  # the caller still waits
            try:
                self._answer(call, (yield from self._query(call.sql, *call.params)))
            except Error as error:
                if errors.passes(error):
                    self._pause()
                    return
                self._answer(call, error)
        if self.calls and self.calls[0] is call:
            self.calls.popleft()

    def _observe(self, observer: Observer) -> Job:
        heard = observer.channel in self.listening
        observer.due = self.clock() + (LOOK_INTERVAL if heard else 4 * POLL_INTERVAL)
        try:
            if observer.after is None:
                rows = yield from self._query(_PRESENT, observer.election)
            else:
                rows = yield from self._query(_CHANGES, observer.election, str(observer.after))
        except Error as error:
            if errors.passes(error):
                observer.due = self.clock()
                self._pause()
            return
        if observer.after is None and not rows:
            rows = [("0", None, None, None)]  # the election never had a leader
        for change, term, how, candidate in rows:
            observer.after = int(change or 0)
            leader = Leader(candidate or "", int(term or 0)) if how in ("elected", "proclaimed") else None
            if leader != observer.last and observer in self.observers:
                observer.last = leader
                observer.tell(leader)
        if len(rows) == 100:
            observer.due = self.clock()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _finish(self) -> Job:
        """Ends the session. This is its last job."""
        self.ending = True
        try:
            yield from self.say_goodbye()
        finally:
            self.end()

    def say_goodbye(self) -> Job:
        """Revokes the remaining leases, which releases all holds. Makes one new connection for this if necessary."""
        live = [lease for lease in self.leases.values() if lease.state is LIVE]
        self.revoke.extend(lease.id for lease in live)
        attempts = 0
        while (self.revoke or self.busy_back(live)) and self.clock() < (self.close_until or 0.0) and attempts < 2:
            try:
                if not self.connected:
                    attempts += 1
                    yield from self._connect()
                elif self.clock() < self.pause_until:
                    yield -1, False, False, self.pause_until
                else:
                    back = self.busy_back(live)
                    yield from self._turn(back[0]) if back else self._revoke()
            except Broken as broken:
                self.broken(broken.error)

    @staticmethod
    def busy_back(leases: List[Lease]) -> List[Lease]:
        """Returns the leases whose releases have a hold_for, since a revocation would not keep the names closed."""
        return [lease for lease in leases if any(claim.hold_for for claim in lease.back)]

    def crashed(self, error: BaseException) -> None:
        """Ends the session after an unexpected error in the client."""
        self.ending = True
        self.end_lease(self.main, errors.LockLost(f"an error in the client: {error!r}"))
        self.end()

    def end(self) -> None:
        self.finished = True
        self.connected = False
        self.wire.close()
        for claim in self._claims():
            self._done(claim)
        for observer in self.observers:
            observer.tell(END)
        for request in [*self.calls, *(op for lease in self.leases.values() for op in lease.ops)]:
            self._answer(request, errors.Canceled("the session was closed"))
        self.wake()

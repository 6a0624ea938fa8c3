"""The protocol of a session (docs/reference/client-protocol.md): one state machine, for asyncio and for threads.

`Protocol.run()` is one task. It alone uses the wire, a connection that `_wire.py` makes and the tests replace; the
clock is an argument, too. All methods are called in the loop of that task. Times are seconds of the clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple
from typing import Protocol as Shape

from . import _errors as errors
from ._errors import Error

log = logging.getLogger("lock_election")

NEVER = float("inf")
TOGETHER = 128  # requests in one statement
LOOKED_AT = 4 * TOGETHER  # requests that are looked at to find them
OWNER_BYTES = 200
LISTEN_PATIENCE = 0.3
PAUSE = 0.1
PATIENCE = 1.0  # of an observer, while others ask without end
RETRY_FIRST = 0.05
LOOK_INTERVAL = 5.0
POLL_INTERVAL = 0.25
MAX_SLICE = 1.0  # timers do not count a suspend: the clock is looked at this often

TOKENS = re.compile('"(?:token|term)":"([0-9]{1,19})"')

Rows = List[Sequence[Optional[str]]]


class Broken(Exception):
    """The connection is gone. A statement that was under way may have taken effect."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error))
        self.error = error


class Wire(Shape):
    """The connection. Every wait also ends when the protocol closes, at its close_until."""

    async def connect(self, host_limit: Optional[float]) -> str:
        """Gives the old connection up, and makes a new one: the process id that it was told, or Broken.

        host_limit: seconds for each host; None: the default.
        """

    async def query(self, sql: str, params: Optional[Sequence[Optional[str]]], until: float) -> Rows:
        """The rows, by that time; Broken, or an Error of the server. Without params it may be several statements."""

    async def idle(self, until: float) -> None:
        """Takes notifications, until that time or a wake-up. Broken."""

    def avoid_host(self) -> None:
        """Connects to the host of this connection only after the others."""

    def wake(self) -> None:
        """Ends idle()."""

    def close(self) -> None:
        """Gives the connection up."""


# A claim's state, for the application.
WAITING, HELD, OVER, LOST = "waiting", "held", "over", "lost"
# Its phase, for the server. SENT: asked for, and not answered. DONE: nothing of it is there.
NEW, SENT, QUEUED, GRANTED, DONE = "new", "sent", "queued", "granted", "done"
# A lease's state: NEW, LIVE or ENDED.
LIVE, ENDED = "live", "ended"


@dataclass(eq=False)
class Lease:
    """The session's own lease, or one of holds with another TTL."""

    ttl: float
    state: str = NEW
    id: str = ""
    deadline: float = -NEVER  # the latest that an answered renewal has given
    renew_at: float = NEVER
    looked: float = 0.0
    look_at: float = NEVER  # a look that is due, for other reasons than waiting
    claims: Dict[Claim, None] = field(default_factory=dict)
    queued: Dict[Claim, None] = field(default_factory=dict)
    settled: asyncio.Future[None] = field(default_factory=lambda: new_future())

    @property
    def call(self) -> float:
        """How long a statement may take."""
        return min(max(self.ttl / 4, 0.2), 10.0)

    @property
    def longest_pause(self) -> float:
        """Between two renewals that fail."""
        return min(max(self.ttl / 20, RETRY_FIRST), 1.0)

    def renewed(self, sent: float, validity: float) -> None:
        """validity: seconds that a crash of the server would leave; less than the TTL after restarts, for example."""
        self.deadline = max(self.deadline, sent + validity - min(self.ttl / 20, 1.0))
        self.renew_at = sent + jitter(min(max(validity / 3, self.longest_pause), self.ttl / 3))


@dataclass(eq=False)
class Claim:
    """A request for a lock, a permit, several locks or a term, from the asking to the giving back."""

    kind: str  # lock, locks, permit, election
    names: Tuple[str, ...]
    lease: Lease
    attempt: bool
    last: str  # the last argument: the mode, the number of permits, or the text of a candidate
    state: str = WAITING
    phase: str = NEW
    owner: str = ""
    token: int = 0
    channel: str = ""
    alone: bool = False  # not together with others
    overdue: bool = False  # its limit has passed, and only a first answer that grants it counts
    error: Optional[Error] = None
    hold_for: float = 0.0
    sent: int = 0  # how often the release was sent
    released: Optional[bool] = None
    settled: asyncio.Future[None] = field(default_factory=lambda: new_future())  # granted, or over
    done: asyncio.Future[None] = field(default_factory=lambda: new_future())
    ended: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(map(repr, self.names))}"

    def time_left(self, now: float) -> float:
        return max(self.lease.deadline - now, 0.0) if self.state is HELD else 0.0


@dataclass(eq=False)
class Call:
    """A statement for one caller, such as proclaim. One that only reads is repeated after a lost answer."""

    sql: str
    params: Sequence[str]
    reads: bool
    answer: asyncio.Future[Rows]
    sent: bool = False


class Leader(NamedTuple):
    """Who leads an election."""

    value: str
    term: int


END: Any = object()  # the last thing that an observer is told


@dataclass(eq=False)
class Observer:
    election: str
    tell: Callable[[Any], None]  # a Leader, None or END
    after: Optional[int] = None  # the last change that was told; None: begin with the present leader
    last: Optional[Leader] = None
    due: float = 0.0

    @property
    def channel(self) -> str:
        return "le_" + hashlib.sha256(b"election " + self.election.encode()).hexdigest()[:32]


# How each kind is tried, queued and given back, and the name of the last argument.
_KINDS = {
    "lock": ("acquire_lock($1, wait => '0'", "enqueue_lock($1", "release_lock($1, $2, $3, true)", "mode"),
    "locks": ("acquire_locks($1, wait => '0'", "enqueue_locks($1", "release_locks($1, $2)", "mode"),
    "permit": ("acquire_permit($1, wait => '0'", "enqueue_permit($1", "release_lock($1, $2, $3, true)", "permits"),
    "election": ("campaign($1, wait => '0'", "enqueue_candidate($1", "resign($1, $2)", "candidate"),
    "each": ("try_acquire_each($1", "enqueue_each($1", "release_each($1, $2)", "mode"),
}
_RELEASE_FOR = (
    "SELECT pg_catalog.bool_and({s}.release_lock(u.n, $2, $3, true))"
    " FROM pg_catalog.unnest($1::pg_catalog.text[]) AS u(n)"
)
_LEARN = (
    "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.current_database(),"
    " pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),"
    " pg_catalog.current_setting('lock_election.notify', true),"
    " (SELECT a.backend_start FROM pg_catalog.pg_stat_activity a"
    " WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())"
    " FROM (VALUES (0)) AS v(v) LEFT JOIN (pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n"
    " ON n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'lock_election') ON true"
)
# Whole milliseconds: the texts of intervals and of floats depend on settings.
_RENEW = (
    "SELECT pg_catalog.floor(pg_catalog.date_part('epoch', {s}.keep_alive($1)) OPERATOR(pg_catalog.*) 1000)::bigint"
)
_END_OLD = (
    "SELECT pg_catalog.pg_terminate_backend(pid, $3) FROM pg_catalog.pg_stat_activity"
    " WHERE pid = $1 AND backend_start = $2"
)
_CHECK = (
    "SELECT u.t FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[]),"
    " pg_catalog.unnest($3::boolean[])) AS u(n, t, e)"
    " WHERE CASE WHEN u.e THEN {s}.is_leader(u.n, u.t) ELSE {s}.is_held(u.n, u.t) END"
)
_LOOK = "SELECT kind, name, token, granted, channel, owner FROM {s}.lease_holds($1)"
_CHANGES = "SELECT change, term, how, candidate FROM {s}.election_history($1, $2) ORDER BY change LIMIT 100"
# The last change; if the history has lost those of the present term, the term itself.
_PRESENT = (
    "SELECT change, term, how, candidate FROM {s}.election_history($1,"
    " COALESCE((SELECT term FROM {s}.current_leader($1)), 0))"
    " UNION ALL SELECT 0, term, 'elected', candidate FROM {s}.current_leader($1) ORDER BY 1 DESC LIMIT 1"
)


def array(items: Sequence[object]) -> str:
    """A literal of an array."""
    return "{" + ",".join('"' + str(i).replace("\\", "\\\\").replace('"', '\\"') + '"' for i in items) + "}"


def new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def settle(future: asyncio.Future[Any], outcome: object = None) -> None:
    """An error is raised to who waits."""
    if not future.done():
        if isinstance(outcome, Error):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def jitter(seconds: float) -> float:
    return seconds * random.uniform(0.9, 1.1)


class Protocol:
    wire: Wire

    def __init__(self, ttl: float, name: str, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.pid = os.getpid()
        self.ttl = ttl
        digits = os.urandom(8).hex()
        self.marker = name.encode()[:OWNER_BYTES].decode(errors="ignore") + "#" + digits
        self.number = 0
        self.main = Lease(ttl)
        self.leases: Dict[float, Lease] = {ttl: self.main}
        self.revoke: Deque[str] = deque()
        self.asks: Dict[Claim, None] = {}
        self.back: Dict[Claim, None] = {}
        self.hinted: Dict[Claim, None] = {}
        self.by_token: Dict[int, Claim] = {}
        self.dropped: Deque[Claim] = deque()  # by finalizers, which run in any thread
        self.calls: Deque[Call] = deque()
        self.observers: List[Observer] = []
        # of the connection
        self.schema = self.notify = ""
        self.connected = self.pooled = self.busy = self.heard = False
        self.backend: Tuple[str, str] = ("", "")
        self.old: List[Tuple[str, str]] = []  # backends of broken connections that may still be at a statement
        self.listens: Optional[bool] = None  # None: not tested
        self.test_channel = "le_self_" + digits
        self.channels: Dict[str, int] = {}  # how many wait on each
        self.listening: Dict[str, None] = {}
        self.looks_left = 0
        self.failures = 0  # of connections and renewals, since the last renewal that succeeded
        self.connect_at = self.pause_until = 0.0
        # of the session
        self.opened = self.finished = False
        self.end_error: Optional[Error] = None  # why it has ended
        self.trouble: Optional[Error] = None  # the last failure of the connection
        self.close_until: Optional[float] = None

    # --- the application's side: all of these return at once -------------------------------------------------------

    @property
    def state(self) -> str:
        if self.forked or self.end_error is not None or self.close_until is not None or self.main.state is not LIVE:
            return "ended"
        return "connected" if self.connected and self.failures == 0 else "suspended"

    @property
    def call(self) -> float:
        """How long one statement may take, in seconds."""
        return min(lease.call for lease in self.leases.values())

    def time_left(self, claim: Claim) -> float:
        """Of a hold, in seconds; a child holds nothing of its parent's."""
        return 0.0 if self.forked else claim.time_left(self.clock())

    @property
    def forked(self) -> bool:
        """Is this a child? It has no session, and leaves its parent's alone."""
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

    def ask(self, kind: str, names: Sequence[str], ttl: Optional[float], attempt: bool, last: str) -> Claim:
        self.check_open()
        lease = self.leases.setdefault(ttl or self.ttl, Lease(ttl or self.ttl))
        claim = Claim(kind, tuple(names), lease, attempt, last)
        lease.claims[claim] = self.asks[claim] = None
        self.wire.wake()
        return claim

    def over(self, claim: Claim, error: Error) -> None:
        """Ends a wait or a hold; what the server has of it is given back, if need be when its answer is here."""
        if claim.state not in (WAITING, HELD):
            return
        claim.state, claim.error = OVER, error
        self._stop_waiting(claim)
        if claim.phase is NEW:
            self._done(claim)
        elif claim.phase in (QUEUED, GRANTED):
            self.back[claim] = None
        settle(claim.settled)
        claim.ended()
        self.wire.wake()

    def release(self, claim: Claim, hold_for: float = 0.0) -> None:
        self.tick()
        if claim.state is HELD:
            claim.hold_for = hold_for
        self.over(claim, errors.Canceled("it was released"))

    def lost(self, claim: Claim, error: Error) -> None:
        """The server has nothing of it any more."""
        if claim.state is HELD:
            log.warning("lost %s: %s", claim, error)
        if claim.state in (WAITING, HELD):
            claim.state, claim.error = LOST, error
            claim.ended()
        self._done(claim)

    def tick(self) -> None:
        """Looks at the clock: what is past its deadline is lost."""
        while self.dropped:
            self.over(self.dropped.popleft(), errors.Canceled("the program has forgotten it"))
        now = self.clock()
        for lease in list(self.leases.values()):
            if lease.state is LIVE and now >= lease.deadline:
                self.end_lease(lease, errors.LockLost("no renewal was answered before the deadline" + self.why()))

    def end_lease(self, lease: Lease, error: Error, gone: bool = False) -> None:
        """Ends all that hangs on it; the session's own ends the session. gone: the server has ended it already."""
        if lease.state is LIVE and not gone:
            self.revoke.append(lease.id)
        lease.state = ENDED
        if lease is not self.main:
            self.leases.pop(lease.ttl, None)
        for claim in list(lease.claims):
            self.lost(claim, error)
        if lease is self.main and self.end_error is None:
            for other in list(self.leases.values()):
                if other is not lease:
                    self.end_lease(other, error)
            self._end(error)

    def _end(self, error: Error) -> None:
        self.end_error = error
        settle(self.main.settled)

    def reopen(self) -> None:
        """A new lease, if the session has ended."""
        self.tick()
        self.check_closed()
        if self.end_error is not None:
            self.end_error = None
            self.main = Lease(self.ttl)
            self.leases = {self.ttl: self.main}
            self.wire.wake()

    def close(self, limit: Optional[float]) -> None:
        if self.close_until is None:
            self.close_until = self.clock() + (self.call if limit is None else limit)
            for lease in list(self.leases.values()):
                for claim in list(lease.claims):
                    self.over(claim, errors.Canceled("the session was closed"))
            settle(self.main.settled)
            self.wire.wake()

    def forget(self, limit: float) -> None:
        """Ends what is held and asked for, and calls nobody: the loop that would tell does not run any more."""
        self.close_until, self.finished, self.connected = self.clock() + limit, True, False
        for claim in [claim for lease in self.leases.values() for claim in lease.claims]:
            if claim.state in (WAITING, HELD):
                claim.state, claim.error = OVER, errors.Canceled("the process ends")

    def notified(self, channel: str, payload: str) -> None:
        """A hint: somebody was granted, or elected."""
        self.heard = self.heard or channel == self.test_channel
        for digits in TOKENS.findall(payload):  # anybody may have sent it
            claim = self.by_token.get(int(digits))
            if claim is not None and claim in claim.lease.queued:
                self.hinted[claim] = None
        self._observe_soon([channel])

    def _observe_soon(self, channels: Collection[str]) -> None:
        for observer in self.observers:
            if observer.channel in channels:
                observer.due = min(observer.due, self.clock())

    def observe(self, observer: Observer) -> None:
        self.check_closed()
        observer.due = self.clock()
        self.observers.append(observer)
        self._use_channel(observer.channel, 1)
        self.wire.wake()

    def unobserve(self, observer: Observer) -> None:
        if observer in self.observers:
            self.observers.remove(observer)
            self._use_channel(observer.channel, -1)
            observer.tell(END)

    async def ask_server(self, sql: str, *params: str, reads: bool = False) -> Rows:
        """Unavailable, or OutcomeUnknown: no answer in time."""
        self.check_closed()
        call = Call(sql, params, reads, new_future())
        self.calls.append(call)
        self.wire.wake()
        try:
            return await asyncio.wait_for(call.answer, self.call)
        except asyncio.TimeoutError:
            kind = errors.OutcomeUnknown if call.sent and not reads else errors.Unavailable
            raise kind(f"the server has not answered in time{self.why()}") from None

    def why(self) -> str:
        return f": {self.trouble}" if self.trouble is not None and not self.connected else ""

    def next_deadline(self) -> float:
        return min((lease.deadline for lease in self.leases.values() if lease.state is LIVE), default=NEVER)

    # --- the task ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The whole life of the session; ends when it is closed, or could not be opened."""
        try:
            while self.close_until is None and (self.opened or self.end_error is None):
                self.check_process()  # a child that goes on in this loop leaves the connection to its parent
                try:
                    self.tick()
                    await self._step(self.clock())
                except Broken as broken:
                    self._broken(broken.error)
            await self._finish()
        except BaseException as error:
            canceled = isinstance(error, asyncio.CancelledError)  # such as with all tasks of its loop
            why = "the session's task was canceled" if canceled else f"an error in the client: {error!r}"
            self.end_lease(self.main, errors.LockLost(why))
            raise
        finally:
            self.finished = True
            self.wire.close()
            for claim in [claim for lease in self.leases.values() for claim in lease.claims]:
                self._done(claim)
            for observer in self.observers:
                observer.tell(END)
            for call in self.calls:
                settle(call.answer, errors.Canceled("the session was closed"))

    async def _step(self, now: float) -> None:
        """What is to be done next, the most urgent first."""
        live = [lease for lease in self.leases.values() if lease.state is LIVE]
        unheard = [channel for channel in self.channels if channel not in self.listening]
        if not self.connected:
            await (self.wire.idle(self.connect_at) if now < self.connect_at else self._connect())
        elif any(now >= lease.renew_at for lease in live):
            await self._renew(min(live, key=lambda lease: lease.renew_at))
        elif now < self.pause_until:
            await self.wire.idle(min([self.pause_until, *(lease.renew_at for lease in live)]))
        elif self.main.state is NEW and self.end_error is None:
            await self._grant(self.main)
        elif self.old:
            await self._end_old()
        elif any(now >= self._look_time(lease) for lease in live):
            await self._look(min(live, key=self._look_time))
        elif self.hinted:
            await self._check()
        elif self.listens is None and unheard:
            await self._test_listen()
        elif self.listens and unheard:
            await self._listen()
        elif self.revoke:
            await self._revoke()
        elif any(now >= observer.due + PATIENCE for observer in self.observers):
            await self._observe(min(self.observers, key=lambda observer: observer.due))
        elif self.back:
            await self._give_back()
        elif self.calls:
            await self._call()
        elif self.asks:
            lease = next(iter(self.asks)).lease
            await (self._grant(lease) if lease.state is NEW else self._ask())
        elif any(now >= observer.due for observer in self.observers):
            await self._observe(min(self.observers, key=lambda observer: observer.due))
        elif any(channel not in self.channels for channel in self.listening):
            await self._listen()
        else:
            times = [min(lease.renew_at, self._look_time(lease)) for lease in live]
            await self.wire.idle(min(times + [observer.due for observer in self.observers], default=NEVER))

    def _look_time(self, lease: Lease) -> float:
        deaf = not self.listens or self.notify not in ("all", "waiters")
        waiting = lease.looked + (POLL_INTERVAL if deaf else LOOK_INTERVAL) if lease.queued else NEVER
        return min(lease.look_at, waiting)

    async def _query(self, sql: str, *params: Optional[str], simple: bool = False) -> Rows:
        try:
            return await self._send(sql, *params, simple=simple)
        except Error as error:
            if not self.opened or "{s}" not in sql or error.sqlstate not in ("3F000", "42883"):
                raise
        # The schema was renamed, or the extension made again in another one.
        await self._learn()
        return await self._send(sql, *params, simple=simple)

    async def _send(self, sql: str, *params: Optional[str], simple: bool = False) -> Rows:
        until = self.clock() + self.call
        self.busy = True
        try:
            rows = await self.wire.query(sql.replace("{s}", self.schema), None if simple else params, until)
        except Error as error:
            if errors.breaks(error):
                raise Broken(error) from error
            self.busy = False
            self.trouble = error
            if errors.passes(error):
                self._pause()
            raise
        self.busy = False
        return rows

    def _failed(self) -> float:
        """When to connect or to renew again: at once after the first failure in a row."""
        delay = min(RETRY_FIRST * 2.0 ** min(self.failures - 1, 10), self.main.longest_pause)
        self.failures += 1
        return self.clock() + (jitter(delay) if self.failures > 1 else 0.0)

    def _pause(self) -> None:
        self.pause_until = self.clock() + jitter(PAUSE)

    def _broken(self, error: Error) -> None:
        """The connection is gone; what it was asked last may still take effect."""
        if self.connected:
            log.info("the connection broke: %s", error)
        if self.busy and self.pooled:
            self.looks_left = 3
        elif self.busy and self.backend[0]:
            self.old.append(self.backend)
        self.trouble = error
        self.wire.close()
        self.connected = self.busy = False
        self.backend = ("", "")
        self.listens = None
        self.listening.clear()
        self.connect_at = self._failed()
        if not self.opened or not errors.passes(error):
            # another try helps nobody who has nothing yet
            for lease in list(self.leases.values()):
                if lease.state is NEW:
                    self._not_granted(lease, error)
        if self.opened and not errors.passes(error):
            # those that do not wait are told; the others wait until the deadline, as holds are held
            for claim in [claim for claim in self.asks if claim.attempt]:
                self.over(claim, error)
            for call in self.calls:
                settle(call.answer, error)

    async def _connect(self) -> None:
        alive = any(lease.state is LIVE for lease in self.leases.values())
        told = await self.wire.connect(self.call if alive else None)
        try:
            pid, notify, start = await self._learn()
        except Error as error:
            raise Broken(error) from error
        self.notify, self.backend = notify or "", (pid or "", start or "")
        self.pooled = pid != told
        self.connected = True
        for lease in self.leases.values():
            lease.renew_at = lease.look_at = 0.0 if lease.state is LIVE else NEVER
        self._observe_soon(self.channels)

    async def _learn(self) -> Sequence[Optional[str]]:
        """Where the extension is, and what else there is to know of a connection."""
        ((schema, database, standby, *rest),) = await self._send(_LEARN)
        if standby == "t":
            self.wire.avoid_host()
            raise Broken(errors.Unavailable("the server is a standby", "25006"))
        if schema is None:
            told = f'lock_election is not installed in database "{database}"'
            raise errors.of_server("3F000", told, "CREATE EXTENSION lock_election")
        self.schema = schema
        return rest

    # --- leases -----------------------------------------------------------------------------------------------------

    async def _grant(self, lease: Lease) -> None:
        sent = self.clock()
        try:
            rows = await self._query("SELECT {s}.grant_lease($1, $2)", f"{lease.ttl * 1000:.0f} ms", self.marker)
        except Error as error:
            if not self.opened or not errors.passes(error):
                self._not_granted(lease, error)
            return
        lease.id, lease.state = str(rows[0][0]), LIVE
        self.failures = 0
        lease.renewed(sent, lease.ttl)
        self.opened = True
        settle(lease.settled)

    def _not_granted(self, lease: Lease, error: Error) -> None:
        for claim in list(lease.claims):
            self.over(claim, error)
        if lease is self.main:
            self._end(error)
        elif lease.state is NEW:
            self.leases.pop(lease.ttl, None)

    async def _renew(self, lease: Lease) -> None:
        if lease is not self.main and not lease.claims:
            self.end_lease(lease, errors.Canceled("nothing hangs on it"))
            return
        sent = self.clock()
        try:
            rows = await self._query(_RENEW, lease.id)
        except Error:
            lease.renew_at = self._failed()
            return
        self.tick()  # an answer after the deadline comes too late
        if lease.state is LIVE and rows[0][0] is None:
            self.end_lease(lease, errors.LockLost("the server has ended the lease", "LE001"), gone=True)
        elif lease.state is LIVE:
            self.failures = 0
            lease.renewed(sent, int(rows[0][0] or 0) / 1000)
            lease.look_at = 0.0

    async def _revoke(self) -> None:
        try:
            await self._query("SELECT {s}.revoke_lease($1)", self.revoke[0])
        except Error as error:
            log.info("a lease is not revoked, and ends by itself: %s", error)
        self.revoke.popleft()

    async def _end_old(self) -> None:
        """The old connection's backend must be gone before the look, or it could still take a place."""
        try:
            rows = await self._query(_END_OLD, *self.old[0], str(int(min(self.call * 500, 1000))))
        except Error as error:
            if errors.passes(error):
                return
            log.warning("the backend of the old connection is not ended: %s", error)
            rows = []
        if not rows:
            self.old.pop(0)

    # --- the look ---------------------------------------------------------------------------------------------------

    async def _look(self, lease: Lease) -> None:
        lease.looked = self.clock()
        try:
            rows = await self._query(_LOOK, lease.id)
        except Error as error:
            self._look_failed(lease, error)
            return
        lease.look_at = lease.looked + self.call if self.looks_left > 0 else NEVER
        self.looks_left = max(self.looks_left - 1, 0)
        self.tick()
        if lease.state is not LIVE:
            return
        sent = {(claim.owner, name): claim for claim in lease.claims if claim.phase is SENT for name in claim.names}
        seen: Counter[Claim] = Counter()
        ghosts = []
        for kind, name, token, granted, channel, owner in rows:
            claim = self.by_token.get(int(token or 0)) or sent.get((owner or "", name or ""))
            if claim is not None:
                seen[claim] += 1
                if claim.phase is SENT and name == claim.names[0]:
                    self._placed(claim, token, granted, channel)
                elif claim in lease.queued and granted == "t":
                    self._held(claim)
            elif (owner or "").startswith(self.marker + "-"):
                ghosts.append((kind, name, token))
        self._missing([claim for claim in lease.claims if seen[claim] < len(claim.names)])
        for kind, name, token in ghosts:
            try:
                await self._query_release("election" if kind == "election" else "lock", name, token, None)
            except Error as error:
                log.info("%s %r is not given back: %s", kind, name, error)

    def _look_failed(self, lease: Lease, error: Error) -> None:
        if isinstance(error, errors.LockLost):
            lease.renew_at = 0.0
            lease.look_at = NEVER
        elif errors.passes(error):
            lease.look_at = 0.0
        else:  # it cannot be found out what has become of these
            lease.look_at = NEVER
            for claim in [claim for claim in lease.claims if claim.phase is SENT]:
                self.over(claim, error)
                self._done(claim)

    def _missing(self, claims: List[Claim]) -> None:
        """The look has not found these."""
        again: Dict[Claim, None] = {}
        for claim in claims:
            if claim.phase is SENT and claim.state is WAITING:
                claim.phase = NEW
                again[claim] = None
            elif claim.phase is SENT:
                self._done(claim)
            elif claim.phase in (QUEUED, GRANTED) and claim.state in (WAITING, HELD):
                self.lost(claim, errors.LockLost("the server has ended it, such as by force", "LE001"))
        self.asks = {**again, **self.asks}

    # --- asking -----------------------------------------------------------------------------------------------------

    def _together(self, claims: Dict[Claim, None]) -> List[Claim]:
        """The first one, and those that can go with it. None passes another one for the same name."""
        first = next(iter(claims))
        asks = claims is self.asks
        chosen: List[Claim] = []
        names: Dict[str, None] = {}
        for claim in list(claims)[:LOOKED_AT]:
            passed = any(name in names for name in claim.names)
            if claim.kind != "election":
                names.update(dict.fromkeys(claim.names))
            simple = claim.kind == "lock" or (claim.kind == "permit" and not asks)
            alike = not asks or (claim.lease, claim.attempt, claim.last) == (first.lease, first.attempt, first.last)
            if claim is first or (simple and alike and not passed and not claim.alone and not claim.hold_for):
                chosen.append(claim)
            if len(chosen) == TOGETHER or first.kind not in ("lock", "permit") or first.alone or first.hold_for:
                break
        return chosen

    async def _ask(self) -> None:
        batch = self._together(self.asks)
        first = batch[0]
        self.number += 1
        for claim in batch:
            del self.asks[claim]
            claim.owner = f"{self.marker}-{self.number}"
            claim.phase = SENT
        columns = "*" if len(batch) == 1 else "token" if first.attempt else "token, granted, queue_position, channel"
        tries, queues, _, last = _KINDS["each" if len(batch) > 1 else first.kind]
        call = f"{tries if first.attempt else queues}, owner => $2, lease => $3, {last} => $4)"
        try:
            params = (self._names(batch), first.owner, first.lease.id, first.last)
            rows = await self._query(f"SELECT {columns} FROM {{s}}.{call}", *params)
        except Error as error:
            self._ask_failed([claim for claim in batch if claim.phase is SENT], error)
            return
        for claim, row in zip(batch, rows):
            if claim.phase is not SENT:
                continue  # its lease has ended
            if row[0] is None:
                self.over(claim, errors.NotAcquired("somebody else holds it, or is queued for it"))
                self._done(claim)
            else:
                self._placed(claim, row[0], "t" if first.attempt else row[1], "" if first.attempt else row[3])

    def _names(self, batch: List[Claim]) -> str:
        if len(batch) > 1 or batch[0].kind == "locks":
            return array([name for claim in batch for name in claim.names])
        return batch[0].names[0]

    def _ask_failed(self, batch: List[Claim], error: Error) -> None:
        if isinstance(error, errors.OutcomeUnknown):
            batch[0].lease.look_at = 0.0  # they stay SENT
            return
        lost, passes, together = isinstance(error, errors.LockLost), errors.passes(error), len(batch) > 1
        again: Dict[Claim, None] = {}
        for claim in batch:
            claim.phase = NEW
            claim.alone = claim.alone or together
            if lost:
                claim.lease.renew_at = 0.0
            if claim.state is WAITING and not lost and (together or (passes and not claim.attempt)):
                again[claim] = None
            else:
                self.over(claim, error)
                self._done(claim)
        self.asks = {**again, **self.asks}

    def _placed(self, claim: Claim, token: Optional[str], granted: Optional[str], channel: Optional[str]) -> None:
        """It was granted, or has a place; but the application may not want it any more."""
        claim.token = int(token or 0)
        self.by_token[claim.token] = claim
        claim.phase = GRANTED if granted == "t" else QUEUED
        if claim.state is not WAITING:
            self.back[claim] = None
        elif granted == "t":
            self._held(claim)
        elif claim.overdue:
            self.over(claim, errors.NotAcquired(f"{claim} was not granted in time"))
        else:
            if not claim.lease.queued:
                claim.lease.looked = self.clock()
            claim.lease.queued[claim] = None
            claim.channel = channel or ""
            self._use_channel(claim.channel, 1)
            if claim.channel in self.listening:
                self.hinted[claim] = None

    def _held(self, claim: Claim) -> None:
        self.tick()
        if claim.state is WAITING:
            self._stop_waiting(claim)
            claim.phase, claim.state = GRANTED, HELD
            settle(claim.settled)

    def _stop_waiting(self, claim: Claim) -> None:
        claim.lease.queued.pop(claim, None)
        self.hinted.pop(claim, None)
        if claim.channel:
            self._use_channel(claim.channel, -1)
            claim.channel = ""

    def _done(self, claim: Claim) -> None:
        self._stop_waiting(claim)
        claim.phase = DONE
        for claims in (self.asks, self.back, claim.lease.claims):
            claims.pop(claim, None)
        self.by_token.pop(claim.token, None)
        settle(claim.settled)
        settle(claim.done)

    # --- giving back ------------------------------------------------------------------------------------------------

    async def _query_release(self, kind: str, *params: Optional[str]) -> Rows:
        sql = f"SELECT {'released' if kind == 'each' else '*'} FROM {{s}}.{_KINDS[kind][2]}"
        if kind == "locks" and params[2]:
            sql = _RELEASE_FOR
        return await self._query(sql, *params[: 3 if "$3" in sql else 2])

    async def _give_back(self) -> None:
        batch = self._together(self.back)
        first = batch[0]
        for claim in batch:
            claim.sent += 1
        tokens = str(first.token) if len(batch) == 1 else array([claim.token for claim in batch])
        hold_for = f"{first.hold_for * 1000:.0f} ms" if first.hold_for else None
        try:
            kind = "each" if len(batch) > 1 else first.kind
            rows = await self._query_release(kind, self._names(batch), tokens, hold_for)
        except Error as error:
            self._give_back_failed([claim for claim in batch if claim.phase is not DONE], error)
            return
        for claim, row in zip(batch, rows):
            # sent again: false means that the first one was done; whether with hold_for nobody knows
            claim.released = row[0] == "t" or (None if claim.sent > 1 and claim.hold_for else claim.sent > 1)
            self._done(claim)

    def _give_back_failed(self, batch: List[Claim], error: Error) -> None:
        for claim in batch:
            too_long = claim.hold_for and (isinstance(error, errors.InvalidRequest) or error.sqlstate == "53400")
            if errors.passes(error) or (isinstance(error, errors.LimitExceeded) and not too_long):
                self._pause()
            elif len(batch) > 1:
                claim.alone = True
            else:
                claim.error = error
                if too_long:
                    claim.hold_for, claim.sent = 0.0, 0  # it is released all the same
                else:
                    self._done(claim)  # each look tries it again, as a ghost

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _use_channel(self, channel: str, more: int) -> None:
        self.channels[channel] = self.channels.get(channel, 0) + more
        if self.channels[channel] == 0:
            del self.channels[channel]

    async def _test_listen(self) -> None:
        """Does this connection hear what is sent to it?"""
        self.listens = self.heard = False
        if self.pooled or self.notify not in ("all", "waiters", "elections"):
            return
        until = self.clock() + LISTEN_PATIENCE
        try:
            await self._query(f"LISTEN {self.test_channel}; NOTIFY {self.test_channel}", simple=True)
            while not self.heard and self.clock() < until and self.close_until is None:
                await self.wire.idle(until)
            await self._query(f"UNLISTEN {self.test_channel}", simple=True)
        except Error as error:
            log.info("LISTEN does not work: %s", error)
        self.listens = self.heard

    async def _listen(self) -> None:
        new = [channel for channel in self.channels if channel not in self.listening][:TOGETHER]
        old = [channel for channel in self.listening if channel not in self.channels][:TOGETHER]
        try:
            sql = [f'LISTEN "{channel}"' for channel in new] + [f'UNLISTEN "{channel}"' for channel in old]
            await self._query("; ".join(sql), simple=True)
        except Error as error:
            log.info("LISTEN does not work: %s", error)
            self.listens = False
            self.listening.clear()
            return
        self.listening = {c: None for c in [*self.listening, *new] if c not in old}
        # what was granted before is found by asking now
        for lease in self.leases.values():
            self.hinted.update((claim, None) for claim in lease.queued if claim.channel in new)
        self._observe_soon(new)

    async def _check(self) -> None:
        """Are those granted that were announced?"""
        claims = list(self.hinted)[:TOGETHER]
        for claim in claims:
            del self.hinted[claim]
        names, tokens = [claim.names[0] for claim in claims], [claim.token for claim in claims]
        terms = [claim.kind == "election" for claim in claims]
        try:
            granted = {row[0] for row in await self._query(_CHECK, array(names), array(tokens), array(terms))}
        except Error:
            for claim in claims:
                claim.lease.look_at = 0.0
            return
        for claim in claims:
            if str(claim.token) in granted and claim.phase is QUEUED:
                self._held(claim)

    # --- calls and observers ----------------------------------------------------------------------------------------

    async def _call(self) -> None:
        call = self.calls.popleft()
        if call.answer.done():
            return  # its caller does not wait any more
        call.sent = True
        try:
            settle(call.answer, await self._query(call.sql, *call.params))
        except Error as error:
            if errors.passes(error) and (call.reads or not isinstance(error, errors.OutcomeUnknown)):
                call.sent = False
                self.calls.appendleft(call)
            else:
                settle(call.answer, error)
        except Broken as broken:
            if call.reads:
                self.calls.appendleft(call)
            else:
                settle(call.answer, errors.OutcomeUnknown(str(broken.error), broken.error.sqlstate))
            raise

    async def _observe(self, observer: Observer) -> None:
        heard = observer.channel in self.listening
        observer.due = self.clock() + (LOOK_INTERVAL if heard else 4 * POLL_INTERVAL)
        try:
            if observer.after is None:
                rows = await self._query(_PRESENT, observer.election)
            else:
                rows = await self._query(_CHANGES, observer.election, str(observer.after))
        except Error as error:
            if errors.passes(error):
                observer.due = self.clock()
            return
        if observer.after is None and not rows and observer in self.observers:
            observer.tell(None)
        observer.after = observer.after or 0
        for change, term, how, candidate in rows:
            observer.after = int(change or 0)
            leader = Leader(candidate or "", int(term or 0)) if how in ("elected", "proclaimed") else None
            if leader != observer.last and observer in self.observers:
                observer.last = leader
                observer.tell(leader)
        if len(rows) == 100:
            observer.due = self.clock()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Revokes what is left, which gives all back; tries one new connection for it."""
        self.revoke.extend(lease.id for lease in self.leases.values() if lease.state is LIVE)
        self.back = {claim: None for claim in self.back if claim.hold_for}
        attempts = 0
        while (self.revoke or self.back) and self.clock() < (self.close_until or 0.0) and attempts < 2:
            try:
                if not self.connected:
                    attempts += 1
                    await self._connect()
                elif self.clock() < self.pause_until:
                    await self.wire.idle(self.pause_until)
                else:
                    await (self._give_back() if self.back else self._revoke())
            except Broken as broken:
                self._broken(broken.error)

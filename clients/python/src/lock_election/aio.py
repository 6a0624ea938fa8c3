"""Sessions for asyncio: one task has the connection, and any task of the same loop may ask.

    async with lock_election.aio.connect("dbname=app") as session:
        async with session.lock("invoices", wait=5) as hold:
            ...

The names and the errors are those of lock_election. A cancelled task leaves nothing behind: its place is given back,
and so is a grant that came at the same moment.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    List,
    Optional,
    Set,
    TypeVar,
)

from . import _errors as errors
from ._base import (
    TTL,
    ByClock,
    Entered,
    Names,
    Seconds,
    Told,
    check_limit,
    check_names,
    check_seconds,
    check_text,
    new_protocol,
)
from ._fence import fence
from ._protocol import END, HELD, LOST, WAITING, Claim, Leader, Observer, Protocol, jitter
from ._wire import PgWire

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
OnLost = Optional[Callable[["Hold"], object]]
log = logging.getLogger("lock_election")

_DEFAULT: Any = object()


async def _within(future: asyncio.Future[None], seconds: Seconds) -> None:
    """Until it is done, for so many seconds. (Before Python 3.12 wait_for can swallow a cancellation.)"""
    await asyncio.wait([future], timeout=seconds)


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Lost(ByClock, asyncio.Event):
    """Set when the hold is not valid any more, by the clock: also after the loop was blocked."""


class Hold(Told):
    """A lock, permit or several locks that are held. An async context manager, which releases it."""

    def __init__(self, session: Session, claim: Claim, on_lost: OnLost = None) -> None:
        super().__init__(session._protocol, claim)
        self._session = session
        self.lost: asyncio.Event = Lost(self)
        """Set when it is not held any more."""
        claim.ended = functools.partial(_ended, weakref.ref(self), self.lost, on_lost)

    async def fence(self, connection: Any) -> None:
        """From here to the end of this connection's transaction nobody else gets the lock.

        connection: the application's, to the same database, in an open transaction: an AsyncConnection of psycopg, a
        connection of asyncpg, an AsyncConnection or AsyncSession of SQLAlchemy.

        LockLost: roll back. InvalidRequest: no transaction is open. Other errors are those of the driver.
        """
        self._session._check()
        await fence(self._protocol, self._claim, connection, _settled)

    async def release(self, hold_for: float = 0.0) -> Optional[bool]:
        """Gives it back; it is over when this is called. Waits for the server for at most a quarter of the TTL.

        hold_for: the name stays closed until so many seconds after it was acquired.

        True: it was held until now. False: it had been lost before. None: the server has not answered, and the session
        goes on trying. InvalidRequest, LimitExceeded: the server does not allow this hold_for, and it is released
        without.
        """
        return await self._session._release(self._claim, hold_for)

    async def __aenter__(self: HoldT) -> HoldT:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.release()


HoldT = TypeVar("HoldT", bound=Hold)


def _ended(ref: weakref.ref[Hold], lost: asyncio.Event, on_lost: OnLost) -> None:
    lost.set()
    hold = ref()
    if on_lost is not None and hold is not None and hold._claim.state is LOST:
        asyncio.get_running_loop().call_soon(hold._session._tell, on_lost, hold)


class Term(Hold):
    """A term as the leader of an election; `token` is its number."""

    async def proclaim(self, value: str) -> None:
        """Changes the text that everybody sees. LockLost: this term does not lead any more; OutcomeUnknown."""
        await self._session._proclaim(self._claim, value)

    async def resign(self) -> Optional[bool]:
        """As release()."""
        return await self.release()


class Lock:
    """A lock, several locks at once, or a permit, to be acquired: `async with lock as hold`."""

    def __init__(
        self, session: Session, kind: str, names: Names, ttl: Seconds, last: str, wait: Seconds = None
    ) -> None:
        if kind in ("permit", "election"):
            check_text("a name", names)
        self._session, self._kind, self._names = session, kind, check_names(names)
        self._ttl = None if ttl is None else check_seconds("ttl", ttl, *TTL)
        self._last, self._wait = last, None if wait is None else check_seconds("wait", wait)
        self._on_lost: OnLost = None
        self._entered: Entered[Hold] = Entered()
        self._waiting: List[Claim] = []

    async def acquire(self, wait: Seconds = _DEFAULT) -> Hold:
        """Waits for at most `wait` seconds (None: for ever; 0: tries once), in the order of arrival.

        NotAcquired: it is held by others, or the time is over. LockLost: the session has ended. Canceled: by cancel()
        or close(). LimitExceeded, AccessDenied, InvalidRequest, NotInstalled. Unavailable: wait is 0, and the server
        has not answered.
        """
        return Hold(self._session, await self._claim(wait), self._on_lost)

    async def _claim(self, wait: Seconds) -> Claim:
        self._session._check()
        wait = self._wait if wait is _DEFAULT else None if wait is None else check_seconds("wait", wait)
        attempt = wait == 0
        claim = self._session._protocol.ask(self._kind, self._names, self._ttl, attempt, self._last)
        self._waiting.append(claim)
        try:
            await self._session._settle([claim], None if wait is None or attempt else wait)
        finally:
            self._waiting.remove(claim)
        if claim.state is not HELD:
            raise claim.error or errors.Canceled("it was released")
        return claim

    async def try_acquire(self) -> Optional[Hold]:
        """None: somebody else has it, or is queued for it. Errors as acquire()."""
        try:
            return await self.acquire(0)
        except errors.NotAcquired:
            return None

    def cancel(self) -> None:
        """Ends the waits of this object in other tasks, with Canceled."""
        for claim in self._waiting:
            if claim.state is WAITING:
                self._session._protocol.over(claim, errors.Canceled("the wait was canceled"))

    async def __aenter__(self) -> Hold:
        hold = await self.acquire()
        self._entered.push(asyncio.current_task(), hold)
        return hold

    async def __aexit__(self, *unused: object) -> None:
        await self._entered.pop(asyncio.current_task()).release()


class Watch:
    """An async iterator of who leads: a Leader, or None while nobody does. The present leader comes first."""

    def __init__(self, session: Session, election: str) -> None:
        self._session = session
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._observer = Observer(election, self._queue.put_nowait)
        session._protocol.observe(self._observer)

    def close(self) -> None:
        """Ends the iteration, also in another task that waits."""
        self._session._protocol.unobserve(self._observer)

    def __aiter__(self) -> AsyncIterator[Optional[Leader]]:
        return self

    async def __anext__(self) -> Optional[Leader]:
        leader: Optional[Leader] = await self._queue.get()
        if leader is END:
            self._queue.put_nowait(END)
            raise StopAsyncIteration
        return leader

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *unused: object) -> None:
        self.close()


class Election:
    """An election, for one candidate."""

    def __init__(self, session: Session, name: str, value: str, ttl: Seconds) -> None:
        check_text("the value of a candidate", value)
        self.name, self.value = name, value
        self._session, self._ttl = session, ttl
        self._canceled = False
        self._standing = Lock(session, "election", name, ttl, value)

    async def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Stands for election, and waits to be elected. Waits and errors as Lock.acquire()."""
        return Term(self._session, await self._standing._claim(wait), on_lost)

    async def leader(self) -> Optional[Leader]:
        """Who leads? None: nobody. Unavailable: the server does not answer."""
        self._session._check()
        sql = "SELECT candidate, term FROM {s}.current_leader($1)"
        rows = await self._session._protocol.ask_server(sql, self.name, reads=True)
        return Leader(rows[0][0] or "", int(rows[0][1] or 0)) if rows else None

    def observe(self) -> Watch:
        """An async iterator of who leads, from now on, each change in order."""
        self._session._check()
        return Watch(self._session, self.name)

    async def run(self, lead: Callable[[Term, asyncio.Event], Awaitable[T]]) -> Optional[T]:
        """Stands for election until it has led: awaits lead(term, lost) when elected, resigns when that has returned.

        lead returns what run() returns; if the term was lost meanwhile it stands again, with a new lease where the
        session has ended. None: cancel() was called, or the session was closed. Other errors of lead end it as well.
        """
        while True:
            claim = await self._stand()
            if claim is None:
                return None
            term = Term(self._session, claim)
            try:
                result = await lead(term, term.lost)
                if term.valid:
                    return result
            except errors.LockLost:
                if term.valid:
                    raise
            finally:
                await term.resign()

    async def _stand(self) -> Optional[Claim]:
        """Until it is elected, whatever passes meanwhile; None: canceled."""
        failures = 0
        while not self._canceled:
            try:
                await self._session.reopen()
                return await self._standing._claim(None)
            except errors.Canceled:
                break
            except errors.Error as error:
                if not isinstance(error, errors.LockLost) and not errors.passes(error):
                    raise
                log.info("election %r: %s", self.name, error)
            await asyncio.sleep(jitter(min(0.1 * 2**failures, 5.0)))
            failures = min(failures + 1, 10)
        return None

    def cancel(self) -> None:
        """Ends the campaigns of this object in other tasks, and run() when lead has returned."""
        self._canceled = True
        self._standing.cancel()


class Session:
    """One connection and one lease, for all tasks of a loop. Made by connect(): await it, or `async with` it."""

    def __init__(self, conninfo: str, ttl: float, name: Optional[str]) -> None:
        check_seconds("ttl", ttl, *TTL)
        if name is not None:
            check_text("the name of the session", name)
        self._arguments = (conninfo, ttl, name)
        self._machine: Optional[Protocol] = None
        self._worker: Optional[asyncio.Task[None]] = None
        self._failed: Optional[errors.Error] = None
        self._tasks: Set[asyncio.Task[Any]] = set()

    async def _open(self) -> Session:
        self._loop = asyncio.get_running_loop()
        conninfo, ttl, name = self._arguments
        self._machine = new_protocol(ttl, name)
        check_text("the connection string", conninfo)
        self._protocol.wire = PgWire(conninfo, self._protocol)
        self._worker = self._loop.create_task(self._work(), name="lock_election")
        try:
            await self._opened(None)
        except BaseException:
            await self.close(0)
            raise
        return self

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        return self if self._worker is not None else await self._open()

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    @property
    def state(self) -> str:
        """'connected'; 'suspended': no connection now, and what is held still is; 'ended'."""
        return self._protocol.state

    @property
    def lease(self) -> int:
        """The number of the lease on the server."""
        return int(self._protocol.main.id or 0)

    def lock(
        self, names: Names, *, ttl: Seconds = None, wait: Seconds = None, shared: bool = False, on_lost: OnLost = None
    ) -> Lock:
        """A lock, or several at once, all or none: `async with session.lock("invoices", wait=5) as hold`.

        ttl: seconds; another than the session's gets a lease of its own. wait: seconds, None: for ever, 0: tries
        once. on_lost(hold) is called, or awaited in a task, once, if it is lost.
        """
        names = check_names(names)
        kind = "lock" if len(names) == 1 else "locks"
        lock = Lock(self, kind, names, ttl, "shared" if shared else "exclusive", wait)
        lock._on_lost = on_lost
        return lock

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """One of so many permits; all users of a name state the same number. Otherwise as lock()."""
        lock = Lock(self, "permit", name, ttl, str(permits), wait)
        lock._on_lost = on_lost
        return lock

    async def try_acquire_each(
        self, names: List[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Each of these for itself, without waiting: its hold, or None where somebody else has it."""
        claims = await self._try_each(names, shared)
        return [Hold(self, claim, on_lost) if claim.state is HELD else None for claim in claims]

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """An election; `value` is the text that everybody sees of this candidate while it leads: 1 to 4096 bytes.

        None: the name of the session, which is host:pid where connect() was given none.
        """
        return Election(self, name, self._protocol.marker.rpartition("#")[0] if value is None else value, ttl)

    def once(
        self, name: str, hold_for: float, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Optional[T]]]]:
        """A decorator: of all replicas that call the function at a time one runs it, the others skip it (None).

        The name stays closed until hold_for seconds after the start, also if the function fails or the process dies:
        the TTL is at least as long. Errors as Lock.acquire(0); a session that has ended is opened again. Not called if
        the server does not take this hold_for: InvalidRequest, LimitExceeded.
        """
        check_seconds("hold_for", hold_for)
        lock = self.lock(name, ttl=max(hold_for, ttl or self._protocol.ttl))

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Optional[T]]]:
            @functools.wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> Optional[T]:
                await self.reopen()
                await self._admits(name, hold_for)
                hold = await lock.try_acquire()
                if hold is None:
                    return None
                try:
                    return await function(*args, **kwargs)
                finally:
                    await hold.release(hold_for)

            return run

        return decorate

    async def reopen(self) -> None:
        """Grants the session a new lease, if it has ended; what it held stays lost. Errors as connect()."""
        self._check()
        if self._failed is not None:
            raise self._failed
        self._protocol.reopen()
        await self._opened(self._protocol.call)

    async def close(self, limit: Seconds = None) -> None:
        """Ends all waits, gives all back, and closes the connection.

        Waits for the server for at most `limit` seconds (None: a quarter of the TTL); without an answer the lease ends
        at its TTL.
        """
        limit = check_limit(limit)
        if self._worker is not None:
            self._check()
            self._protocol.close(limit)
            await asyncio.wait([self._worker])

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def _protocol(self) -> Protocol:
        if self._machine is None:
            raise errors.InvalidRequest("this session is not open: await it, or use async with")
        return self._machine

    def _check(self) -> None:
        self._protocol.check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise errors.InvalidRequest("this session belongs to another loop of events")

    async def _opened(self, limit: Seconds) -> None:
        main = self._protocol.main
        await _within(main.settled, limit)
        self._protocol.check_closed()
        if self._protocol.end_error is not None:
            raise self._protocol.end_error
        if not main.settled.done():
            raise errors.Unavailable(f"the server has not answered in time{self._protocol.why()}")

    async def _settle(self, claims: List[Claim], wait: Seconds) -> None:
        """Waits until all are granted, or over."""
        clock = self._protocol.clock
        attempt = claims[0].attempt
        until = clock() + self._protocol.call if attempt else None if wait is None else clock() + wait
        error: errors.Error = errors.Canceled("the wait was canceled")
        interrupted = True
        try:
            for claim in claims:
                await _within(claim.settled, None if until is None else max(until - clock(), 0.0))
            interrupted = False
            names = ", ".join(map(repr, claims[0].names))
            error = errors.NotAcquired(f"{claims[0].kind} {names} was not granted in time")
            if attempt:
                error = errors.Unavailable(f"the server has not answered in time{self._protocol.why()}")
        finally:
            for claim in claims:
                if claim.state is WAITING or interrupted:
                    self._protocol.over(claim, error)

    async def _try_each(self, names: List[str], shared: bool) -> List[Claim]:
        self._check()
        mode = "shared" if shared else "exclusive"
        if not names:
            return []
        claims = [self._protocol.ask("lock", [name], None, True, mode) for name in check_names(names)]
        await self._settle(claims, None)
        for claim in claims:
            if claim.state is not HELD and not isinstance(claim.error, errors.NotAcquired):
                for other in claims:
                    self._protocol.release(other)
                raise claim.error or errors.Unavailable("no answer")
        return claims

    async def _release(self, claim: Claim, hold_for: float) -> Optional[bool]:
        self._check()
        wrong: Optional[errors.Error] = None
        try:
            hold_for = check_seconds("hold_for", hold_for, high=0 if claim.kind == "election" else math.inf)
        except errors.InvalidRequest as error:
            wrong, hold_for = error, 0.0  # it is released all the same
        self._protocol.release(claim, hold_for)
        await _within(claim.done, self._protocol.call)
        if wrong is not None:
            raise wrong
        if isinstance(claim.error, (errors.InvalidRequest, errors.LimitExceeded)):
            raise claim.error
        return False if claim.state is LOST else claim.released

    async def _admits(self, name: str, hold_for: float) -> None:
        """Does the server take this hold_for? A NULL token holds nothing, so nothing is released."""
        sql = "SELECT {s}.release_lock($1, NULL::bigint, $2)"
        await self._protocol.ask_server(sql, name, f"{hold_for * 1000:.0f} ms", reads=True)

    async def _proclaim(self, claim: Claim, value: str) -> None:
        check_text("the value of a candidate", value)
        self._check()
        if claim.time_left(self._protocol.clock()) > 0:
            params = (claim.names[0], str(claim.token), value)
            if (await self._protocol.ask_server("SELECT {s}.proclaim($1, $2, $3)", *params))[0][0] == "t":
                return
        raise errors.LockLost(f"the term of {claim.names[0]!r} is over", "LE001")

    def _tell(self, on_lost: Callable[[Hold], object], hold: Hold) -> None:
        try:
            result = on_lost(hold)
            if inspect.iscoroutine(result):
                task = self._loop.create_task(result)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception:
            log.exception("on_lost of %r", hold)

    async def _work(self) -> None:
        try:
            await self._protocol.run()
        except BaseException as error:
            if isinstance(error, Exception):
                log.exception("the session ends")
            self._failed = errors.Error(str(self._protocol.end_error))  # reopen() cannot help
            if not isinstance(error, Exception):
                raise


def connect(conninfo: str = "", *, ttl: float = 30.0, name: Optional[str] = None) -> Session:
    """As lock_election.connect(): `session = await connect()`, or `async with connect() as session`."""
    return Session(conninfo, ttl, name)

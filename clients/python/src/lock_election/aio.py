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
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    List,
    Optional,
    Set,
    Tuple,
    TypeVar,
)

from . import _errors as errors
from . import _goodbye
from ._base import (
    HOLD_FOR,
    TTL,
    ByClock,
    Duration,
    Entered,
    Names,
    Seconds,
    Told,
    check_callable,
    check_flag,
    check_limit,
    check_name,
    check_names,
    check_on_lost,
    check_permits,
    check_seconds,
    check_text,
    check_ttl,
    check_wait,
    new_protocol,
)
from ._fence import fence
from ._protocol import END, HELD, LOST, QUEUED, WAITING, Claim, Leader, Observer, Protocol, jitter
from ._wire import PgWire

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
OnLost = Optional[Callable[["Hold"], object]]
log = logging.getLogger("lock_election")

_DEFAULT: Any = object()


async def _within(future: asyncio.Future[None], seconds: Optional[float]) -> None:
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

    async def release(self, hold_for: Duration = 0.0) -> Optional[bool]:
        """Gives it back; it is over when this is called. Waits for the server for at most a quarter of the TTL.

        hold_for: the name stays closed until so many seconds after it was acquired.

        True: it was held until now. False: it had been lost before. None: the server has not answered, and the session
        goes on trying; or this is a forked child, which has nothing to give back. InvalidRequest, LimitExceeded: the
        server does not allow this hold_for, and it is released without.
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
        self, session: Session, kind: str, names: List[str], ttl: Seconds, last: str, wait: Seconds, on_lost: OnLost
    ) -> None:
        check_on_lost(on_lost)
        self._session, self._kind, self._names, self._last = session, kind, names, last
        self._ttl, self._wait = check_ttl(ttl), check_wait(wait)
        self._on_lost = on_lost
        self._entered: Entered[Hold] = Entered()
        self._waiting: List[Claim] = []

    async def acquire(self, wait: Seconds = _DEFAULT) -> Hold:
        """Waits for at most `wait` seconds (None: for ever; 0: tries once), in the order of arrival.

        That bounds the time in the queue. The server's first answer takes at most a quarter of the TTL: what is free is
        acquired, however short the wait is.

        NotAcquired: it is held by others, or the time is over. LockLost: the session has ended. Canceled: by cancel()
        or close(). LimitExceeded, AccessDenied, InvalidRequest, NotInstalled. Unavailable: wait is 0, and the server
        has not answered.
        """
        return Hold(self._session, await self._claim(wait), self._on_lost)

    async def _claim(self, wait: Seconds) -> Claim:
        self._session._check()
        seconds = self._wait if wait is _DEFAULT else check_wait(wait)
        attempt = seconds == 0
        claim = self._session._protocol.ask(self._kind, self._names, self._ttl, attempt, self._last)
        self._waiting.append(claim)
        try:
            await self._session._settle([claim], seconds)
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
        self.name, self.value = check_name(name), check_text("value", value)
        self._session = session
        self._canceled = False
        self._standing = Lock(session, "election", [self.name], ttl, self.value, None, None)

    async def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Stands for election, and waits to be elected. Waits and errors as Lock.acquire()."""
        check_on_lost(on_lost)
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
        check_callable("lead", lead)
        while True:
            claim = await self._stand()
            if claim is None:
                return None
            term = Term(self._session, claim)
            try:
                result = await lead(term, term.lost)
                if term.valid or self._session._protocol.forked:
                    return result
            except errors.LockLost:
                if term.valid or self._session._protocol.forked:
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

    def __init__(self, conninfo: str, ttl: Duration, name: Optional[str]) -> None:
        name = None if name is None else check_text("name", name)
        self._arguments = (conninfo, check_seconds("ttl", ttl, *TTL), name)
        self._machine: Optional[Protocol] = None
        self._worker: Optional[asyncio.Task[None]] = None
        self._failed: Optional[errors.Error] = None
        self._tasks: Set[asyncio.Task[Any]] = set()

    async def _open(self) -> Session:
        await self._begin()
        _goodbye.remember(self)
        return self

    async def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        conninfo, ttl, name = self._arguments
        self._machine = new_protocol(ttl, name)
        self._protocol.wire = PgWire(conninfo, self._protocol)
        self._worker = self._loop.create_task(self._work(), name="lock_election")
        try:
            await self._opened(None)
        except BaseException:
            await self.close(0)
            raise

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
        several = check_names(names)
        kind = "lock" if len(several) == 1 else "locks"
        return Lock(self, kind, several, ttl, "shared" if check_flag("shared", shared) else "exclusive", wait, on_lost)

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """One of so many permits; all users of a name state the same number. Otherwise as lock()."""
        return Lock(self, "permit", [check_name(name)], ttl, str(check_permits(permits)), wait, on_lost)

    async def try_acquire_each(
        self, names: Iterable[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Each of these for itself, without waiting: its hold, or None where somebody else has it."""
        check_on_lost(on_lost)
        claims = await self._try_each(names, shared)
        return [Hold(self, claim, on_lost) if claim.state is HELD else None for claim in claims]

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """An election; `value` is the text that everybody sees of this candidate while it leads: 1 to 4096 bytes.

        None: the name of the session, which is host:pid where connect() was given none.
        """
        return Election(self, name, self._protocol.marker.rpartition("#")[0] if value is None else value, ttl)

    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Optional[T]]]]:
        """A decorator: of all replicas that call the function at a time one runs it, the others skip it (None).

        The name stays closed until hold_for seconds after the start, also if the function fails or the process dies:
        the TTL is at least as long. Errors as Lock.acquire(0); a session that has ended is opened again. Not called if
        the server does not take this hold_for: InvalidRequest, LimitExceeded.
        """
        lock, seconds = self._once(name, hold_for, ttl)

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Optional[T]]]:
            check_callable("function", function)

            @functools.wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> Optional[T]:
                await self.reopen()
                await self._admits(name, seconds)
                hold = await lock.try_acquire()
                if hold is None:
                    return None
                try:
                    return await function(*args, **kwargs)
                finally:
                    await hold.release(seconds)

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
        at its TTL. In a forked child it does nothing.
        """
        seconds = check_limit(limit)
        if self._worker is None or self._protocol.forked:
            return
        self._check()
        self._protocol.close(seconds)
        await asyncio.wait([self._worker])
        if self._failed is None:
            _goodbye.forget(self)

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

    def _is_over(self) -> bool:
        protocol = self._protocol
        return protocol.forked or (protocol.finished and protocol.clock() >= protocol.main.deadline)

    def _say_goodbye(self, limit: float) -> None:
        """By another connection, in another loop: its own does not run any more, or is closed."""
        asyncio.run(self._revoke(limit))

    async def _revoke(self, limit: float) -> None:
        protocol, old = self._protocol, self._protocol.wire
        protocol.forget(limit)
        wire = protocol.wire = PgWire(self._arguments[0], protocol)
        if isinstance(old, PgWire):
            wire.hosts = [old.last] if old.last is not None else wire.hosts
            old.close()
        try:
            await protocol._finish()
        finally:
            wire.close()

    async def _opened(self, limit: Optional[float]) -> None:
        main = self._protocol.main
        await _within(main.settled, limit)
        self._protocol.check_closed()
        if self._protocol.end_error is not None:
            raise self._protocol.end_error
        if not main.settled.done():
            raise errors.Unavailable(f"the server has not answered in time{self._protocol.why()}")

    async def _settle(self, claims: List[Claim], wait: Optional[float]) -> None:
        """Waits until all are granted, or over. A wait bounds the time in the queue, and not the first answer."""
        clock, why = self._protocol.clock, self._protocol.why
        attempt, first_answer = claims[0].attempt, clock() + self._protocol.call
        until = first_answer if attempt else None if wait is None else clock() + wait
        error: errors.Error = errors.Canceled("the wait was canceled")
        interrupted = True
        try:
            for claim in claims:
                await _within(claim.settled, None if until is None else max(until - clock(), 0.0))
                if claim.state is WAITING and not attempt and claim.phase is not QUEUED:
                    claim.overdue = True
                    await _within(claim.settled, max(first_answer - clock(), 0.0))
            interrupted = False
            error = errors.NotAcquired(f"{claims[0]} was not granted in time{why()}")
            if attempt:
                error = errors.Unavailable(f"the server has not answered in time{why()}")
        finally:
            for claim in claims:
                if claim.state is WAITING or interrupted:
                    self._protocol.over(claim, error)

    async def _try_each(self, names: Iterable[str], shared: bool) -> List[Claim]:
        self._check()
        mode = "shared" if check_flag("shared", shared) else "exclusive"
        several = list(names) if isinstance(names, (list, tuple)) else names
        if several == []:
            return []
        claims = [self._protocol.ask("lock", [name], None, True, mode) for name in check_names(several)]
        await self._settle(claims, None)
        for claim in claims:
            if claim.state is not HELD and not isinstance(claim.error, errors.NotAcquired):
                for other in claims:
                    self._protocol.release(other)
                raise claim.error or errors.Unavailable("no answer")
        return claims

    async def _release(self, claim: Claim, hold_for: Duration) -> Optional[bool]:
        if self._protocol.forked:
            return None
        self._check()
        wrong: Optional[errors.Error] = None
        try:
            seconds = check_seconds("hold_for", hold_for, 0, 0 if claim.kind == "election" else HOLD_FOR[1])
        except errors.InvalidRequest as error:
            wrong, seconds = error, 0.0  # it is released all the same
        self._protocol.release(claim, seconds)
        await _within(claim.done, self._protocol.call)
        if wrong is not None:
            raise wrong
        if isinstance(claim.error, (errors.InvalidRequest, errors.LimitExceeded)):
            raise claim.error
        return False if claim.state is LOST else claim.released

    def _once(self, name: str, hold_for: Duration, ttl: Seconds) -> Tuple[Lock, float]:
        """The lock of a job, and for how long its name stays closed."""
        seconds = check_seconds("hold_for", hold_for, *HOLD_FOR)
        own = check_ttl(ttl)
        return self.lock(check_name(name), ttl=max(seconds, self._protocol.ttl if own is None else own)), seconds

    async def _admits(self, name: str, hold_for: float) -> None:
        """Does the server take this hold_for? A NULL token holds nothing, so nothing is released."""
        sql = "SELECT {s}.release_lock($1, NULL::bigint, $2)"
        await self._protocol.ask_server(sql, name, f"{hold_for * 1000:.0f} ms", reads=True)

    async def _proclaim(self, claim: Claim, value: str) -> None:
        value = check_text("value", value)
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
            if isinstance(error, Exception) and not self._protocol.forked:
                log.exception("the session ends")
            self._failed = errors.Error(str(self._protocol.end_error))  # reopen() cannot help
            if not isinstance(error, Exception):
                raise


def connect(conninfo: str = "", *, ttl: Duration = 30.0, name: Optional[str] = None) -> Session:
    """As lock_election.connect(): `session = await connect()`, or `async with connect() as session`."""
    return Session(conninfo, ttl, name)

"""Sessions for asyncio. All tasks of a loop share one connection, and the session needs no task of its own.

    async with lock_election.aio.connect("dbname=app") as session:
        async with session.lock("invoices", wait=5) as hold:
            ...

Names and errors are the same as in lock_election. A cancelled task leaves nothing behind: the session releases its
place, or a grant that arrives at the same moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
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
    TypeVar,
    Union,
    overload,
)

import psycopg

from . import _errors as errors
from . import _goodbye, _install
from ._base import (
    DEFAULT,
    ByClock,
    Duration,
    ElectionBase,
    LockBase,
    Names,
    OnEvent,
    Seconds,
    SessionBase,
    Steps,
    Told,
    check_callable,
    check_limit,
    check_name,
    check_on_lost,
    check_permits,
    lock_of,
    once_ttl,
)
from ._fence import fence
from ._protocol import END, LOST, NEVER, Broken, Claim, Event, Job, Leader, Observer
from ._wire import PgWire

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
OnLost = Optional[Callable[["Hold"], object]]
log = logging.getLogger("lock_election")


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Lost(ByClock, asyncio.Event):
    """Event that is set when the hold is no longer valid. It checks the clock, so it is correct even if the loop was
    blocked.
    """


class Hold(Told):
    """A lock, a permit or several locks that are held. As an async context manager, releases them."""

    def __init__(self, session: Session, claim: Claim, on_lost: OnLost = None) -> None:
        super().__init__(session._protocol, claim)
        self._session = session
        self.lost: asyncio.Event = Lost(self)
        """Event that is set when the hold is no longer held."""
        claim.ended = functools.partial(_ended, weakref.ref(self), self.lost, on_lost)

    async def fence(self, connection: Any) -> None:
        """Fences the hold: until this connection's transaction ends, the lock is granted to no other client.

        connection: a connection of the application to the same database, with an open transaction. It can be an
        AsyncConnection of psycopg, a connection of asyncpg, or an AsyncConnection or AsyncSession of SQLAlchemy.

        Raises LockLost if the hold is lost; roll back then. Raises InvalidRequest if no transaction is open,
        NotInstalled if the connection's database has no lock_election, and otherwise the driver's own errors.
        """
        self._session._check()
        try:
            await fence(self._protocol, self._claim, connection, _settled)
        finally:
            self._session._look()

    async def release(self, hold_for: Duration = 0.0) -> Optional[bool]:
        """Releases the hold, which is invalid from this call on. Waits for the server for at most a quarter of the TTL.

        hold_for: number of seconds, counted from the acquire, for which the name stays closed.

        Returns True if the hold was held until now, and False if it had been lost before. Returns None if the server
        has not replied; the session then keeps retrying. Returns None in a forked child, which has nothing to release.
        Raises InvalidRequest or LimitExceeded if this hold_for is not allowed; the hold is then released without it.
        """
        if self._protocol.forked:
            return None
        return await self._session._run(self._session._release(self._claim, hold_for))

    async def __aenter__(self: HoldT) -> HoldT:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.release()


HoldT = TypeVar("HoldT", bound=Hold)


def _ended(ref: weakref.ref[Hold], lost: asyncio.Event, on_lost: OnLost) -> None:
    lost.set()
    hold = ref()
    if on_lost is not None and hold is not None and hold._claim.state is LOST:
        hold._session._loop.call_soon(hold._session._tell, on_lost, hold)


class Term(Hold):
    """A term as the leader of an election; `token` is the number of the term."""

    async def proclaim(self, value: str) -> None:
        """Changes the leader's public text without a new election.

        Raises LockLost if this term no longer leads, and OutcomeUnknown if the server does not reply in time.
        """
        await self._session._run(self._session._proclaim(self._claim, value))

    async def resign(self) -> Optional[bool]:
        """Ends the term. Returns the same as release()."""
        return await self.release()


class Lock(LockBase["Session", Hold]):
    """A lock, several locks or a permit that can be acquired: `async with lock as hold`."""

    async def acquire(self, wait: Seconds = DEFAULT) -> Hold:
        """Acquires the lock in order of arrival, waiting for at most `wait` seconds.

        wait: None waits forever, and 0 tries once. The default is the wait that was given to lock() or permit(). It
        limits the time in the queue. The server's first reply may take up to a quarter of the TTL in any case, so that
        even a short wait acquires a free lock.

        Raises NotAcquired if others hold it or the wait timed out, LockLost if the session has ended, Canceled after
        cancel() or close(), Unavailable if wait is 0 and the server has not replied in time, and LimitExceeded,
        AccessDenied, InvalidRequest or NotInstalled if the server rejects the request.
        """
        return await self._session._run(self._claim(wait, lambda claim: Hold(self._session, claim, self._on_lost)))

    async def try_acquire(self) -> Optional[Hold]:
        """Acquires without waiting. Returns None if others hold it or are queued for it. Raises the errors of
        acquire().
        """
        try:
            return await self.acquire(0)
        except errors.NotAcquired:
            return None

    async def __aenter__(self) -> Hold:
        hold = await self.acquire()
        self._entered.push(asyncio.current_task(), hold)
        return hold

    async def __aexit__(self, *unused: object) -> None:
        await self._entered.pop(asyncio.current_task()).release()


class Watch:
    """An async iterator of an election's leaders. Yields a Leader, or None for no leader; the current one first.

    `async with` waits for the current leader, at most a quarter of the TTL, so that the block misses no later change.
    """

    def __init__(self, session: Session, election: str) -> None:
        self._session = session
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._first: List[Any] = []
        self._observer = Observer(election, self._queue.put_nowait)
        session._post(session._protocol.observe, self._observer)

    def close(self) -> None:
        """Ends the iteration, including in other tasks that wait in it."""
        self._session._post(self._session._protocol.unobserve, self._observer)

    def __aiter__(self) -> AsyncIterator[Optional[Leader]]:
        return self

    async def __anext__(self) -> Optional[Leader]:
        leader: Optional[Leader] = self._first.pop() if self._first else await self._queue.get()
        if leader is END:
            self._queue.put_nowait(END)
            raise StopAsyncIteration
        return leader

    async def __aenter__(self) -> Watch:
        with contextlib.suppress(asyncio.TimeoutError):
            self._first.append(await asyncio.wait_for(self._queue.get(), self._session._protocol.call))
        return self

    async def __aexit__(self, *unused: object) -> None:
        self.close()


class Election(ElectionBase["Session"]):
    """One candidate's side of an election."""

    async def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Campaigns and waits to be elected. `wait` and the errors are the same as in Lock.acquire()."""
        check_on_lost(on_lost)
        steps = self._standing._claim(wait, lambda claim: Term(self._session, claim, on_lost))
        return await self._session._run(steps)

    async def leader(self) -> Optional[Leader]:
        """Returns the current leader, or None if there is none. Raises Unavailable if the server does not reply."""
        return await self._session._run(self._leader())

    def observe(self) -> Watch:
        """Returns an async iterator of the leaders from now on, with all changes in order."""
        self._session._check()
        return Watch(self._session, self.name)

    async def run(self, lead: Callable[[Term, asyncio.Event], Awaitable[T]]) -> Optional[T]:
        """Campaigns, awaits lead(term, lost) when elected, and resigns after lead has returned.

        Returns the result of lead, or None after cancel() or close(). If the term was lost during lead, campaigns
        again, with a new lease if the session has ended. Raises the errors of lead (except LockLost after the term was
        lost), and permanent server errors.
        """
        check_callable("lead", lead)
        while True:
            term = await self._session._run(self._stand(lambda claim: Term(self._session, claim)))
            if term is None:
                return None
            try:
                result = await lead(term, term.lost)
                if term.valid or self._session._protocol.forked:
                    return result
            except errors.LockLost:
                if term.valid or self._session._protocol.forked:
                    raise
            finally:
                await term.resign()


class Session(SessionBase):
    """One connection and one lease, for all tasks of a loop. Create it with connect(), by await or `async with`."""

    async def _open(self) -> Session:
        self._loop = asyncio.get_running_loop()
        self._tasks: Set[asyncio.Task[Any]] = set()
        self._job: Optional[Job] = None  # the current job
        self._job_fd, self._job_until = -1, NEVER
        self._looks = False  # whether _next() is scheduled
        self._timer: Optional[asyncio.TimerHandle] = None
        self._watched = (-1, False, False)  # watched descriptor; whether for reading, for writing
        wake = functools.partial(self._loop.call_soon_threadsafe, self._step, False)
        self._start(wake, lambda: self._watch(-1, False, False))
        try:
            await self._run(self._opened(NEVER))
        except BaseException:
            await self.close(0)
            raise
        _goodbye.remember(self)
        return self

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        return self if self._machine is not None else await self._open()

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    def lock(
        self, names: Names, *, ttl: Seconds = None, wait: Seconds = None, shared: bool = False, on_lost: OnLost = None
    ) -> Lock:
        """Returns a lock, or several that are acquired together: `async with session.lock("invoices", wait=5) as hold`.

        ttl: seconds; None = the session's TTL. With a different TTL, the lock gets its own lease.
        wait: seconds; None = forever, 0 = try once.
        shared: whether other shared holders are admitted at the same time.
        on_lost: function that is called once with the hold, or awaited in a task, if the hold is lost.
        """
        check_on_lost(on_lost)
        return Lock(self, *lock_of(names, shared), ttl, None, wait, on_lost)

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """Returns a lock that acquires one of `permits` permits of a name. All users of a name must pass the same
        number. Otherwise like lock().
        """
        check_on_lost(on_lost)
        return Lock(self, "permit", [check_name(name)], ttl, str(check_permits(permits)), wait, on_lost)

    async def try_acquire_each(
        self, names: Iterable[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Tries to acquire each lock independently, without waiting. Returns a hold or None for each name, in order.

        Raises the errors of Lock.acquire(0), and in that case holds none of the locks.
        """
        check_on_lost(on_lost)
        return await self._run(self._try_each(names, shared, lambda claim: Hold(self, claim, on_lost)))

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """Returns an election, for one candidate.

        value: the candidate's public text while it leads, of 1 to 4096 bytes. None = the session's name, which is
        host:pid by default.
        """
        return Election(self, name, value, ttl)

    @overload
    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Optional[T]]]]: ...

    @overload
    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None, otherwise: D
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Union[T, D]]]]: ...

    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None, otherwise: Any = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Any]]]:
        """Decorator for a function that only one of several replicas runs at a time.

        otherwise: the result of a call that does not run the function, because the name is held or closed.

        The name stays closed until hold_for seconds after the start, even if the function fails or the process dies,
        because the TTL is at least as long. A session that has ended is reopened. Raises the errors of
        Lock.acquire(0). If the server rejects this hold_for, raises InvalidRequest or LimitExceeded before the
        function is called.
        """
        seconds, longer = once_ttl(self._protocol, hold_for, ttl)
        lock = self.lock(check_name(name), ttl=longer)

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Any]]:
            check_callable("function", function)

            @functools.wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
                await self.reopen()
                await self._run(self._admits(name, seconds))
                hold = await lock.try_acquire()
                if hold is None:
                    return otherwise
                try:
                    return await function(*args, **kwargs)
                finally:
                    await hold.release(seconds)

            return run

        return decorate

    async def reopen(self) -> None:
        """Gets a new lease if the session has ended. Its old holds remain lost. Raises the errors of connect()."""
        await self._run(self._reopen())

    async def close(self, limit: Seconds = None) -> None:
        """Ends all waits, releases all holds, and closes the connection.

        Waits for the server for at most `limit` seconds (None = a quarter of the TTL). If there is no reply, the lease
        expires after its TTL. Does nothing in a forked child.
        """
        seconds = check_limit(limit)
        if self._machine is None or self._machine.forked:
            return
        await self._run(self._closed(seconds))
        _goodbye.forget(self)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._protocol.check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise errors.InvalidRequest("this session belongs to another loop of events")

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        if not self._protocol.forked:
            function(*arguments)
            self._look()

    async def _run(self, steps: Steps[T]) -> T:
        """Runs a call's steps in the caller's task."""
        self._check()
        try:
            request, until = next(steps)
            while True:
                changed = self._loop.create_future()
                request.wakers.append(functools.partial(_settle, changed))
                self._look()
                left = _left(until, self._protocol.clock())
                timer = None if left is None else self._loop.call_later(left, _settle, changed)
                try:
                    await changed
                except BaseException as error:
                    steps.throw(error)
                finally:
                    if timer is not None:
                        timer.cancel()
                request, until = steps.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._look()

    def _look(self) -> None:
        """Schedules _next() after the tasks that are ready, so that it sees their requests, too."""
        if not self._looks and not self._protocol.finished:
            self._looks = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        protocol = self._protocol
        self._looks = False
        if protocol.forked:
            return  # a forked child that continues in this loop leaves the connection and its watchers to the parent
        protocol.tick()
        if self._job is None:
            self._job = protocol.next_job()
            if self._job is not None:
                self._step(None)
                return
        self._set_timer()

    def _step(self, ready: Optional[bool]) -> None:
        """Resumes the job, if there is one."""
        protocol = self._protocol
        if protocol.forked or self._job is None:
            return
        protocol.tick()
        try:
            self._job_fd, read, write, self._job_until = self._job.send(ready)  # type: ignore[arg-type]
        except StopIteration:
            self._end_job()
            return
        except BaseException as error:
            log.exception("the session ends")
            protocol.crashed(error)
            self._end_job()
            if not isinstance(error, Exception):
                raise
            return
        self._watch(self._job_fd, read, write)
        self._set_timer()

    def _end_job(self) -> None:
        self._job, self._job_fd, self._job_until = None, -1, NEVER
        self._watch(self._protocol.wire.fd, True, False)
        self._look()
        if self._protocol.finished:
            self._set_timer()

    def _watch(self, fd: int, read: bool, write: bool) -> None:
        """Makes the loop watch the descriptor. Between jobs it watches the connection for notifications and its end."""
        if (fd, read, write) == self._watched and self._protocol.connected:
            return  # unchanged; while connecting, a new descriptor may have the number of the old one
        old, was_read, was_written = self._watched
        if was_read:
            self._loop.remove_reader(old)
        if was_written:
            self._loop.remove_writer(old)
        if fd >= 0 and read:
            self._loop.add_reader(fd, self._readable)
        if fd >= 0 and write:
            self._loop.add_writer(fd, self._step, True)
        self._watched = (fd, fd >= 0 and read, fd >= 0 and write)

    def _readable(self) -> None:
        if self._job is not None and self._job_fd >= 0:
            self._step(True)
        elif self._job is None and not self._protocol.forked:
            try:
                self._protocol.wire.take_notifications()
            except Broken as broken:
                self._protocol.broken(broken.error)
            self._look()

    def _set_timer(self) -> None:
        protocol = self._protocol
        when = protocol.due() if self._job is None else min(self._job_until, protocol.watch())
        if self._timer is not None:
            self._timer.cancel()
        left = _left(when, protocol.clock())
        self._timer = None if left is None or protocol.finished else self._loop.call_later(left, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self._job is None:
            self._next()
        else:
            self._step(False)

    def _say_goodbye(self, limit: float) -> None:
        """Revokes the leases over a new connection, since the loop no longer runs."""
        protocol, old = self._protocol, self._protocol.wire
        protocol.forget(limit)
        wire = protocol.wire = PgWire(self._arguments[0], protocol)
        if isinstance(old, PgWire):
            wire.hosts = [old.last] if old.last is not None else wire.hosts
            old.close()
        try:
            _goodbye.drive(protocol.say_goodbye(), protocol.clock)
        finally:
            wire.close()

    def _report(self, event: Event, context: contextvars.Context) -> None:
        on_event: Any = self._on_event
        self._loop.call_soon(functools.partial(self._tell, on_event, event), context=context)

    def _tell(self, function: Callable[[T], object], about: T) -> None:
        try:
            result = function(about)
            if inspect.iscoroutine(result):
                task = self._loop.create_task(result)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception:
            log.exception("on_lost or on_event of %r", about)


def _settle(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)


def _left(until: float, now: float) -> Optional[float]:
    return None if until == NEVER else min(max(until - now, 0.0), 1e6)


def connect(
    conninfo: str = "", *, ttl: Duration = 30.0, name: Optional[str] = None, on_event: OnEvent = None
) -> Session:
    """Like lock_election.connect(): `session = await connect()`, or `async with connect() as session`.

    on_event: function that is called by the loop with each Event, or awaited in a task.
    """
    if on_event is not None:
        check_callable("on_event", on_event)
    return Session(conninfo, ttl, name, on_event)


async def install(
    connection: psycopg.AsyncConnection[Any], schema: Optional[str] = None, *, grant: Optional[str] = None
) -> None:
    """Like lock_election.install(), over an AsyncConnection of psycopg."""
    await _install.install(connection, schema, grant, _settled)

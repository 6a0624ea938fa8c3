"""Sessions for threads, which share one connection.

If the connection is free, a thread that requests something makes the call itself, for all waiting threads. The
session's own thread does everything else: it connects, renews, listens, and takes over a call whose thread stops
waiting.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import math
import queue
import select
import selectors
import socket
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, TypeVar, Union, overload

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
    check_seconds,
    lock_of,
    once_ttl,
)
from ._fence import fence
from ._protocol import END, LOST, MAX_SLICE, NEVER, Broken, Claim, Event, Job, Leader, Observer

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
OnLost = Optional[Callable[["Hold"], object]]

log = logging.getLogger("lock_election")


async def _settled(value: Any) -> Any:
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise errors.InvalidRequest("a connection of asyncio, for threads")
    return value


class Lost(ByClock, threading.Event):
    """Event that is set when the hold is no longer valid. It checks the clock, so that no thread has to set it."""

    def wait(self, timeout: Seconds = None) -> bool:
        """Waits until the hold is lost, for at most `timeout` seconds. Returns whether it is lost."""
        clock = self._protocol.clock
        until = math.inf if timeout is None else clock() + check_seconds("timeout", timeout, -math.inf)
        while not self.is_set() and clock() < until:
            left = min(self._protocol.time_left(self._claim), until - clock(), MAX_SLICE)
            super().wait(max(left, 0.0))
        return self.is_set()


class Hold(Told):
    """A lock, a permit or several locks that are held. As a context manager, releases them."""

    def __init__(self, session: Session, claim: Claim, on_lost: OnLost = None) -> None:
        super().__init__(session._protocol, claim)
        self._session = session
        self.lost: threading.Event = Lost(self)
        """Event that is set when the hold is no longer held."""
        claim.ended = functools.partial(_ended, weakref.ref(self), self.lost, on_lost)

    def fence(self, connection: Any) -> None:
        """Fences the hold: until this connection's transaction ends, the lock is granted to no other client.

        connection: a connection of the application to the same database, with an open transaction. It can be a
        connection of psycopg or any other DB-API driver, a Connection or Session of SQLAlchemy, or a connection of
        Django.

        Raises LockLost if the hold is lost; roll back then. Raises InvalidRequest if no transaction is open,
        NotInstalled if the connection's database has no lock_election, and otherwise the driver's own errors.
        """
        self._protocol.check_process()
        try:
            with contextlib.suppress(StopIteration):  # the coroutine never waits
                fence(self._protocol, self._claim, connection, _settled).send(None)
        finally:
            self._session._pass_on()

    def release(self, hold_for: Duration = 0.0) -> Optional[bool]:
        """Releases the hold, which is invalid from this call on. Waits for the server for at most a quarter of the TTL.

        hold_for: number of seconds, counted from the acquire, for which the name stays closed.

        Returns True if the hold was held until now, and False if it had been lost before. Returns None if the server
        has not replied; the session then keeps retrying. Returns None in a forked child, which has nothing to release.
        Raises InvalidRequest or LimitExceeded if this hold_for is not allowed; the hold is then released without it.
        """
        if self._protocol.forked:
            return None
        with contextlib.suppress(errors.Canceled):
            return self._session._run(self._session._release(self._claim, hold_for))
        return None

    def __enter__(self: HoldT) -> HoldT:
        return self

    def __exit__(self, *unused: object) -> None:
        self._session._leave(self)


HoldT = TypeVar("HoldT", bound=Hold)


def _ended(ref: weakref.ref[Hold], lost: threading.Event, on_lost: OnLost) -> None:
    lost.set()
    hold = ref()
    if on_lost is not None and hold is not None and hold._claim.state is LOST:
        try:
            threading.Thread(target=on_lost, args=(hold,), name="lock_election-lost", daemon=True).start()
        except RuntimeError as error:  # no thread can be started, so only the event reports the loss
            log.error("on_lost is not called of %r: %s", hold, error)


class Term(Hold):
    """A term as the leader of an election; `token` is the number of the term."""

    def proclaim(self, value: str) -> None:
        """Changes the leader's public text without a new election.

        Raises LockLost if this term no longer leads, and OutcomeUnknown if the server does not reply in time.
        """
        self._session._run(self._session._proclaim(self._claim, value))

    def resign(self) -> Optional[bool]:
        """Ends the term. Returns the same as release()."""
        return self.release()


class Lock(LockBase["Session", Hold]):
    """A lock, several locks or a permit that can be acquired. A context manager: `with lock as hold`."""

    def acquire(self, wait: Seconds = DEFAULT) -> Hold:
        """Acquires the lock in order of arrival, waiting for at most `wait` seconds.

        wait: None waits forever, and 0 tries once. The default is the wait that was given to lock() or permit(). It
        limits the time in the queue. The server's first reply may take up to a quarter of the TTL in any case, so that
        even a short wait acquires a free lock.

        Raises NotAcquired if others hold it or the wait timed out, LockLost if the session has ended, Canceled after
        cancel() or close(), Unavailable if wait is 0 and the server has not replied in time, and LimitExceeded,
        AccessDenied, InvalidRequest or NotInstalled if the server rejects the request.
        """
        return self._session._run(self._claim(wait, lambda claim: Hold(self._session, claim, self._on_lost)))

    def try_acquire(self) -> Optional[Hold]:
        """Acquires without waiting. Returns None if others hold it or are queued for it. Raises the errors of
        acquire().
        """
        try:
            return self.acquire(0)
        except errors.NotAcquired:
            return None

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._entered.push(threading.get_ident(), hold)
        return hold

    def __exit__(self, *unused: object) -> None:
        self._session._leave(self._entered.pop(threading.get_ident()))


class Watch:
    """An iterator of an election's leaders. Yields a Leader, or None if there is no leader; the current leader first.

    `with` waits for the current leader, at most a quarter of the TTL, so that the block misses no later change.
    """

    def __init__(self, session: Session, election: str) -> None:
        self._session = session
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._first: List[Any] = []
        self._observer = Observer(election, self._queue.put)
        session._post(session._protocol.observe, self._observer)

    def close(self) -> None:
        """Ends the iteration, including in other threads that wait in it."""
        self._session._post(self._session._protocol.unobserve, self._observer)

    def __iter__(self) -> Iterator[Optional[Leader]]:
        return self

    def __next__(self) -> Optional[Leader]:
        leader: Optional[Leader] = self._first.pop() if self._first else self._queue.get()
        if leader is END:
            self._queue.put(END)
            raise StopIteration
        return leader

    def __enter__(self) -> Watch:
        with contextlib.suppress(queue.Empty):
            self._first.append(self._queue.get(timeout=self._session._protocol.call))
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class Election(ElectionBase["Session"]):
    """One candidate's side of an election."""

    def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Campaigns and waits to be elected. `wait` and the errors are the same as in Lock.acquire()."""
        check_on_lost(on_lost, of_threads=True)
        steps = self._standing._claim(wait, lambda claim: Term(self._session, claim, on_lost))
        return self._session._run(steps)

    def leader(self) -> Optional[Leader]:
        """Returns the current leader, or None if there is none. Raises Unavailable if the server does not reply."""
        return self._session._run(self._leader())

    def observe(self) -> Watch:
        """Returns an iterator of the leaders from now on, with all changes in order."""
        self._session._protocol.check_process()
        return Watch(self._session, self.name)

    def run(self, lead: Callable[[Term, threading.Event], T]) -> Optional[T]:
        """Campaigns, calls lead(term, lost) when elected, and resigns after lead has returned.

        Returns the result of lead, or None after cancel() or close(). If the term was lost during lead, campaigns
        again, with a new lease if the session has ended. Raises the errors of lead (except LockLost after the term was
        lost), and permanent server errors.
        """
        check_callable("lead", lead, of_threads=True)
        while True:
            term = self._session._run(self._stand(lambda claim: Term(self._session, claim)))
            if term is None:
                return None
            with term:
                try:
                    result = lead(term, term.lost)
                    if term.valid or self._session._protocol.forked:
                        return result
                except errors.LockLost:
                    if term.valid or self._session._protocol.forked:
                        raise


class Session(SessionBase):
    """One connection and one lease, for all threads of a process. A context manager, created by connect()."""

    def __init__(self, conninfo: str, ttl: Duration, name: Optional[str], on_event: OnEvent = None) -> None:
        if on_event is not None:
            check_callable("on_event", on_event, of_threads=True)
        super().__init__(conninfo, ttl, name, on_event)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reporter = _goodbye.Thread(target=self._call_on_event, name="lock_election-events", daemon=True)
        self._mutex: Any = Mutex()  # protects all fields below and the protocol; never held across a wait
        self._job: Optional[Job] = None  # the current job
        self._driver = 0  # the thread that runs the job; 0 = the session's own
        self._poke, self._poked = socket.socketpair()  # ends the driver's wait
        self._alarm, self._alarmed = socket.socketpair()  # ends the wait of the session's own thread
        for end in (self._poke, self._poked, self._alarm, self._alarmed):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._alarmed, selectors.EVENT_READ)
        self._armed = -1  # the descriptor of the connection, while the session's own thread watches it
        self._sleeps_until = 0.0
        self._waits = (-1, False, False, 0.0)  # the events that the job waits for
        self._woken = 0  # number of times that a caller was woken up
        try:
            self._start(self._wake)
            self._thread = _goodbye.Thread(target=self._main, name="lock_election", daemon=True)
            self._thread.start()
            if on_event is not None:
                self._reporter.start()
        except BaseException:
            self._free()
            raise
        try:
            self._run(self._opened(NEVER))
        except BaseException:
            self.close(0)
            raise
        _goodbye.remember(self)

    def lock(
        self, names: Names, *, ttl: Seconds = None, wait: Seconds = None, shared: bool = False, on_lost: OnLost = None
    ) -> Lock:
        """Returns a lock, or several that are acquired together: `with session.lock("invoices", wait=5) as hold`.

        ttl: seconds; None = the session's TTL. With a different TTL, the lock gets its own lease.
        wait: seconds; None = forever, 0 = try once.
        shared: whether other shared holders are admitted at the same time.
        on_lost: function that is called once with the hold, in a separate thread, if the hold is lost.
        """
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, *lock_of(names, shared), ttl, None, wait, on_lost)

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """Returns a lock that acquires one of `permits` permits of a name. All users of a name must pass the same
        number. Otherwise like lock().
        """
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, "permit", [check_name(name)], ttl, str(check_permits(permits)), wait, on_lost)

    def try_acquire_each(
        self, names: Iterable[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Tries to acquire each lock independently, without waiting. Returns a hold or None for each name, in order.

        Raises the errors of Lock.acquire(0), and in that case holds none of the locks.
        """
        check_on_lost(on_lost, of_threads=True)
        return self._run(self._try_each(names, shared, lambda claim: Hold(self, claim, on_lost)))

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """Returns an election, for one candidate.

        value: the candidate's public text while it leads, of 1 to 4096 bytes. None = the session's name, which is
        host:pid by default.
        """
        return Election(self, name, value, ttl)

    @overload
    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, T]], Callable[P, Optional[T]]]: ...

    @overload
    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None, otherwise: D
    ) -> Callable[[Callable[P, T]], Callable[P, Union[T, D]]]: ...

    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None, otherwise: Any = None
    ) -> Callable[[Callable[P, T]], Callable[P, Any]]:
        """Decorator for a function that only one of several replicas runs at a time.

        otherwise: the result of a call that does not run the function, because the name is held or closed.

        The name stays closed until hold_for seconds after the start, even if the function fails or the process dies,
        because the TTL is at least as long. A session that has ended is reopened. Raises the errors of
        Lock.acquire(0). If the server rejects this hold_for, raises InvalidRequest or LimitExceeded before the
        function is called.
        """
        seconds, longer = once_ttl(self._protocol, hold_for, ttl)
        lock = self.lock(check_name(name), ttl=longer)

        def decorate(function: Callable[P, T]) -> Callable[P, Any]:
            check_callable("function", function, of_threads=True)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> Any:
                self.reopen()
                self._run(self._admits(name, seconds))
                hold = lock.try_acquire()
                if hold is None:
                    return otherwise
                try:
                    return function(*args, **kwargs)
                finally:
                    self._leave(hold, seconds)

            return run

        return decorate

    def reopen(self) -> None:
        """Gets a new lease if the session has ended. Its old holds remain lost. Raises the errors of connect()."""
        self._run(self._reopen())

    def close(self, limit: Seconds = None) -> None:
        """Ends all waits, releases all holds, and closes the connection.

        Waits for the server for at most `limit` seconds (None = a quarter of the TTL). If there is no reply, the lease
        expires after its TTL. Does nothing in a forked child.
        """
        seconds = check_limit(limit)
        if self._protocol.forked:
            return
        _goodbye.forget(self)
        patience = (self._protocol.call if seconds is None else seconds) + 1.0
        self._run(self._closed(seconds), nested=True)
        if not self._mutex._is_owned():  # a signal handler that interrupts a call must not wait
            for thread in (self._thread, self._reporter):
                if thread.is_alive() and thread is not threading.current_thread():
                    thread.join(patience)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _say_goodbye(self, limit: float) -> None:
        self.close(limit)

    def _report(self, event: Event, context: contextvars.Context) -> None:
        self._events.put((event, context))

    def _call_on_event(self) -> None:
        for event, context in iter(self._events.get, END):
            try:
                context.run(self._on_event, event)
            except BaseException:  # an exception such as SystemExit would end only this thread
                log.exception("on_event of %r", event)

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        if self._protocol.forked:
            return
        with self._mutex:
            function(*arguments)
            if self._job is not None and self._driver:
                _tell(self._poke)  # the function may have ended the wait of the driver's own call
        self._pass_on()

    def _run(self, steps: Steps[T], nested: bool = False) -> T:
        """Runs the steps of a call in its thread. nested: may run in a signal handler, where it does not wait."""
        self._protocol.check_process()
        handler = self._mutex._is_owned()
        if not handler and not nested and self._driver == threading.get_ident():
            self._hand_over()  # an interrupted call of this thread has left its job behind
        error: Optional[BaseException] = None
        try:
            while True:
                changed = threading.Lock()
                wake = functools.partial(self._end_wait, changed)
                with self._mutex:
                    request, until = steps.send(None) if error is None else steps.throw(error)
                    if handler:
                        raise errors.Unavailable("a handler of a signal, in the middle of another call, cannot wait")
                    job = self._take()
                    if job is None:
                        changed.acquire()
                        request.wakers.append(wake)
                try:
                    if job is not None:
                        self._drive(until)
                    else:
                        left = max(until - self._protocol.clock(), 0.0)
                        changed.acquire(True, -1 if until == NEVER else min(left, threading.TIMEOUT_MAX))
                except BaseException as failure:
                    error = failure
                if job is None:
                    with self._mutex, contextlib.suppress(ValueError):
                        request.wakers.remove(wake)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except errors.Unavailable:
            if handler and nested:
                return None  # type: ignore[return-value]
            raise
        finally:
            with self._mutex:
                steps.close()
                if self._driver == threading.get_ident():  # the call was interrupted
                    self._hand_over()
            self._pass_on()

    def _end_wait(self, changed: Any) -> None:
        self._woken += 1
        changed.release()

    def _take(self) -> Optional[Job]:
        """Returns the next job if it is a turn. The session's own thread runs all other jobs."""
        protocol = self._protocol
        if self._job is not None or protocol.finished:
            return None
        job = protocol.next_job()
        if job is None or not protocol.is_turn:
            if job is not None or protocol.due() < self._sleeps_until:
                self._wake()
            return None
        self._disarm()
        self._job, self._driver = job, threading.get_ident()
        return job

    def _drive(self, until: float) -> None:
        """Runs the job in the caller's thread. Hands it over at `until`, or when another thread uses _poke."""
        me, clock, ready, woken = threading.get_ident(), self._protocol.clock, None, self._woken
        while True:
            with self._mutex:
                if self._driver != me:
                    return  # a signal handler has handed it over
                if not self._step(ready):
                    break
                fd, read, write, job_until = self._waits
            ready = _wait(fd, read, write, min(until, job_until) - clock(), self._poked)
            if not ready and (clock() >= until or _drain(self._poked)):
                self._hand_over()
                return
        if self._woken > woken:
            time.sleep(0)  # lets the threads that were woken up join the next call

    def _step(self, ready: Optional[bool]) -> bool:
        """Resumes the job. Returns False if it has ended."""
        try:
            self._waits = self._job.send(ready)  # type: ignore[union-attr, arg-type]
            return True
        except StopIteration:
            pass
        except BaseException as error:
            if isinstance(error, Exception):
                log.exception("the session ends")
                self._protocol.crashed(error)
            else:  # such as KeyboardInterrupt
                self._protocol.broken(errors.Unavailable(f"the call was interrupted: {error!r}"))
                self._job.close()  # type: ignore[union-attr]  # the interrupt may have arrived after its step
                raise
        self._job, self._driver = None, 0
        self._arm()
        return False

    def _hand_over(self) -> None:
        """Hands the job over to the session's own thread."""
        with self._mutex:
            self._driver = 0
            self._wake()

    def _pass_on(self) -> None:
        """Wakes up a thread for the next job: one that waits for its result, or the session's own thread."""
        protocol = self._protocol
        with self._mutex:
            if self._job is not None or protocol.finished:
                return
            awake = min(protocol.clock() + MAX_SLICE, protocol.main.renew_at)
            if protocol.is_quiet() and self._sleeps_until <= awake:
                return
            if protocol.next_job() is None:
                if protocol.due() < self._sleeps_until:
                    self._wake()
                return
            if protocol.is_turn:
                for lease in protocol.leases.values():
                    for requests in (lease.asks, lease.back, lease.ops):
                        first: Any = next(iter(requests), None)
                        if first is not None and first.wakers:
                            first.wake()
                            return
            self._wake()

    # --- the session's own thread -----------------------------------------------------------------------------------

    def _wake(self) -> None:
        _tell(self._alarm)

    def _arm(self) -> None:
        """Makes the session's own thread watch the unused connection while the session listens."""
        protocol = self._protocol
        if protocol.listening and self._armed < 0 and protocol.connected:
            self._armed = protocol.wire.fd
            self._selector.register(self._armed, selectors.EVENT_READ)
            if isinstance(self._selector, selectors.SelectSelector):
                self._wake()  # select() watches only the descriptors that it was called with

    def _disarm(self) -> None:
        if self._armed >= 0:
            self._selector.unregister(self._armed)
            self._armed = -1

    def _main(self) -> None:
        protocol = self._protocol
        while not protocol.finished:
            with self._mutex:
                protocol.tick()
                now = protocol.clock()
                if self._job is None:
                    self._job = protocol.next_job()
                    self._disarm()
                if self._driver and not self._is_driven():
                    self._driver = 0
                mine = self._job is not None and not self._driver
                if self._job is None:
                    self._arm()
                self._sleeps_until = until = protocol.due() if self._job is None else protocol.watch()
                if self._driver and protocol.close_until is not None and now >= protocol.close_until:
                    protocol.wire.shut()
            if mine:
                self._work()
            elif self._sleep(until):
                with self._mutex:
                    self._notified()
        self._free()

    def _is_driven(self) -> bool:
        """Whether the driver is still in its call. An interrupt may have ended the call before the job's handover."""
        frame = sys._current_frames().get(self._driver)
        while frame is not None and frame.f_code is not Session._run.__code__:
            frame = frame.f_back
        return frame is not None

    def _work(self) -> None:
        """Runs the job in the session's own thread."""
        protocol, ready = self._protocol, None
        while True:
            with self._mutex:
                protocol.tick()
                if not self._step(ready):
                    break
                fd, read, write, until = self._waits
            events = selectors.EVENT_READ * read | selectors.EVENT_WRITE * write
            if fd >= 0 and events:
                self._selector.register(fd, events)
            try:
                ready = self._sleep(min(until, protocol.watch()))
            finally:
                if fd >= 0 and events:
                    self._selector.unregister(fd)

    def _sleep(self, until: float) -> bool:
        """Waits until that time, an alarm or the connection. Returns whether the connection is ready."""
        left = until - self._protocol.clock()
        found = self._selector.select(None if until == NEVER else max(left, 0.0))
        ready = False
        for key, _ in found:
            if key.fileobj is self._alarmed:
                _drain(self._alarmed)
            else:
                ready = True
        return ready

    def _notified(self) -> None:
        if self._job is None:
            try:
                self._protocol.wire.take_notifications()
            except Broken as broken:
                self._disarm()
                self._protocol.broken(broken.error)

    def _free(self) -> None:
        with self._mutex:
            self._disarm()
            self._events.put(END)
            self._selector.close()
            for end in (self._poke, self._poked, self._alarm, self._alarmed):
                end.close()

    def _leave(self, hold: Hold, hold_for: float = 0.0) -> None:
        """Releases the hold at the end of a block. A failure is only logged, because the work in the block was done."""
        try:
            hold.release(hold_for)
        except errors.Error as error:
            log.warning("%r is not released: %s", hold, error)


def _tell(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the buffer is full of earlier wake-ups, or the session has ended
        end.send(b"!")


def _drain(end: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return bool(end.recv(4096))
    return False


_RLock: Any = type(threading.RLock())
_depth: Any = getattr(_RLock, "_recursion_count", _RLock._is_owned)


class Mutex(_RLock):  # type: ignore[misc]
    """An RLock that an interrupt cannot leave locked.

    Since Python 3.14 a signal can be handled between the entry of a with block and its first statement if __enter__ is
    a C function. If the signal handler then raises an exception, __exit__ is never called.
    """

    def __enter__(self) -> bool:
        before = _depth(self)
        try:
            return bool(self.acquire())
        except BaseException:
            if _depth(self) > before:
                self.release()
            raise


def _wait(fd: int, read: bool, write: bool, seconds: float, poked: socket.socket) -> bool:
    """Waits for the descriptor, for at most `seconds`, or until a poke. Returns whether it is ready."""
    seconds = max(seconds, 0.0)
    if not hasattr(select, "poll"):
        found = select.select([fd] * read + [poked], [fd] * write, [], seconds)
        return fd in found[0] or fd in found[1]
    poll = select.poll()
    poll.register(fd, select.POLLIN * read | select.POLLOUT * write)
    poll.register(poked, select.POLLIN)
    return any(found == fd for found, _ in poll.poll(math.ceil(seconds * 1000)))


def connect(
    conninfo: str = "", *, ttl: Duration = 30.0, name: Optional[str] = None, on_event: OnEvent = None
) -> Session:
    """Opens a session with its own connection, and a lease that expires `ttl` seconds after its last renewal.

    conninfo: same as for psycopg.connect(), with one or several hosts. If empty, PGHOST, PGDATABASE, ... apply.
    ttl: seconds, from 0.1 to 2073600 (24 days).
    name: the name that operators see for this process; None = host:pid.
    on_event: function that is called with each Event, one after the other, in a separate thread.

    Raises Unavailable, NotInstalled, AccessDenied, LimitExceeded or InvalidRequest.
    """
    return Session(conninfo, ttl, name, on_event)


def install(connection: psycopg.Connection[Any], schema: Optional[str] = None, *, grant: Optional[str] = None) -> None:
    """Installs or upgrades the portable edition of lock_election, which has no C code, in one transaction.

    If this version is already installed, does nothing and needs no privilege. Otherwise the role needs CREATE on the
    database. It becomes the owner of all locks, so it should not be the application's role.

    connection: a psycopg connection without an open transaction. Its settings are left unchanged.
    schema: the schema for the functions, created if missing. None = the first schema of search_path. An edition
    that is already installed stays in its schema.
    grant: the role that may use the schema. None = all roles may use a schema that this call creates.

    Raises AccessDenied if the role lacks CREATE or another role has installed the edition, InvalidRequest if a
    transaction is open or there is no schema, Unavailable on a standby or in a read-only session, and ServerError if a
    newer version or the extension is installed or the server cannot run the edition. Raises OutcomeUnknown if the
    outcome is not known; the call can be repeated.
    """
    with contextlib.suppress(StopIteration):  # the coroutine never waits
        _install.install(connection, schema, grant, _settled).send(None)

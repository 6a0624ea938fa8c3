"""Sessions for threads, which share one connection.

A thread that asks for something makes the call itself, for all that wait, where the connection is free. The session's
own thread does all else: it connects, renews, listens, and takes over a call whose thread goes away.
"""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, TypeVar

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
from ._protocol import END, LOST, MAX_SLICE, NEVER, Broken, Claim, Job, Leader, Observer

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
OnLost = Optional[Callable[["Hold"], object]]

log = logging.getLogger("lock_election")


async def _settled(value: Any) -> Any:
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise errors.InvalidRequest("a connection of asyncio, for threads")
    return value


class Lost(ByClock, threading.Event):
    """Set when the hold is not valid any more, by the clock: also where nothing has told it yet."""

    def wait(self, timeout: Seconds = None) -> bool:
        """Waits until it is lost, for at most timeout seconds. Tells whether it is."""
        clock = self._protocol.clock
        until = math.inf if timeout is None else clock() + check_seconds("timeout", timeout, -math.inf)
        while not self.is_set() and clock() < until:
            left = min(self._protocol.time_left(self._claim), until - clock(), MAX_SLICE)
            super().wait(max(left, 0.0))
        return self.is_set()


class Hold(Told):
    """A lock, permit or several locks that are held. A context manager, which releases it."""

    def __init__(self, session: Session, claim: Claim, on_lost: OnLost = None) -> None:
        super().__init__(session._protocol, claim)
        self._session = session
        self.lost: threading.Event = Lost(self)
        """Set when it is not held any more."""
        claim.ended = functools.partial(_ended, weakref.ref(self), self.lost, on_lost)

    def fence(self, connection: Any) -> None:
        """From here to the end of this connection's transaction nobody else gets the lock.

        connection: the application's, to the same database, in an open transaction: of psycopg or any other DB-API
        driver, a Connection or Session of SQLAlchemy, or Django's.

        LockLost: roll back. InvalidRequest: no transaction is open. Other errors are those of the driver.
        """
        self._protocol.check_process()
        try:
            with contextlib.suppress(StopIteration):  # it never waits
                fence(self._protocol, self._claim, connection, _settled).send(None)
        finally:
            self._session._pass_on()

    def release(self, hold_for: Duration = 0.0) -> Optional[bool]:
        """Gives it back; it is over when this is called. Waits for the server for at most a quarter of the TTL.

        hold_for: the name stays closed until so many seconds after it was acquired.

        True: it was held until now. False: it had been lost before. None: the server has not answered, and the session
        goes on trying; or this is a forked child, which has nothing to give back. InvalidRequest, LimitExceeded: the
        server does not allow this hold_for, and it is released without.
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
        except RuntimeError as error:  # no more threads: the loss is told by lost alone, and that of other holds too
            log.error("on_lost is not called of %r: %s", hold, error)


class Term(Hold):
    """A term as the leader of an election; `token` is its number."""

    def proclaim(self, value: str) -> None:
        """Changes the text that everybody sees. LockLost: this term does not lead any more; OutcomeUnknown."""
        self._session._run(self._session._proclaim(self._claim, value))

    def resign(self) -> Optional[bool]:
        """As release()."""
        return self.release()


class Lock(LockBase["Session", Hold]):
    """A lock, several locks at once, or a permit, to be acquired. A context manager: `with lock as hold`."""

    def acquire(self, wait: Seconds = DEFAULT) -> Hold:
        """Waits for at most `wait` seconds (None: for ever; 0: tries once), in the order of arrival.

        That bounds the time in the queue. The server's first answer takes at most a quarter of the TTL: what is free is
        acquired, however short the wait is.

        NotAcquired: it is held by others, or the time is over. LockLost: the session has ended. Canceled: by cancel()
        or close(). LimitExceeded, AccessDenied, InvalidRequest, NotInstalled. Unavailable: wait is 0, and the server
        has not answered.
        """
        return self._session._run(self._claim(wait, lambda claim: Hold(self._session, claim, self._on_lost)))

    def try_acquire(self) -> Optional[Hold]:
        """None: somebody else has it, or is queued for it. Errors as acquire()."""
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
    """An iterator of who leads: a Leader, or None while nobody does. The present leader comes first.

    `with` waits for that, for at most a quarter of the TTL: all that happens in its block is told.
    """

    def __init__(self, session: Session, election: str) -> None:
        self._session = session
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._first: List[Any] = []
        self._observer = Observer(election, self._queue.put)
        session._post(session._protocol.observe, self._observer)

    def close(self) -> None:
        """Ends the iteration, also in another thread that waits."""
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
    """An election, for one candidate."""

    def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Stands for election, and waits to be elected. Waits and errors as Lock.acquire()."""
        check_on_lost(on_lost, of_threads=True)
        steps = self._standing._claim(wait, lambda claim: Term(self._session, claim, on_lost))
        return self._session._run(steps)

    def leader(self) -> Optional[Leader]:
        """Who leads? None: nobody. Unavailable: the server does not answer."""
        return self._session._run(self._leader())

    def observe(self) -> Watch:
        """An iterator of who leads, from now on, each change in order."""
        self._session._protocol.check_process()
        return Watch(self._session, self.name)

    def run(self, lead: Callable[[Term, threading.Event], T]) -> Optional[T]:
        """Stands for election until it has led: calls lead(term, lost) when elected, resigns when that has returned.

        lead returns what run() returns; if the term was lost meanwhile it stands again, with a new lease where the
        session has ended. None: cancel() was called, or the session was closed. Other errors of lead end it as well.
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
    """One connection and one lease, for all threads of a process. Made by connect(). A context manager."""

    def __init__(self, conninfo: str, ttl: Duration, name: Optional[str]) -> None:
        super().__init__(conninfo, ttl, name)
        self._mutex: Any = Mutex()  # of all below, and of the protocol; nobody waits with it
        self._job: Optional[Job] = None  # under way
        self._driver = 0  # the thread that runs it; 0: the session's own
        self._poke, self._poked = socket.socketpair()  # ends the driver's wait
        self._alarm, self._alarmed = socket.socketpair()  # ends that of the session's own thread
        for end in (self._poke, self._poked, self._alarm, self._alarmed):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._alarmed, selectors.EVENT_READ)
        self._armed = -1  # the descriptor of the connection, while the session's own thread watches it
        self._sleeps_until = 0.0
        self._waits = (-1, False, False, 0.0)  # of the job
        self._woken = 0  # how often a caller's wait was ended
        try:
            self._start(self._wake)
            self._thread = _goodbye.Thread(target=self._main, name="lock_election", daemon=True)
            self._thread.start()
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
        """A lock, or several at once, all or none: `with session.lock("invoices", wait=5) as hold`.

        ttl: seconds; another than the session's gets a lease of its own. wait: seconds, None: for ever, 0: tries
        once. on_lost(hold) is called in a thread of its own, once, if it is lost.
        """
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, *lock_of(names, shared), ttl, None, wait, on_lost)

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """One of so many permits; all users of a name state the same number. Otherwise as lock()."""
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, "permit", [check_name(name)], ttl, str(check_permits(permits)), wait, on_lost)

    def try_acquire_each(
        self, names: Iterable[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Each of these for itself, without waiting: its hold, or None where somebody else has it."""
        check_on_lost(on_lost, of_threads=True)
        return self._run(self._try_each(names, shared, lambda claim: Hold(self, claim, on_lost)))

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """An election; `value` is the text that everybody sees of this candidate while it leads: 1 to 4096 bytes.

        None: the name of the session, which is host:pid where connect() was given none.
        """
        return Election(self, name, value, ttl)

    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, T]], Callable[P, Optional[T]]]:
        """A decorator: of all replicas that call the function at a time one runs it, the others skip it (None).

        The name stays closed until hold_for seconds after the start, also if the function fails or the process dies:
        the TTL is at least as long. Errors as Lock.acquire(0); a session that has ended is opened again. Not called if
        the server does not take this hold_for: InvalidRequest, LimitExceeded.
        """
        seconds, longer = once_ttl(self._protocol, hold_for, ttl)
        lock = self.lock(check_name(name), ttl=longer)

        def decorate(function: Callable[P, T]) -> Callable[P, Optional[T]]:
            check_callable("function", function, of_threads=True)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> Optional[T]:
                self.reopen()
                self._run(self._admits(name, seconds))
                hold = lock.try_acquire()
                if hold is None:
                    return None
                try:
                    return function(*args, **kwargs)
                finally:
                    self._leave(hold, seconds)

            return run

        return decorate

    def reopen(self) -> None:
        """Grants the session a new lease, if it has ended; what it held stays lost. Errors as connect()."""
        self._run(self._reopen())

    def close(self, limit: Seconds = None) -> None:
        """Ends all waits, gives all back, and closes the connection.

        Waits for the server for at most `limit` seconds (None: a quarter of the TTL); without an answer the lease ends
        at its TTL. In a forked child it does nothing.
        """
        seconds = check_limit(limit)
        if self._protocol.forked:
            return
        _goodbye.forget(self)
        patience = (self._protocol.call if seconds is None else seconds) + 1.0
        self._run(self._closed(seconds), nested=True)
        if not self._mutex._is_owned():  # a handler of a signal, in the middle of a call, does not wait
            self._thread.join(patience)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _say_goodbye(self, limit: float) -> None:
        self.close(limit)

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        if self._protocol.forked:
            return
        with self._mutex:
            function(*arguments)
            if self._job is not None and self._driver:
                _tell(self._poke)  # the driver's own wait may have ended
        self._pass_on()

    def _run(self, steps: Steps[T], nested: bool = False) -> T:
        """Runs the steps of a call in its thread. nested: in a handler of a signal it does not wait."""
        self._protocol.check_process()
        handler = self._mutex._is_owned()
        if not handler and not nested and self._driver == threading.get_ident():
            self._hand_over()  # what an interrupted call has left
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
                if self._driver == threading.get_ident():  # it was interrupted
                    self._hand_over()
            self._pass_on()

    def _end_wait(self, changed: Any) -> None:
        self._woken += 1
        changed.release()

    def _take(self) -> Optional[Job]:
        """The next job, for a caller: it makes calls, and leaves all else to the session's own thread."""
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
        """Runs the job in the caller's thread. It ends, or is handed over at that time, or when a caller pokes."""
        me, clock, ready, woken = threading.get_ident(), self._protocol.clock, None, self._woken
        while True:
            with self._mutex:
                if self._driver != me:
                    return  # a handler of a signal has handed it over
                if not self._step(ready):
                    break
                fd, read, write, job_until = self._waits
            ready = _wait(fd, read, write, min(until, job_until) - clock(), self._poked)
            if not ready and (clock() >= until or _drain(self._poked)):
                self._hand_over()
                return
        if self._woken > woken:
            time.sleep(0)  # those that were woken join the next call

    def _step(self, ready: Optional[bool]) -> bool:
        """Goes on with the job; False: it is over."""
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
                self._job.close()  # type: ignore[union-attr]  # the interrupt may have come behind its step
                raise
        self._job, self._driver = None, 0
        self._arm()
        return False

    def _hand_over(self) -> None:
        """The session's own thread goes on with the job."""
        with self._mutex:
            self._driver = 0
            self._wake()

    def _pass_on(self) -> None:
        """Somebody does what is to be done next: one of those that wait for it, or the session's own thread."""
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
        """While it listens, it watches the connection that nobody uses."""
        protocol = self._protocol
        if protocol.listening and self._armed < 0 and protocol.connected:
            self._armed = protocol.wire.fd
            self._selector.register(self._armed, selectors.EVENT_READ)
            if isinstance(self._selector, selectors.SelectSelector):
                self._wake()  # what it waits for was fixed when it began to wait

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
        """Is the driver still in its call? An interrupt may have come before it could hand its job over."""
        frame = sys._current_frames().get(self._driver)
        while frame is not None and frame.f_code is not Session._run.__code__:
            frame = frame.f_back
        return frame is not None

    def _work(self) -> None:
        """Runs the job here."""
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
        """Is the connection ready?"""
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
            self._selector.close()
            for end in (self._poke, self._poked, self._alarm, self._alarmed):
                end.close()

    def _leave(self, hold: Hold, hold_for: float = 0.0) -> None:
        """A release is never an error of the work."""
        try:
            hold.release(hold_for)
        except errors.Error as error:
            log.warning("%r is not released: %s", hold, error)


def _tell(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was told already, or has ended
        end.send(b"!")


def _drain(end: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return bool(end.recv(4096))
    return False


_RLock: Any = type(threading.RLock())
_depth: Any = getattr(_RLock, "_recursion_count", _RLock._is_owned)


class Mutex(_RLock):  # type: ignore[misc]
    """An RLock that no interrupt leaves locked.

    Since Python 3.14 a signal can be handled between the entry of a with block, if that is a function in C, and its
    first statement. An exception of the handler then leaves the block without its exit.
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
    """Is the descriptor ready, within this time, and before somebody pokes?"""
    seconds = max(seconds, 0.0)
    if not hasattr(select, "poll"):
        found = select.select([fd] * read + [poked], [fd] * write, [], seconds)
        return fd in found[0] or fd in found[1]
    poll = select.poll()
    poll.register(fd, select.POLLIN * read | select.POLLOUT * write)
    poll.register(poked, select.POLLIN)
    return any(found == fd for found, _ in poll.poll(math.ceil(seconds * 1000)))


def connect(conninfo: str = "", *, ttl: Duration = 30.0, name: Optional[str] = None) -> Session:
    """Opens a session: one connection of its own, and one lease that lasts for `ttl` seconds without a renewal.

    conninfo: as for psycopg.connect(), also with several hosts; empty: the variables PGHOST, PGDATABASE, ...
    name: what operators see of this process; the host and the process id otherwise.

    Unavailable, NotInstalled, AccessDenied, LimitExceeded, InvalidRequest.
    """
    return Session(conninfo, ttl, name)


def install(connection: psycopg.Connection[Any], schema: Optional[str] = None, *, grant: Optional[str] = None) -> None:
    """Installs the portable edition of lock_election, the one without C, or upgrades it, in one transaction.

    Does nothing where this version is there already, whoever calls. The role needs CREATE on the database, and owns all
    locks afterwards: it should not be the application's.

    connection: of psycopg, without an open transaction; it is as before afterwards.
    schema: for the functions, made if it is missing; the first one of search_path otherwise. An edition that is
    installed stays in its schema.
    grant: the role that may use the schema; everybody may use one that is made otherwise.

    AccessDenied: no CREATE, or another role has installed. InvalidRequest: a transaction is open, or no schema.
    ServerError: a newer version is there, or the extension, or the server cannot run it. Unavailable: a standby, or a
    read-only session. OutcomeUnknown: it may be installed, call again.
    """
    with contextlib.suppress(StopIteration):  # it never waits
        _install.install(connection, schema, grant, _settled).send(None)

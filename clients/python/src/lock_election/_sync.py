"""Sessions for threads: a session of asyncio in one background thread, which any thread may ask."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import math
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Iterable, Iterator, List, Optional, Type, TypeVar

from . import _errors as errors
from . import _goodbye, aio
from ._base import (
    ByClock,
    Duration,
    Entered,
    Names,
    Seconds,
    Told,
    check_callable,
    check_limit,
    check_on_lost,
    check_seconds,
)
from ._fence import fence
from ._protocol import END, HELD, LOST, MAX_SLICE, Claim, Leader, Observer

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
OnLost = Optional[Callable[["Hold"], object]]

log = logging.getLogger("lock_election")

_DEFAULT: Any = aio._DEFAULT


async def _settled(value: Any) -> Any:
    if asyncio.iscoroutine(value):
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
        super().__init__(session._inner._protocol, claim)
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
        with contextlib.suppress(StopIteration):  # it never waits
            fence(self._protocol, self._claim, connection, _settled).send(None)

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
            return self._session._run(self._session._inner._release(self._claim, hold_for))
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
        threading.Thread(target=on_lost, args=(hold,), name="lock_election-lost", daemon=True).start()


class Term(Hold):
    """A term as the leader of an election; `token` is its number."""

    def proclaim(self, value: str) -> None:
        """Changes the text that everybody sees. LockLost: this term does not lead any more; OutcomeUnknown."""
        self._session._run(self._session._inner._proclaim(self._claim, value))

    def resign(self) -> Optional[bool]:
        """As release()."""
        return self.release()


class Lock:
    """A lock, several locks at once, or a permit, to be acquired. A context manager: `with lock as hold`."""

    def __init__(self, session: Session, lock: aio.Lock, on_lost: OnLost) -> None:
        self._session, self._lock, self._on_lost = session, lock, on_lost
        self._entered: Entered[Hold] = Entered()

    def acquire(self, wait: Seconds = _DEFAULT) -> Hold:
        """Waits for at most `wait` seconds (None: for ever; 0: tries once), in the order of arrival.

        That bounds the time in the queue. The server's first answer takes at most a quarter of the TTL: what is free is
        acquired, however short the wait is.

        NotAcquired: it is held by others, or the time is over. LockLost: the session has ended. Canceled: by cancel()
        or close(). LimitExceeded, AccessDenied, InvalidRequest, NotInstalled. Unavailable: wait is 0, and the server
        has not answered.
        """
        hold: Hold = self._session._run(self._session._hold(Hold, lambda: self._lock._claim(wait), self._on_lost))
        return hold

    def try_acquire(self) -> Optional[Hold]:
        """None: somebody else has it, or is queued for it. Errors as acquire()."""
        try:
            return self.acquire(0)
        except errors.NotAcquired:
            return None

    def cancel(self) -> None:
        """Ends the waits of this object in other threads, with Canceled."""
        self._session._post(self._lock.cancel)

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._entered.push(threading.get_ident(), hold)
        return hold

    def __exit__(self, *unused: object) -> None:
        self._session._leave(self._entered.pop(threading.get_ident()))


class Watch:
    """An iterator of who leads: a Leader, or None while nobody does. The present leader comes first."""

    def __init__(self, session: Session, election: str) -> None:
        self._session = session
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._observer = Observer(election, self._queue.put)

    async def _open(self) -> Watch:
        self._session._inner._protocol.observe(self._observer)
        return self

    def close(self) -> None:
        """Ends the iteration, also in another thread that waits."""
        self._session._post(self._session._inner._protocol.unobserve, self._observer)

    def __iter__(self) -> Iterator[Optional[Leader]]:
        return self

    def __next__(self) -> Optional[Leader]:
        leader: Optional[Leader] = self._queue.get()
        if leader is END:
            self._queue.put(END)
            raise StopIteration
        return leader

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class Election:
    """An election, for one candidate."""

    def __init__(self, session: Session, election: aio.Election) -> None:
        self.name, self.value = election.name, election.value
        self._session, self._election = session, election

    def campaign(self, wait: Seconds = None, on_lost: OnLost = None) -> Term:
        """Stands for election, and waits to be elected. Waits and errors as Lock.acquire()."""
        check_on_lost(on_lost, of_threads=True)
        standing = self._election._standing
        term: Term = self._session._run(self._session._hold(Term, lambda: standing._claim(wait), on_lost))
        return term

    def leader(self) -> Optional[Leader]:
        """Who leads? None: nobody. Unavailable: the server does not answer."""
        return self._session._run(self._election.leader())

    def observe(self) -> Watch:
        """An iterator of who leads, from now on, each change in order."""
        return self._session._run(Watch(self._session, self.name)._open())

    def run(self, lead: Callable[[Term, threading.Event], T]) -> Optional[T]:
        """Stands for election until it has led: calls lead(term, lost) when elected, resigns when that has returned.

        lead returns what run() returns; if the term was lost meanwhile it stands again, with a new lease where the
        session has ended. None: cancel() was called, or the session was closed. Other errors of lead end it as well.
        """
        check_callable("lead", lead, of_threads=True)
        while True:
            term: Optional[Term] = self._session._run(self._session._hold(Term, self._election._stand, None))
            if term is None:
                return None
            with term:
                try:
                    result = lead(term, term.lost)
                    if term.valid or self._session._inner._protocol.forked:
                        return result
                except errors.LockLost:
                    if term.valid or self._session._inner._protocol.forked:
                        raise

    def cancel(self) -> None:
        """Ends the campaigns of this object in other threads, and run() when lead has returned."""
        self._session._post(self._election.cancel)


class Session:
    """One connection and one lease, for all threads of a process. Made by connect(). A context manager."""

    def __init__(self, conninfo: str, ttl: Duration, name: Optional[str]) -> None:
        self._inner = aio.Session(conninfo, ttl, name)
        self._gate = threading.RLock()  # a handler of a signal may come in the middle of a call
        self._closed = False
        self._loop = asyncio.SelectorEventLoop()
        self._thread = _goodbye.Thread(target=self._main, name="lock_election", daemon=True)
        self._thread.start()
        try:
            self._run(self._inner._begin())
        except BaseException:
            self.close(0)
            raise
        _goodbye.remember(self)

    @property
    def state(self) -> str:
        """'connected'; 'suspended': no connection now, and what is held still is; 'ended'."""
        return self._inner.state

    @property
    def lease(self) -> int:
        """The number of the lease on the server."""
        return self._inner.lease

    def lock(
        self, names: Names, *, ttl: Seconds = None, wait: Seconds = None, shared: bool = False, on_lost: OnLost = None
    ) -> Lock:
        """A lock, or several at once, all or none: `with session.lock("invoices", wait=5) as hold`.

        ttl: seconds; another than the session's gets a lease of its own. wait: seconds, None: for ever, 0: tries
        once. on_lost(hold) is called in a thread of its own, once, if it is lost.
        """
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, self._inner.lock(names, ttl=ttl, wait=wait, shared=shared), on_lost)

    def permit(
        self, name: str, permits: int, *, ttl: Seconds = None, wait: Seconds = None, on_lost: OnLost = None
    ) -> Lock:
        """One of so many permits; all users of a name state the same number. Otherwise as lock()."""
        check_on_lost(on_lost, of_threads=True)
        return Lock(self, self._inner.permit(name, permits, ttl=ttl, wait=wait), on_lost)

    def try_acquire_each(
        self, names: Iterable[str], *, shared: bool = False, on_lost: OnLost = None
    ) -> List[Optional[Hold]]:
        """Each of these for itself, without waiting: its hold, or None where somebody else has it."""

        check_on_lost(on_lost, of_threads=True)

        async def each() -> List[Optional[Hold]]:
            claims = await self._inner._try_each(names, shared)
            return [Hold(self, claim, on_lost) if claim.state is HELD else None for claim in claims]

        return self._run(each())

    def election(self, name: str, value: Optional[str] = None, *, ttl: Seconds = None) -> Election:
        """An election; `value` is the text that everybody sees of this candidate while it leads: 1 to 4096 bytes.

        None: the name of the session, which is host:pid where connect() was given none.
        """
        return Election(self, self._inner.election(name, value, ttl=ttl))

    def once(
        self, name: str, hold_for: Duration, *, ttl: Seconds = None
    ) -> Callable[[Callable[P, T]], Callable[P, Optional[T]]]:
        """A decorator: of all replicas that call the function at a time one runs it, the others skip it (None).

        The name stays closed until hold_for seconds after the start, also if the function fails or the process dies:
        the TTL is at least as long. Errors as Lock.acquire(0); a session that has ended is opened again. Not called if
        the server does not take this hold_for: InvalidRequest, LimitExceeded.
        """
        inner, seconds = self._inner._once(name, hold_for, ttl)
        lock = Lock(self, inner, None)

        def decorate(function: Callable[P, T]) -> Callable[P, Optional[T]]:
            check_callable("function", function, of_threads=True)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> Optional[T]:
                self.reopen()
                self._run(self._inner._admits(name, seconds))
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
        self._run(self._inner.reopen())

    def close(self, limit: Seconds = None) -> None:
        """Ends all waits, gives all back, and closes the connection.

        Waits for the server for at most `limit` seconds (None: a quarter of the TTL); without an answer the lease ends
        at its TTL. In a forked child it does nothing.
        """
        seconds = check_limit(limit)
        if self._inner._machine is not None and self._inner._machine.forked:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True
            _goodbye.forget(self)
            closing = asyncio.run_coroutine_threadsafe(self._inner.close(seconds), self._loop)
        try:
            closing.result((self._inner._protocol.call if seconds is None else seconds) + 1.0)
        except concurrent.futures.TimeoutError:
            pass
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(1.0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._inner._is_over()

    def _say_goodbye(self, limit: float) -> None:
        self.close(limit)

    def _main(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.run_forever()
        late = asyncio.all_tasks(loop)
        for task in late:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*late, return_exceptions=True))
        loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the session's thread, and waits for what it returns."""
        try:
            if self._inner._worker is not None:
                self._inner._protocol.check_process()
            with self._gate:
                if self._closed:
                    raise errors.Canceled("the session is closed")
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()  # a handler has closed the session meanwhile
            raise errors.Canceled("the session is closed") from None
        except errors.Error:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise errors.Canceled("the session was closed") from None
        except BaseException:
            future.cancel()
            raise

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls it in the session's thread, and does not wait. It ends something, of which a child has nothing."""
        if self._inner._protocol.forked:
            return
        with self._gate:
            if not self._closed:
                with contextlib.suppress(RuntimeError):  # a handler has closed the session meanwhile
                    self._loop.call_soon_threadsafe(function, *arguments)

    async def _hold(
        self, kind: Type[HoldT], claim: Callable[[], Coroutine[Any, Any, Optional[Claim]]], on_lost: OnLost
    ) -> Any:
        found = await claim()
        return None if found is None else kind(self, found, on_lost)

    def _leave(self, hold: Hold, hold_for: float = 0.0) -> None:
        """A release is never an error of the work."""
        try:
            hold.release(hold_for)
        except errors.Error as error:
            log.warning("%r is not released: %s", hold, error)


def connect(conninfo: str = "", *, ttl: Duration = 30.0, name: Optional[str] = None) -> Session:
    """Opens a session: one connection of its own, and one lease that lasts for `ttl` seconds without a renewal.

    conninfo: as for psycopg.connect(), also with several hosts; empty: the variables PGHOST, PGDATABASE, ...
    name: what operators see of this process; the host and the process id otherwise.

    Unavailable, NotInstalled, AccessDenied, LimitExceeded, InvalidRequest.
    """
    return Session(conninfo, ttl, name)

"""The part that the threaded and the asyncio sessions share: argument checks, and the steps of each call.

The steps of a call are a generator. It yields a request and a time, and is resumed when the request has changed or
the time is reached. Each kind of session runs the generator in its own way.
"""

from __future__ import annotations

import collections.abc
import contextvars
import datetime
import inspect
import logging
import math
import operator
import os
import socket
import warnings
from typing import Any, Callable, Generator, Generic, Iterable, List, Optional, Tuple, TypeVar, Union

from . import _errors as errors
from ._clock import clock
from ._fence import statement
from ._protocol import HELD, LOST, QUEUED, WAITING, Claim, Event, Leader, Protocol, Request, Rows, jitter, ms
from ._wire import PgWire

log = logging.getLogger("lock_election")

Names = Union[str, Iterable[str]]
Duration = Union[float, datetime.timedelta]
"""Seconds, or a timedelta."""
Seconds = Optional[Duration]
TTL = (0.1, 24 * 86400)
HOLD_FOR = (0, TTL[1])
PERMITS = (1, 2**31 - 1)
DEFAULT: Any = object()

T = TypeVar("T")
H = TypeVar("H")
OnEvent = Optional[Callable[[Event], object]]
Steps = Generator[Tuple[Request, float], None, T]


def wrong(what: str, value: object, allowed: str) -> errors.InvalidRequest:
    """Returns the error for an invalid argument. The message names the argument, its value and the allowed values."""
    shown = repr(value)
    return errors.InvalidRequest(f"{what} is {shown if len(shown) <= 200 else shown[:200] + '...'}: {allowed}")


def check_seconds(what: str, value: object, low: float = 0, high: float = math.inf, none: str = "") -> float:
    """Returns a timedelta or a number as a float of seconds. Converts a Decimal, too: it cannot be added to a float.

    Raises InvalidRequest if it is not a number within the bounds.
    """
    try:
        if isinstance(value, datetime.timedelta):
            seconds = value.total_seconds()
        else:
            not_a_number = isinstance(value, (str, bytes, bytearray, bool, type(None)))
            seconds = math.nan if not_a_number else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not low <= seconds <= high:
        bounds = f"from {low} to {high}" if high < math.inf else f"{low} or more"
        raise wrong(what, value, f"it must be a number of seconds or a timedelta, {bounds}{none}")
    return seconds


def check_wait(wait: object) -> Optional[float]:
    return None if wait is None else check_seconds("wait", wait, none="; or None, for ever")


def check_ttl(ttl: object) -> Optional[float]:
    return None if ttl is None else check_seconds("ttl", ttl, *TTL, none="; or None, for the session's")


def check_limit(limit: object) -> Optional[float]:
    """Returns the limit of close() in seconds, capped because timers cannot run for longer than some weeks."""
    if limit is None:
        return None
    return min(check_seconds("limit", limit, none="; or None, for a quarter of the TTL"), 1e6)


def check_permits(permits: object) -> int:
    try:
        number = 0 if isinstance(permits, bool) else operator.index(permits)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if not PERMITS[0] <= number <= PERMITS[1]:
        raise wrong("permits", permits, f"it must be an int from {PERMITS[0]} to {PERMITS[1]}")
    return number


def wrong_text(what: str, text: object, allowed: str) -> errors.InvalidRequest:
    """Returns the error for an argument that is not a str. For bytes, which queues often return, it names decode()."""
    is_bytes = isinstance(text, (bytes, bytearray, memoryview))
    return wrong(what, text, f"it must be {allowed}" + ("; pass bytes(..).decode()" if is_bytes else ""))


def check_text(what: str, text: object) -> str:
    """Returns the text as a plain str. Rejects texts that PostgreSQL cannot store: a NUL would cut the text, and a lone
    surrogate would end the session.
    """
    if not isinstance(text, str):
        raise wrong_text(what, text, "a str")
    text = str.__str__(text)  # for an enum that is a str: its value, even if it is formatted differently
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong(what, text, "it must be Unicode, without lone surrogates") from None
    if "\0" in text:
        raise wrong(what, text, "it must not contain a NUL")
    return text


def check_name(name: object, what: str = "name") -> str:
    text = check_text(what, name)
    if not text:
        raise wrong(what, name, "it must not be empty")
    return text


def check_names(names: object) -> List[str]:
    """Returns one name, or several, as a list."""
    if isinstance(names, str):
        return [check_name(names)]
    if isinstance(names, (bytes, bytearray, memoryview)) or not isinstance(names, collections.abc.Iterable):
        raise wrong_text("name", names, "a str, or a list of them")
    several = [check_name(name, "a name in the list") for name in names]
    if not several:
        raise wrong("names", several, "at least one name is needed")
    return several


def check_flag(what: str, flag: object) -> bool:
    if not isinstance(flag, bool):
        raise wrong(what, flag, "it must be True or False")
    return flag


def check_callable(what: str, function: object, of_threads: bool = False) -> None:
    if not callable(function):
        raise wrong(what, function, "it must be something to call")
    if of_threads and inspect.iscoroutinefunction(function):
        raise wrong(what, function, "a function of asyncio needs a session of lock_election.aio")


def check_on_lost(on_lost: object, of_threads: bool = False) -> None:
    if on_lost is not None:
        check_callable("on_lost", on_lost, of_threads)


class Entered(Generic[H]):
    """The holds of all with blocks of one lock. Threads or tasks may share the lock; each block ends its own hold."""

    def __init__(self) -> None:
        self._holds: List[Tuple[object, H]] = []

    def push(self, who: object, hold: H) -> None:
        self._holds.append((who, hold))

    def pop(self, who: object) -> H:
        """Removes and returns the last hold of this thread or task, or of any thread or task if it has none."""
        found = next((entry for entry in reversed(self._holds) if entry[0] == who), self._holds[-1])
        self._holds.remove(found)
        return found[1]


class Told:
    """The properties of a hold that need no I/O."""

    def __init__(self, protocol: Protocol, claim: Claim) -> None:
        self._protocol, self._claim = protocol, claim

    @property
    def names(self) -> Tuple[str, ...]:
        """The names of the locks, or the name of the election."""
        return self._claim.names

    @property
    def token(self) -> int:
        """The token, which proves ownership. For an exclusive lock or a term it is also the fencing token, which only
        grows.
        """
        return self._claim.token

    @property
    def time_left(self) -> float:
        """Seconds for which `valid` stays true without another renewal; 0.0 if the lock is no longer held."""
        return self._protocol.time_left(self._claim)

    @property
    def valid(self) -> bool:
        """Whether the lock is held. If so, no other client can get it before the local deadline. Does no I/O."""
        return self.time_left > 0

    def fence_sql(self) -> str:
        """Returns the statement of a fence as a text without parameters, for any ORM.

        Run it in an open transaction, before its writes. If it fails, with SQLSTATE LE001 if the hold is lost, roll
        back. Outside of a transaction it succeeds, but protects nothing. Raises LockLost if the hold is no longer
        held.
        """
        self._protocol.check_process()
        return statement(self._protocol, self._claim)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names))
        return f"<{type(self).__name__} {names} token {self.token}, {self.time_left:.1f} s left>"

    def __del__(self) -> None:
        protocol, claim = self._protocol, self._claim
        if (claim.state is HELD or claim.evicted) and not protocol.finished and not protocol.forked:
            protocol.dropped.append(claim)  # the next tick() releases it
            warnings.warn(f"{self} was never released", ResourceWarning, stacklevel=2, source=self)


class ByClock:
    """Makes is_set() of an event return True once the hold is no longer valid."""

    def __init__(self, hold: Told) -> None:
        super().__init__()
        self._protocol, self._claim = hold._protocol, hold._claim

    def is_set(self) -> bool:
        return self._protocol.time_left(self._claim) <= 0


class SessionBase:
    """The calls of a session, as generators of steps."""

    def __init__(self, conninfo: str, ttl: Duration, name: Optional[str], on_event: OnEvent = None) -> None:
        name = None if name is None else check_text("name", name)
        self._arguments = (conninfo, check_seconds("ttl", ttl, *TTL), name)
        self._on_event = on_event
        self._machine: Optional[Protocol] = None

    def _start(self, wake: Callable[[], object], before_close: Callable[[], object] = lambda: None) -> None:
        conninfo, ttl, name = self._arguments
        protocol = Protocol(ttl, name or f"{socket.gethostname()}:{os.getpid()}", clock())
        protocol.wire = wire = PgWire(conninfo, protocol, wake)
        wire.before_close = before_close
        protocol.report = None if self._on_event is None else self._report
        self._machine = protocol

    @property
    def _protocol(self) -> Protocol:
        if self._machine is None:
            raise errors.InvalidRequest("this session is not open: await it, or use async with")
        return self._machine

    @property
    def state(self) -> str:
        """'connected'; 'suspended' while there is no connection, though all holds are still held; or 'ended'."""
        return self._protocol.state

    @property
    def lease(self) -> int:
        """The number of the session's lease on the server; 0 if none was granted yet."""
        return int(self._protocol.main.id or 0)

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls the function and then starts the next job. Does nothing in a forked child."""
        raise NotImplementedError

    def _report(self, event: Event, context: contextvars.Context) -> None:
        """Schedules a call of on_event with the event, in this context. Keeps the order of the events."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        protocol = self._protocol
        return protocol.forked or (protocol.finished and protocol.clock() >= protocol.main.deadline)

    def _opened(self, limit: float) -> Steps[None]:
        protocol, main = self._protocol, self._protocol.main
        until = protocol.clock() + limit
        while main.state == "new" and protocol.end_error is None and protocol.clock() < until:
            protocol.check_closed()
            yield main, until
        protocol.check_closed()
        if protocol.end_error is not None:
            raise protocol.end_error
        if main.state == "new":
            raise errors.Unavailable(f"the server has not answered in time{protocol.why()}")

    def _reopen(self) -> Steps[None]:
        self._protocol.reopen()
        yield from self._opened(self._protocol.call)

    def _closed(self, limit: Optional[float]) -> Steps[None]:
        protocol = self._protocol
        protocol.close(limit)
        until = (protocol.close_until or 0.0) + 1.0
        while not protocol.finished and protocol.clock() < until:
            yield protocol, until

    def _settle(self, claims: List[Claim], wait: Optional[float]) -> Steps[None]:
        """Waits until all claims are granted or have ended. `wait` limits the time in the queue, not the time for the
        first reply.
        """
        protocol, now = self._protocol, self._protocol.clock
        attempt, first_answer = claims[0].attempt, now() + protocol.call
        until = first_answer if attempt else math.inf if wait is None else now() + wait
        error: errors.Error = errors.Canceled("the wait was canceled")
        interrupted = True
        try:
            for claim in claims:
                while claim.state is WAITING and now() < until:
                    yield claim, until
                if claim.state is WAITING and not attempt and claim.phase is not QUEUED:
                    claim.overdue = True
                    while claim.state is WAITING and now() < first_answer:
                        yield claim, first_answer
            interrupted = False
            error = errors.NotAcquired(f"{claims[0]} was not granted in time{protocol.why()}")
            if attempt:
                error = errors.Unavailable(f"the server has not answered in time{protocol.why()}")
        finally:
            for claim in claims:
                if claim.state is WAITING or interrupted:
                    protocol.over(claim, error)

    def _try_each(self, names: Iterable[str], shared: bool, make: Callable[[Claim], H]) -> Steps[List[Optional[H]]]:
        kind = "shared" if check_flag("shared", shared) else "lock"
        several = list(names) if isinstance(names, (list, tuple)) else names
        if several == []:
            return []
        claims = [self._protocol.ask(kind, [name], None, True, None) for name in check_names(several)]
        holds = [make(claim) for claim in claims]  # created before the grants, as in LockBase._claim()
        yield from self._settle(claims, None)
        for claim in claims:
            if claim.state is not HELD and not isinstance(claim.error, errors.NotAcquired):
                for other in claims:
                    self._protocol.release(other)
                raise claim.error or errors.Unavailable("no answer")
        return [hold if claim.state is HELD else None for claim, hold in zip(claims, holds)]

    def _release(self, claim: Claim, hold_for: Duration) -> Steps[Optional[bool]]:
        protocol = self._protocol
        wrong: Optional[errors.Error] = None
        try:
            seconds = check_seconds("hold_for", hold_for, 0, 0 if claim.kind == "candidate" else HOLD_FOR[1])
        except errors.InvalidRequest as error:
            wrong, seconds = error, 0.0  # the hold is released nevertheless
        protocol.release(claim, seconds)
        until = protocol.clock() + protocol.call
        while claim.phase != "done" and protocol.clock() < until:
            yield claim, until
        if wrong is not None:
            raise wrong
        if isinstance(claim.error, (errors.InvalidRequest, errors.LimitExceeded)):
            raise claim.error
        return False if claim.state is LOST else claim.released

    def _answered(self, request: Any, sent: Callable[[], bool] = lambda: False) -> Steps[Any]:
        """Waits for the result of a Call or an Op and returns it, or raises it if it is an error.

        If no reply arrives in time, raises OutcomeUnknown if `sent` reports that the request was sent, otherwise
        Unavailable.
        """
        protocol = self._protocol
        until = protocol.clock() + protocol.call
        try:
            while request.answer is None and protocol.clock() < until:
                yield request, until
            if request.answer is None:
                kind = errors.OutcomeUnknown if sent() else errors.Unavailable
                raise kind(f"the server has not answered in time{protocol.why()}")
        finally:
            if request.answer is None:
                request.answer = errors.Canceled("nobody waits for it")
            for lease in protocol.leases.values():
                lease.ops.pop(request, None)
        if isinstance(request.answer, errors.Error):
            raise request.answer
        return request.answer

    def _admits(self, name: str, hold_for: float) -> Steps[None]:
        """Raises the server's error if it rejects this hold_for. Sends a release of token 0, which holds nothing."""
        op = self._protocol.operate(self._protocol.main, "release", name, "0", None, ms(hold_for))
        yield from self._answered(op)

    def _proclaim(self, claim: Claim, value: str) -> Steps[None]:
        value = check_text("value", value)
        if claim.time_left(self._protocol.clock()) > 0:
            op = self._protocol.operate(claim.lease, "proclaim", claim.names[0], str(claim.token), None, value)
            if (yield from self._answered(op, lambda: op.sent)) == "proclaimed":
                return
        raise errors.LockLost(f"the term of {claim.names[0]!r} is over", "LE001")


S = TypeVar("S", bound=SessionBase)


class LockBase(Generic[S, H]):
    """A lock, several locks or a permit that can be acquired."""

    def __init__(
        self, session: S, kind: str, names: List[str], ttl: Seconds, last: Optional[str], wait: Seconds, on_lost: Any
    ) -> None:
        self._session, self._kind, self._names, self._last = session, kind, names, last
        self._ttl, self._wait = check_ttl(ttl), check_wait(wait)
        self._on_lost = on_lost
        self._entered: Entered[H] = Entered()
        self._waiting: List[Claim] = []

    def _claim(self, wait: Seconds, make: Callable[[Claim], T]) -> Steps[T]:
        """Acquires the lock. Creates the hold before the grant, so that it is released if an interrupt follows."""
        seconds = self._wait if wait is DEFAULT else check_wait(wait)
        claim = self._session._protocol.ask(self._kind, self._names, self._ttl, seconds == 0, self._last)
        hold = make(claim)
        self._waiting.append(claim)
        try:
            yield from self._session._settle([claim], seconds)
        finally:
            self._waiting.remove(claim)
        if claim.state is not HELD:
            raise claim.error or errors.Canceled("it was released")
        return hold

    def cancel(self) -> None:
        """Ends all waits of this object in other threads or tasks. The waiting calls raise Canceled."""
        self._session._post(self._cancel)

    def _cancel(self) -> None:
        for claim in list(self._waiting):
            if claim.state is WAITING:
                self._session._protocol.over(claim, errors.Canceled("the wait was canceled"))


class ElectionBase(Generic[S]):
    """One candidate's side of an election."""

    def __init__(self, session: S, name: str, value: Optional[str], ttl: Seconds) -> None:
        own = session._protocol.marker.rpartition("#")[0]
        self.name, self.value = check_name(name), own if value is None else check_text("value", value)
        self._session = session
        self._canceled = False
        self._standing: LockBase[S, Any] = LockBase(session, "candidate", [self.name], ttl, self.value, None, None)

    def cancel(self) -> None:
        """Ends this object's campaigns in other threads or tasks, and its run() after `lead` has returned."""
        self._canceled = True
        self._standing.cancel()

    def _leader(self) -> Steps[Optional[Leader]]:
        call = self._session._protocol.read("SELECT candidate, term FROM {s}.current_leader($1)", self.name)
        rows: Rows = yield from self._session._answered(call)
        return Leader(rows[0][0] or "", int(rows[0][1] or 0)) if rows else None

    def _stand(self, make: Callable[[Claim], T]) -> Steps[Optional[T]]:
        """Campaigns until elected, and retries after temporary errors. Returns None if it was canceled or closed."""
        failures = 0
        now = self._session._protocol.clock
        while not self._canceled:
            try:
                yield from self._session._reopen()
                return (yield from self._standing._claim(None, make))
            except errors.Canceled:
                break
            except errors.Error as error:
                if not isinstance(error, errors.LockLost) and not errors.passes(error):
                    raise
                log.info("election %r: %s", self.name, error)
            until = now() + jitter(min(0.1 * 2**failures, 5.0))
            while now() < until:
                yield Request(), until
            failures = min(failures + 1, 10)
        return None


def lock_of(names: object, shared: object) -> Tuple[str, List[str]]:
    """Returns the kind and the names of a lock."""
    return "shared" if check_flag("shared", shared) else "lock", check_names(names)


def once_ttl(protocol: Protocol, hold_for: object, ttl: object) -> Tuple[float, float]:
    """Returns the seconds for which a job's name stays closed, and the hold's TTL, which is at least as long."""
    seconds = check_seconds("hold_for", hold_for, *HOLD_FOR)
    own = check_ttl(ttl)
    return seconds, max(seconds, protocol.ttl if own is None else own)

"""What the flavours for asyncio and for threads share."""

from __future__ import annotations

import collections.abc
import datetime
import inspect
import math
import operator
import os
import socket
import warnings
from typing import Generic, Iterable, List, Optional, Tuple, TypeVar, Union

from . import _errors as errors
from ._clock import clock
from ._protocol import HELD, Claim, Protocol

Names = Union[str, Iterable[str]]
Duration = Union[float, datetime.timedelta]
"""Seconds, or a timedelta."""
Seconds = Optional[Duration]
TTL = (0.1, 24 * 86400)
HOLD_FOR = (0, TTL[1])
PERMITS = (1, 2**31 - 1)


def new_protocol(ttl: float, name: Optional[str]) -> Protocol:
    return Protocol(ttl, name or f"{socket.gethostname()}:{os.getpid()}", clock())


def wrong(what: str, value: object, allowed: str) -> errors.InvalidRequest:
    """The error of an argument: which, what came, and what is allowed."""
    shown = repr(value)
    return errors.InvalidRequest(f"{what} is {shown if len(shown) <= 200 else shown[:200] + '...'}: {allowed}")


def check_seconds(what: str, value: object, low: float = 0, high: float = math.inf, none: str = "") -> float:
    """Seconds of a timedelta or any number in these bounds, also of a Decimal, to which no float can be added."""
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
    """How long close() waits: no timer runs for longer than some weeks."""
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


def check_text(what: str, text: object) -> str:
    """What PostgreSQL cannot store would be cut (after NUL), or would end the session."""
    if not isinstance(text, str):
        raise wrong(what, text, "it must be a str")
    text = str.__str__(text)  # of an enum with str: its value, wherever it is formatted
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
    """Of one name, or of several."""
    if isinstance(names, str):
        return [check_name(names)]
    if isinstance(names, (bytes, bytearray, memoryview)) or not isinstance(names, collections.abc.Iterable):
        raise wrong("name", names, "it must be a str, or a list of them")
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


H = TypeVar("H")


class Entered(Generic[H]):
    """The holds of the with-blocks of one lock, which threads or tasks may share: each leaves what it has entered."""

    def __init__(self) -> None:
        self._holds: List[Tuple[object, H]] = []

    def push(self, who: object, hold: H) -> None:
        self._holds.append((who, hold))

    def pop(self, who: object) -> H:
        """The last of these; if another one leaves the block than has entered it, the last of all."""
        found = next((entry for entry in reversed(self._holds) if entry[0] == who), self._holds[-1])
        self._holds.remove(found)
        return found[1]


class Told:
    """What is known of a hold without I/O."""

    def __init__(self, protocol: Protocol, claim: Claim) -> None:
        self._protocol, self._claim = protocol, claim

    @property
    def names(self) -> Tuple[str, ...]:
        """The names of the locks, or of the election."""
        return self._claim.names

    @property
    def token(self) -> int:
        """Proves the ownership; for an exclusive lock and a term the fencing token: it only grows."""
        return self._claim.token

    @property
    def time_left(self) -> float:
        """Seconds for which `valid` stays true if no renewal succeeds; 0.0: it is not held any more."""
        return self._protocol.time_left(self._claim)

    @property
    def valid(self) -> bool:
        """Is it held? Until the local deadline nobody else can have it. Looks at the clock; no I/O."""
        return self.time_left > 0

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names))
        return f"<{type(self).__name__} {names} token {self.token}, {self.time_left:.1f} s left>"

    def __del__(self) -> None:
        protocol, claim = self._protocol, self._claim
        if claim.state is HELD and not protocol.finished and not protocol.forked:
            protocol.dropped.append(claim)  # the next look at the clock gives it back
            warnings.warn(f"{self} was never released", ResourceWarning, stacklevel=2, source=self)


class ByClock:
    """Of an event: it is set when the hold is not valid any more."""

    def __init__(self, hold: Told) -> None:
        super().__init__()
        self._protocol, self._claim = hold._protocol, hold._claim

    def is_set(self) -> bool:
        return self._protocol.time_left(self._claim) <= 0

"""What the flavours for asyncio and for threads share."""

from __future__ import annotations

import collections.abc
import math
import os
import socket
import warnings
from typing import Generic, List, Optional, Sequence, Tuple, TypeVar, Union

from . import _errors as errors
from ._clock import clock
from ._protocol import HELD, Claim, Protocol

Names = Union[str, Sequence[str]]
Seconds = Optional[float]
TTL = (0.1, 24 * 86400)


def new_protocol(ttl: float, name: Optional[str]) -> Protocol:
    return Protocol(float(ttl), name or f"{socket.gethostname()}:{os.getpid()}", clock())


def check_seconds(what: str, value: object, low: float = 0, high: float = math.inf) -> float:
    """A float of any number in these bounds, also of a Decimal, to which no float can be added."""
    try:
        seconds = math.nan if isinstance(value, (str, bytes)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not low <= seconds <= high:
        raise errors.InvalidRequest(f"{what} is {value!r}: seconds from {low} to {high} are allowed")
    return seconds


def check_limit(limit: Optional[float]) -> Optional[float]:
    """How long close() waits: no timer runs for longer than some weeks."""
    return None if limit is None else min(check_seconds("limit", limit), 1e6)


def check_text(what: str, text: object) -> None:
    """What PostgreSQL cannot store would be cut (after NUL), or would end the session."""
    if not isinstance(text, str):
        raise errors.InvalidRequest(f"{what} is no text: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise errors.InvalidRequest(f"{what} is not Unicode: {text!r}") from None
    if "\0" in text:
        raise errors.InvalidRequest(f"{what} contains a NUL: {text!r}")


def check_names(names: Names) -> List[str]:
    several = list(names) if isinstance(names, collections.abc.Iterable) and not isinstance(names, str) else [names]
    for name in several:
        check_text("a name", name)
    if not several or not all(several):
        raise errors.InvalidRequest("a name is missing or empty")
    return several


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
        if claim.state is HELD and not protocol.finished and os.getpid() == protocol.pid:
            protocol.dropped.append(claim)  # the next look at the clock gives it back
            warnings.warn(f"{self} was never released", ResourceWarning, stacklevel=2, source=self)


class ByClock:
    """Of an event: it is set when the hold is not valid any more."""

    def __init__(self, hold: Told) -> None:
        super().__init__()
        self._protocol, self._claim = hold._protocol, hold._claim

    def is_set(self) -> bool:
        return self._protocol.time_left(self._claim) <= 0

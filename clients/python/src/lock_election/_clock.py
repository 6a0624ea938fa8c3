"""A clock, in seconds, that counts while the machine is suspended."""

from __future__ import annotations

import sys
import threading
import time
from typing import Callable


class Larger:
    """Where no clock counts a suspend: the monotonic clock, and what the wall clock has advanced beyond it.

    A wall clock that is set forward loses locks early, which is safe. Less than half a second is noise.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._lead = wall() - monotonic()
        self._suspended = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            now = self._monotonic()
            ahead = self._wall() - now - self._lead
            if abs(ahead) >= 0.5:
                self._lead += ahead
                self._suspended += max(ahead, 0.0)
            return now + self._suspended


def clock() -> Callable[[], float]:
    """The clock of this platform."""
    # macOS: CLOCK_MONOTONIC goes on during a suspend there, and time.monotonic() does not.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    number = getattr(time, name, None)
    if number is None:
        return Larger()
    return lambda: time.clock_gettime(number)

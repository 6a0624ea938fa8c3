"""A clock, in seconds, that counts while the machine is suspended."""

from __future__ import annotations

import sys
import threading
import time
from typing import Callable


class Larger:
    """The monotonic clock, plus the time by which the wall clock has run ahead of it.

    It serves platforms without a clock that counts a suspend. If the wall clock is set forward, locks are lost early,
    which is safe. Differences of less than half a second are ignored as noise.
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
    """Returns the clock of this platform."""
    # On macOS, CLOCK_MONOTONIC runs during a suspend, and time.monotonic() does not.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    number = getattr(time, name, None)
    if number is None:
        return Larger()
    return lambda: time.clock_gettime(number)

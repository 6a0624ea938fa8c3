"""Releases the holds of a process that ends without closing its sessions (rule 14.4).

A process does so only if it has no other thread and no child process that could still work under a hold.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import selectors
import sys
import threading
import time
from typing import Any, Callable, Dict, Protocol

log = logging.getLogger("lock_election")

LIMIT = 2.0  # seconds for the goodbyes of all sessions together


class Thread(threading.Thread):
    """A thread of this package that runs no code of the application."""


class Session(Protocol):
    def _is_over(self) -> bool:
        """Whether the session needs no goodbye: it has ended and its deadline has passed, or this is a forked child."""

    def _say_goodbye(self, limit: float) -> None:
        """Revokes the session's leases, within `limit` seconds."""


_sessions: Dict[Session, None] = {}


def drive(job: Any, clock: Callable[[], float]) -> None:
    """Runs a job to its end in this thread."""
    ready = None
    with selectors.DefaultSelector() as selector, contextlib.suppress(StopIteration):
        while True:
            fd, read, write, until = job.send(ready)
            if fd >= 0:
                selector.register(fd, selectors.EVENT_READ * read | selectors.EVENT_WRITE * write)
            ready = bool(selector.select(max(until - clock(), 0.0)))
            if fd >= 0:
                selector.unregister(fd)


def remember(session: Session) -> None:
    for other in list(_sessions):
        if other._is_over():
            forget(other)
    _sessions[session] = None


def forget(session: Session) -> None:
    _sessions.pop(session, None)


def _is_alone() -> bool:
    """Whether the process has no threads except this one and those of this package, and no child processes."""
    own = {thread.ident for thread in threading.enumerate() if isinstance(thread, Thread)}
    # _count() includes threads of the module _thread. The frames include threads that a C library has created.
    if _thread._count() > len(own) or set(sys._current_frames()) - own - {threading.get_ident()}:
        return False
    if not hasattr(os, "waitid"):
        return False  # this platform cannot tell whether there are children
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False  # there may be a running child, even if waitid() has found one that has exited


def _at_exit() -> None:
    left = [session for session in list(_sessions) if not session._is_over()]
    if left and _is_alone():
        end = time.monotonic() + LIMIT
        for session in left:
            try:
                session._say_goodbye(max(end - time.monotonic(), 0.0))
            except Exception as error:  # the lease then expires
                log.info("no goodbye: %s", error)


# atexit calls the last registered function first, so the application's functions, registered after this import, run
# while the locks are still held.
atexit.register(_at_exit)

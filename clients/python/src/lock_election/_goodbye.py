"""The goodbye of a process that ends without closing its sessions (rule 14.4): what it holds is free at once.

Only where nothing of the process can still be working under a hold: no other thread, and no child.
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

LIMIT = 2.0  # seconds, for all sessions together


class Thread(threading.Thread):
    """A thread of this package that runs nothing of the program."""


class Session(Protocol):
    def _is_over(self) -> bool:
        """Has its lease ended, or is this a child of its process?"""

    def _say_goodbye(self, limit: float) -> None:
        """Revokes its leases."""


_sessions: Dict[Session, None] = {}


def drive(job: Any, clock: Callable[[], float]) -> None:
    """Runs a job to its end, in this thread."""
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
    """Is this the last thread, besides those of this package, and without children?"""
    own = {thread.ident for thread in threading.enumerate() if isinstance(thread, Thread)}
    # The first has those of the module _thread as well, the second those that a library in C has made.
    if _thread._count() > len(own) or set(sys._current_frames()) - own - {threading.get_ident()}:
        return False
    if not hasattr(os, "waitid"):
        return False  # whether there are children cannot be told here
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False  # also where a child that has ended was not waited for: it may hide another


def _at_exit() -> None:
    left = [session for session in list(_sessions) if not session._is_over()]
    if left and _is_alone():
        end = time.monotonic() + LIMIT
        for session in left:
            try:
                session._say_goodbye(max(end - time.monotonic(), 0.0))
            except Exception as error:  # the lease ends by itself
                log.info("no goodbye: %s", error)


# The last one registered is the first one called: those of the program, which imports this first, come before.
atexit.register(_at_exit)

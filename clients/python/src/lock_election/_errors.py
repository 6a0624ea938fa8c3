"""What calls raise, and which SQLSTATE means what."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Base of all errors of this package. `sqlstate` is the server's, or ''."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class NotAcquired(Error):
    """Others hold it, or the wait is over. Nothing is held, and nothing waits."""


class LockLost(Error):
    """The lock, place, term or lease has ended (LE001, or the local deadline has passed)."""


class Canceled(Error):
    """The wait was canceled, or its session was closed. Nothing is held."""


class DeadlockDetected(Error):
    """40P01: roll the transaction back and repeat it."""


class LimitExceeded(Error):
    """53400, 53200: a limit of the role or the server; the message names its setting."""


class AccessDenied(Error):
    """42501, 28xxx: not allowed, or a wrong password."""


class InvalidRequest(Error, ValueError):
    """22xxx, or a bad argument, or a session of another process or loop of events."""


class Unavailable(Error):
    """No server, or no answer in time. Nothing lasts."""


class NotInstalled(Unavailable):
    """The extension is not in this database or not preloaded; the message says what to type."""


class OutcomeUnknown(Error):
    """No answer: the request may have taken effect, or may yet."""


class ServerError(Error):
    """Any other error of the server. It had no effect."""


# Longer prefixes come first.
_KINDS: "tuple[tuple[str, type[Error]], ...]" = (
    ("LE001", LockLost),
    ("40P01", DeadlockDetected),
    ("40003", OutcomeUnknown),
    ("53400", LimitExceeded),
    ("53200", LimitExceeded),
    ("42501", AccessDenied),
    ("42883", NotInstalled),
    ("3F000", NotInstalled),
    ("3D000", NotInstalled),
    ("55000", NotInstalled),
    ("57014", OutcomeUnknown),
    ("08007", OutcomeUnknown),
    ("25006", Unavailable),
    ("55P03", Unavailable),
    ("40001", Unavailable),
    ("28", AccessDenied),
    ("22", InvalidRequest),
    ("08", Unavailable),
    ("53", Unavailable),
    ("57", Unavailable),
    ("58", Unavailable),
    ("XX", Unavailable),
)

INSTALL = (
    "lock_election is not there: CREATE EXTENSION lock_election in this database, "
    "with shared_preload_libraries = 'lock_election' in postgresql.conf"
)


def of_server(sqlstate: str, message: str, hint: Optional[str] = None) -> Error:
    """The error for an answer of the server."""
    kind = next((kind for prefix, kind in _KINDS if sqlstate.startswith(prefix)), ServerError)
    if hint:
        message = f"{message} ({hint})"
    elif kind is NotInstalled:
        message = f"{message} ({INSTALL})"
    return kind(message, sqlstate)


def breaks(error: Error) -> bool:
    """Is the connection to be given up? No server, a restart, too many connections, a standby."""
    state = error.sqlstate
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "53300", "25006")


def passes(error: Error) -> bool:
    """May the same request succeed soon?"""
    return isinstance(error, (Unavailable, OutcomeUnknown)) and not isinstance(error, NotInstalled)

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
    """No server, no such database, or no answer in time. Nothing lasts."""


class NotInstalled(Unavailable):
    """The extension is not in this database or not preloaded; the message says what to type."""


class OutcomeUnknown(Error):
    """No answer: the request may have taken effect, or may yet."""


class ServerError(Error):
    """Any other error of the server. It had no effect."""


# The first that fits.
_KINDS = {
    LockLost: ("LE001",),
    DeadlockDetected: ("40P01",),
    LimitExceeded: ("53400", "53200"),
    AccessDenied: ("42501", "28"),
    InvalidRequest: ("22",),
    NotInstalled: ("42883", "3F000", "55000"),
    OutcomeUnknown: ("57014", "40003", "08007"),
    Unavailable: ("25006", "3D000", "55P03", "40001", "08", "53", "57", "58", "XX"),
}

INSTALL = "CREATE EXTENSION lock_election, or lockctl install for the portable edition"
PRELOAD = "add lock_election to shared_preload_libraries, and restart the server"


def of_server(sqlstate: str, message: str, hint: Optional[str] = None) -> Error:
    """The error for an answer of the server."""
    kind = next((kind for kind, prefixes in _KINDS.items() if sqlstate.startswith(prefixes)), ServerError)
    if hint:
        message = f"{message} ({hint})"
    elif kind is NotInstalled:
        message = f"{message} ({PRELOAD if sqlstate == '55000' else INSTALL})"
    return kind(message, sqlstate)


def breaks(error: Error) -> bool:
    """Is the connection to be given up? No server, a restart, too many connections, a standby."""
    state = error.sqlstate
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "53300", "25006")


def passes(error: Error) -> bool:
    """May the same request succeed soon?"""
    return isinstance(error, (Unavailable, OutcomeUnknown)) and not isinstance(error, NotInstalled)

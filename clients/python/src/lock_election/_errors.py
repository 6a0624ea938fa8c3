"""The errors that calls raise, and their SQLSTATEs."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Base class of all errors of this package. `sqlstate` is the server's SQLSTATE, or '' if there is none."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class NotAcquired(Error):
    """The lock was not acquired, because others hold it or the wait timed out. The caller holds nothing and has no
    place.
    """


class LockLost(Error):
    """The lock, place, term or lease has ended. The server reports this (LE001), or the local deadline has passed."""


class Canceled(Error):
    """The wait was canceled, or the session was closed. Nothing is held."""


class DeadlockDetected(Error):
    """PostgreSQL has detected a deadlock (40P01). Roll the transaction back and repeat it."""


class LimitExceeded(Error):
    """A limit of the role or the server was reached (53400, 53200); the message names its setting."""


class AccessDenied(Error):
    """A privilege is missing, or the password is wrong (42501, 28xxx)."""


class InvalidRequest(Error, ValueError):
    """An argument is invalid (also 22xxx), or the session belongs to another process or event loop."""


class Unavailable(Error):
    """There is no server, no such database, or no reply in time. The call has no lasting effect."""


class NotInstalled(Unavailable):
    """The extension is not installed in this database, or not preloaded. The message names the command to run."""


class OutcomeUnknown(Error):
    """There was no reply. The request may have taken effect, or may take effect later."""


class ServerError(Error):
    """Any other server error. The call had no effect."""


# SQLSTATEs or their prefixes, by error class. The first class that matches is raised.
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
    """Returns the exception for a server error."""
    kind = next((kind for kind, prefixes in _KINDS.items() if sqlstate.startswith(prefixes)), ServerError)
    if hint:
        message = f"{message} ({hint})"
    elif kind is NotInstalled:
        message = f"{message} ({PRELOAD if sqlstate == '55000' else INSTALL})"
    return kind(message, sqlstate)


def breaks(error: Error) -> bool:
    """Whether the error makes a new connection necessary: no server, a restart, too many connections, or a standby."""
    state = error.sqlstate
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "53300", "25006")


def passes(error: Error) -> bool:
    """Whether the same request may succeed if it is retried soon."""
    return isinstance(error, (Unavailable, OutcomeUnknown)) and not isinstance(error, NotInstalled)

"""Distributed locks and leader election inside PostgreSQL.

    import lock_election

    with lock_election.connect("dbname=app") as session:
        with session.lock("invoices", wait=5) as hold:
            ...

The asyncio flavour is lock_election.aio.
"""

from ._errors import (
    AccessDenied,
    Canceled,
    DeadlockDetected,
    Error,
    InvalidRequest,
    LimitExceeded,
    LockLost,
    NotAcquired,
    NotInstalled,
    OutcomeUnknown,
    ServerError,
    Unavailable,
)
from ._protocol import Leader
from ._sync import Election, Hold, Lock, Session, Term, Watch, connect

__version__ = "1.0.0"

__all__ = [
    "AccessDenied",
    "Canceled",
    "DeadlockDetected",
    "Election",
    "Error",
    "Hold",
    "InvalidRequest",
    "Leader",
    "LimitExceeded",
    "Lock",
    "LockLost",
    "NotAcquired",
    "NotInstalled",
    "OutcomeUnknown",
    "ServerError",
    "Session",
    "Term",
    "Unavailable",
    "Watch",
    "connect",
]

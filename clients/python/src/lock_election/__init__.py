"""Distributed locks and leader election inside PostgreSQL.

    import lock_election

    with lock_election.connect("dbname=app") as session:
        with session.lock("invoices", wait=5) as hold:
            ...

The asyncio flavour is lock_election.aio.
"""

from . import aio as aio
from ._errors import AccessDenied as AccessDenied
from ._errors import Canceled as Canceled
from ._errors import DeadlockDetected as DeadlockDetected
from ._errors import Error as Error
from ._errors import InvalidRequest as InvalidRequest
from ._errors import LimitExceeded as LimitExceeded
from ._errors import LockLost as LockLost
from ._errors import NotAcquired as NotAcquired
from ._errors import NotInstalled as NotInstalled
from ._errors import OutcomeUnknown as OutcomeUnknown
from ._errors import ServerError as ServerError
from ._errors import Unavailable as Unavailable
from ._install import install_script as install_script
from ._protocol import Event as Event
from ._protocol import Leader as Leader
from ._sync import Election as Election
from ._sync import Hold as Hold
from ._sync import Lock as Lock
from ._sync import Session as Session
from ._sync import Term as Term
from ._sync import Watch as Watch
from ._sync import connect as connect
from ._sync import install as install

__version__ = "1.0.0"

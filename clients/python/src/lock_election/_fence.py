"""Fences in the application's own connection, with any driver. This module imports no driver.

The functions are coroutines, for both threads and asyncio: a driver returns a value, or an awaitable in asyncio, and
`settled` turns both into the value.
"""

from __future__ import annotations

import re
from typing import Any, Awaitable, Callable, Optional

from . import _errors as errors
from ._protocol import Claim, Protocol

Settled = Callable[[Any], Awaitable[Any]]

# A setting that is local to the transaction. If the driver does not report whether a transaction is open, the fence
# reads the setting back: outside of a transaction, PostgreSQL has already reset it.
_SETTING = "lock_election_client.fence"


def literal(text: str) -> str:
    """Returns a text as an SQL expression, without any character that a driver could interpret as a parameter."""
    if re.fullmatch(r"[A-Za-z0-9 _.,/-]*", text):
        return f"'{text}'"
    return f"pg_catalog.convert_from(pg_catalog.decode('{text.encode().hex()}', 'hex'), 'UTF8')"


def sqlstate_of(error: Optional[BaseException]) -> str:
    """Returns the SQLSTATE of any driver's error, also if SQLAlchemy or Django has wrapped it; '' if it has none."""
    for candidate in (error, getattr(error, "orig", None), getattr(error, "__cause__", None)):
        for attribute in ("sqlstate", "pgcode"):
            value = getattr(candidate, attribute, None)
            if isinstance(value, str):
                return value
        fields = getattr(candidate, "args", None) or [None]
        if isinstance(fields[0], dict) and isinstance(fields[0].get("C"), str):
            return str(fields[0]["C"])
    return ""


def _in_transaction(connection: Any) -> Optional[bool]:
    """Whether a transaction is open; None if this driver does not report it."""
    inner = getattr(getattr(connection, "sync_connection", connection), "connection", None)
    for candidate in (connection, inner, getattr(inner, "driver_connection", None)):
        status = getattr(getattr(candidate, "info", None), "transaction_status", None)
        if status is not None:
            return int(status) != 0
        if candidate is not None and callable(getattr(candidate, "is_in_transaction", None)):
            return bool(candidate.is_in_transaction())
    return None


async def _ask(connection: Any, sql: str, settled: Settled) -> Any:
    """Runs a query and returns the first column of its only row."""
    if hasattr(connection, "exec_driver_sql"):  # SQLAlchemy
        return (await settled(connection.exec_driver_sql(sql))).scalar()
    if hasattr(connection, "fetchval"):  # asyncpg
        return await settled(connection.fetchval(sql))
    if not callable(getattr(connection, "cursor", None)):
        raise errors.InvalidRequest(  # shows the type only: the repr may contain a password
            f"connection is of type {type(connection).__name__}: it must be an open connection, such as of psycopg"
        )
    cursor = connection.cursor()  # DB-API, psycopg, Django
    try:
        await settled(cursor.execute(sql))
        row = await settled(cursor.fetchone())
    finally:
        await settled(cursor.close())
    return next(iter(row.values())) if isinstance(row, dict) else row[0]


def statement(protocol: Protocol, claim: Claim) -> str:
    """Returns the statement of a fence, without parameters. Raises LockLost if the hold is lost."""
    if protocol.time_left(claim) <= 0:
        raise errors.LockLost(f"{claim.names[0]!r} is not held any more", "LE001") from claim.error
    function = "fence_leader" if claim.kind == "candidate" else "fence_lock"
    call = f"pg_catalog.count({protocol.schema}.{function}(n, {claim.token}))"
    return f"SELECT {call} AS fenced FROM pg_catalog.unnest(ARRAY[{', '.join(map(literal, claim.names))}]) AS n"


async def fence(protocol: Protocol, claim: Claim, connection: Any, settled: Settled) -> None:
    """Fences a hold in the open transaction of a connection.

    Raises LockLost if the hold is lost, NotInstalled if the connection's database has no lock_election, InvalidRequest
    if no transaction is open, and the driver's own errors otherwise.
    """
    sql = statement(protocol, claim)
    if not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None)):
        connection = await settled(connection.connection())  # a Session of SQLAlchemy
    try:
        setting = f"pg_catalog.set_config('{_SETTING}', '{claim.token}', true)"
        await _ask(connection, f"SELECT {setting}, ({sql})", settled)
    except Exception as error:
        sqlstate = sqlstate_of(error)
        if sqlstate in ("42883", "3F000"):
            claim.lease.poll_at = 0.0  # makes the session read the new name of a renamed schema
            told = f"the fence of {claim.names[0]!r} is in a database without lock_election: {error} ({errors.INSTALL})"
            raise errors.NotInstalled(told, sqlstate) from error
        if sqlstate != "LE001":
            raise
        claim.lease.poll_at = 0.0  # makes the session notice the loss soon
        raise errors.LockLost(str(error), "LE001") from error
    is_open = _in_transaction(connection)
    if is_open is None:
        found = await _ask(connection, f"SELECT pg_catalog.current_setting('{_SETTING}', true)", settled)
        is_open = found == str(claim.token)
    if not is_open:
        raise errors.InvalidRequest("a fence needs an open transaction: outside of one it ends at once")

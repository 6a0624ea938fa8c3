"""Installs the portable edition, which this package contains, over a connection of the application.

install() is a coroutine that serves both threads and asyncio, like the fence.
"""

from __future__ import annotations

import contextlib
from importlib.resources import files
from typing import Any, Optional

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from . import _errors as errors
from ._fence import Settled, literal

# Query for the schema's comment, which names the installed version. That version is current if the script has the same
# comment.
_COMMENT = (
    "SELECT pg_catalog.obj_description(n.oid, 'pg_namespace') FROM pg_catalog.pg_namespace n "
    "WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'"
)


def install_script() -> str:
    """Returns the SQL that install() runs, for tools such as migrations, which must run it in one transaction."""
    return (files(__package__) / "lock_election.sql").read_text(encoding="utf-8")


def _told(error: psycopg.Error) -> errors.Error:
    if error.sqlstate is None:
        return errors.OutcomeUnknown(f"no answer: {error}")
    return errors.of_server(error.sqlstate, error.diag.message_primary or str(error), error.diag.message_hint)


async def install(connection: Any, schema: Optional[str], grant: Optional[str], settled: Settled) -> None:
    """Installs or upgrades the portable edition; does nothing if this version is already installed."""
    # The error shows the type only: the repr of a connection may contain a password.
    if not isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection)):
        raise errors.InvalidRequest(f"connection is of type {type(connection).__name__}, not a connection of psycopg")
    if connection.info.transaction_status == TransactionStatus.UNKNOWN:
        raise errors.Unavailable("the connection is closed")
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise errors.InvalidRequest("the connection has an open transaction: the installation requires its own")
    script = install_script()
    cursor = connection.cursor(row_factory=tuple_row)
    begin = "BEGIN" if connection.autocommit else "SET TRANSACTION"  # without autocommit psycopg sends BEGIN itself
    settings = {"_lock_election.schema": schema or "", "_lock_election.grant": grant or ""}
    values = ", ".join(f"pg_catalog.set_config('{key}', {literal(value)}, true)" for key, value in settings.items())
    try:
        try:
            await settled(cursor.execute(f"{begin} ISOLATION LEVEL READ COMMITTED".encode()))
            await settled(cursor.execute(_COMMENT.encode()))
            row = await settled(cursor.fetchone())
            if row is None or row[0] is None or row[0] not in script:
                await settled(cursor.execute(f"SELECT {values};\n{script}".encode()))
            await settled(connection.commit())
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                await settled(connection.rollback())
            raise
        finally:
            await settled(cursor.close())
    except psycopg.Error as error:
        raise _told(error) from error

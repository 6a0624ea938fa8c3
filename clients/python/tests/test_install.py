"""The portable edition: installed by an ordinary role with CREATE on the database, by both flavours, and then used."""

import asyncio
import contextlib
import os
import uuid

import psycopg
import pytest

import lock_election
from lock_election import aio


@pytest.fixture
def empty():
    """A database without the extension, and a role that may create in it; as a connection string."""
    name, role = (f"portable_{uuid.uuid4().hex}" for _ in range(2))
    with psycopg.connect(autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"CREATE DATABASE {name}")
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
        yield f"dbname={name} user={role}"
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute(f"DROP ROLE {role}")


def install(conninfo, *args, **options):
    with contextlib.closing(psycopg.connect(conninfo)) as connection:
        lock_election.install(connection, *args, **options)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        connection.execute("SELECT")  # and goes on


async def install_async(conninfo, *args, autocommit=True, **options):
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=autocommit) as connection:
        await aio.install(connection, *args, **options)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def works(conninfo):
    with lock_election.connect(conninfo) as session, session.lock("x") as hold:
        return hold.valid


def test_an_ordinary_role_installs(empty):
    with pytest.raises(lock_election.NotInstalled):
        works(empty)
    install(empty, "My 'locks'")
    assert works(empty)
    with psycopg.connect(autocommit=True) as other:
        role = f"app_{uuid.uuid4().hex}"
        other.execute(f"CREATE ROLE {role} LOGIN")
        application = f"{empty.split()[0]} user={role}"
        assert works(application)
        install(application, "other")  # a program may call it whenever it starts
        assert works(application)
        other.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("autocommit", [True, False])
async def test_asyncio(empty, autocommit):
    await asyncio.gather(*(install_async(empty, "locks", autocommit=autocommit) for _ in range(2)))
    async with aio.connect(empty) as session, session.lock("x") as hold:
        assert hold.valid


def test_one_role(empty):
    user = os.environ.get("PGUSER", "postgres")
    install(empty, "locks", grant=empty.split("user=")[1])
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT has_schema_privilege('public', 'locks', 'USAGE')").fetchone() == (False,)
    assert works(empty.split()[0] + f" user={user}")


def test_errors(empty, database):
    with pytest.raises(lock_election.AccessDenied, match='may not create functions in schema "public"'):
        install(empty)
    with psycopg.connect(empty) as connection:
        connection.execute("SELECT")
        with pytest.raises(lock_election.InvalidRequest, match="open transaction"):
            lock_election.install(connection)
        with pytest.raises(lock_election.InvalidRequest, match="connection of asyncio"):
            asyncio.run(wrong_flavour(empty))
    with pytest.raises(lock_election.Unavailable, match="closed"):
        lock_election.install(connection)
    with pytest.raises(lock_election.InvalidRequest, match="type str"):
        lock_election.install("dbname=app")
    with psycopg.connect() as connection, pytest.raises(lock_election.ServerError, match="extension lock_election is"):
        lock_election.install(connection)
    install(empty, "locks")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("UPDATE _lock_election.edition SET version = 99")
        connection.execute("COMMENT ON SCHEMA _lock_election IS NULL")
        with pytest.raises(lock_election.ServerError, match=r"version 99 .* newer release"):
            lock_election.install(connection)
        connection.execute("SELECT")


async def wrong_flavour(conninfo):
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        lock_election.install(connection)


def test_the_script():
    assert "CREATE TABLE IF NOT EXISTS _lock_election.hold" in lock_election.install_script()

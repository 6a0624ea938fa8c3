"""fence() on the connections of other drivers: within a transaction, outside of one, and after a loss."""

import contextlib
import os

import psycopg
import pytest

import lock_election
from lock_election import aio
from lock_election._fence import literal

pytestmark = pytest.mark.usefixtures("nothing_left")


def url(scheme):
    part = {key: os.environ.get(f"PG{key.upper()}", "") for key in ("host", "port", "user", "database")}
    if part["host"].startswith("/"):
        return f"{scheme}://{part['user']}@/{part['database']}?host={part['host']}&port={part['port']}"
    return "{scheme}://{user}@{host}:{port}/{database}".format(scheme=scheme, **part)


# Each yields a connection, and a context manager for a transaction of it.
@contextlib.contextmanager
def psycopg3():
    with psycopg.connect(autocommit=True) as connection:
        yield connection, connection.transaction


@contextlib.contextmanager
def psycopg3_of_dicts():
    with psycopg.connect(autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        yield connection, connection.transaction


@contextlib.contextmanager
def psycopg2():
    connection = pytest.importorskip("psycopg2").connect(dbname=os.environ["PGDATABASE"])
    connection.autocommit = True

    @contextlib.contextmanager
    def transaction():
        connection.autocommit = False
        try:
            with connection:
                yield
        finally:
            connection.autocommit = True

    yield connection, transaction
    connection.close()


@contextlib.contextmanager
def pg8000():
    """A driver that does not tell whether a transaction is open."""
    dbapi = pytest.importorskip("pg8000.dbapi")
    host = os.environ["PGHOST"]
    place = {"unix_sock": f"{host}/.s.PGSQL.{os.environ['PGPORT']}"} if host.startswith("/") else {"host": host}
    user, database = os.environ.get("PGUSER", "postgres"), os.environ["PGDATABASE"]
    connection = dbapi.connect(user, database=database, port=int(os.environ["PGPORT"]), **place)
    connection.autocommit = True

    @contextlib.contextmanager
    def transaction():
        connection.autocommit = False
        try:
            yield
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.autocommit = True

    yield connection, transaction
    connection.close()


@contextlib.contextmanager
def sqlalchemy_connection(driver="psycopg"):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(url(f"postgresql+{driver}"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:

        @contextlib.contextmanager
        def transaction():
            connection.rollback()
            connection.execution_options(isolation_level="READ COMMITTED")
            try:
                with connection.begin():
                    yield
            finally:
                connection.execution_options(isolation_level="AUTOCOMMIT")

        yield connection, transaction
    engine.dispose()


@contextlib.contextmanager
def sqlalchemy_psycopg2():
    with sqlalchemy_connection("psycopg2") as both:
        yield both


@contextlib.contextmanager
def sqlalchemy_session():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(url("postgresql+psycopg"))
    with orm.Session(engine) as session:
        yield session, session.begin  # a Session is always in a transaction
    engine.dispose()


@contextlib.contextmanager
def django():
    setup = pytest.importorskip("django").setup
    from django.conf import settings
    from django.db import connections, transaction

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
        setup()
    connections.settings["default"].update(
        NAME=os.environ["PGDATABASE"],
        HOST=os.environ["PGHOST"],
        PORT=os.environ["PGPORT"],
        USER=os.environ.get("PGUSER", ""),
    )
    connection = connections["default"]
    connection.settings_dict.update(connections.settings["default"])
    yield connection, transaction.atomic
    connection.close()


THREADS = [
    psycopg3,
    psycopg3_of_dicts,
    psycopg2,
    pg8000,
    sqlalchemy_connection,
    sqlalchemy_psycopg2,
    sqlalchemy_session,
    django,
]


@pytest.fixture
def session(nothing_left):
    with lock_election.connect(ttl=5) as session:
        yield session


@pytest.mark.parametrize("driver", THREADS, ids=lambda driver: driver.__name__)
def test_fence_of_threads(session, name, db, driver):
    with driver() as (connection, transaction):
        with session.lock([name + " 100%", name + "'\\"]) as hold:
            with transaction():
                hold.fence(connection)
                assert fenced_by(db, name) == 2
            assert fenced_by(db, name) == 0
            if driver is not sqlalchemy_session:
                with pytest.raises(lock_election.InvalidRequest, match="transaction"):
                    hold.fence(connection)
            db.execute("SELECT force_release_lock(%s)", (name + " 100%",))
            with pytest.raises(lock_election.LockLost), transaction():
                hold.fence(connection)
        with session.election(name).campaign() as term, transaction():
            term.fence(connection)


def test_a_fence_in_a_database_without_the_extension(session, name):
    with session.lock(name) as hold, psycopg.connect(dbname="template1") as connection:
        with pytest.raises(lock_election.NotInstalled, match=f"(?s){name}.*CREATE EXTENSION") as told:
            hold.fence(connection)
        assert told.value.sqlstate in ("42883", "3F000")


def fenced_by(db, name):
    sql = "SELECT count(*) FROM lock_election.locks WHERE starts_with(name, %s) AND cardinality(fenced_by) > 0"
    return db.execute(sql, (name,)).fetchone()[0]


@contextlib.asynccontextmanager
async def psycopg_async():
    async with await psycopg.AsyncConnection.connect(autocommit=True) as connection:
        yield connection, connection.transaction


@contextlib.asynccontextmanager
async def asyncpg():
    connection = await pytest.importorskip("asyncpg").connect(database=os.environ["PGDATABASE"])
    yield connection, connection.transaction
    await connection.close()


@contextlib.asynccontextmanager
async def sqlalchemy_async_session():
    pytest.importorskip("sqlalchemy")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(url("postgresql+asyncpg"))
    async with AsyncSession(engine) as session:
        yield session, session.begin
    await engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_async_connection():
    pytest.importorskip("sqlalchemy")
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url("postgresql+psycopg"))
    async with engine.connect() as connection:
        yield connection, connection.begin
    await engine.dispose()


TASKS = [psycopg_async, asyncpg, sqlalchemy_async_connection, sqlalchemy_async_session]


@pytest.mark.parametrize("driver", TASKS, ids=lambda driver: driver.__name__)
async def test_fence_of_asyncio(name, db, driver):
    async with aio.connect(ttl=5) as session, driver() as (connection, transaction):
        async with session.lock([name + " 100%", name + "'\\"]) as hold:
            async with transaction():
                await hold.fence(connection)
                assert fenced_by(db, name) == 2
            assert fenced_by(db, name) == 0
            if driver in (psycopg_async, asyncpg):
                with pytest.raises(lock_election.InvalidRequest, match="transaction"):
                    await hold.fence(connection)
            db.execute("SELECT force_release_lock(%s)", (name + " 100%",))
            with pytest.raises(lock_election.LockLost):
                async with transaction():
                    await hold.fence(connection)
        async with await session.election(name).campaign() as term, transaction():
            await term.fence(connection)


async def test_a_connection_of_asyncio_is_refused_by_a_session_of_threads(session, name):
    with session.lock(name) as hold:
        async with await psycopg.AsyncConnection.connect() as connection:
            with pytest.raises(lock_election.InvalidRequest, match="asyncio"):
                hold.fence(connection)


def test_names_are_texts_whatever_is_in_them(db):
    for text in ("plain name", "it's", 'a"b', "back\\slash", "per%cent", ":colon", "?", "$1", "naïve ☃", "", "\n"):
        assert db.execute(f"SELECT {literal(text)}").fetchone() == (text,)

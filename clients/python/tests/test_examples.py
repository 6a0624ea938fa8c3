"""The programs of examples/: with processes that are killed, stopped past the TTL, and cut off."""

import pathlib
import re
import signal

import psycopg
import pytest
from conftest import connections, cut, until, waiters
from programs import EXAMPLES, free, load, programs, running

import lock_election


@pytest.fixture(autouse=True)
def nothing_held(db):
    free(db)
    yield
    free(db)


@pytest.mark.parametrize("file", ["minutely.py", "leader.py", "fenced.py", "worker.py"])
def test_a_program_has_at_most_15_lines(file):
    lines = (EXAMPLES / file).read_text().split('"""', 2)[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 15


def test_a_job_each_minute_runs_once(db):
    """Two seconds are a minute here. One of four workers is killed, one is stopped, and all are cut off once."""
    with programs(db, *[("minutely.py", 2)] * 4) as workers:

        def runs():
            return sorted(float(line.split()[1]) for worker in workers for line in worker.lines)

        until(lambda: len(runs()) >= 2, 30)
        workers[0].signal(signal.SIGKILL)
        workers[1].signal(signal.SIGSTOP)
        until(lambda: len(runs()) >= 4, 30)
        workers[1].signal(signal.SIGCONT)
        cut(db)
        until(lambda: len(runs()) >= 6, 30)
        minutes = [int((run + 0.5) // 2) for run in runs()]
        assert len(set(minutes)) == len(minutes)


def leaders(replicas):
    """Those that lead now."""
    return [replica for replica in replicas if replica.lines and replica.lines[-1].startswith("leads")]


def test_one_of_three_leads(db):
    with programs(db, *[("leader.py", name, 1) for name in "abc"]) as replicas:
        until(lambda: len(leaders(replicas)) == 1)
        (first,) = leaders(replicas)
        first.kill()
        replicas.remove(first)
        until(lambda: len(leaders(replicas)) == 1)
        # stopped past its TTL: the other one leads, and this one says that it has lost
        (second,) = leaders(replicas)
        second.signal(signal.SIGSTOP)
        (third,) = [replica for replica in replicas if replica is not second]
        until(lambda: leaders([third]))
        second.signal(signal.SIGCONT)
        until(lambda: second.lines[-1] == "lost")
        assert leaders(replicas) == [third]
        third.signal(signal.SIGTERM)
        until(lambda: leaders([second]))
        cut(db)
        until(lambda: db.execute("SELECT count(*) FROM lock_election.elections").fetchone() == (1,))


def test_fenced_writes_are_not_lost(db):
    db.execute("CREATE TABLE balance (amount bigint, token bigint)")
    db.execute("INSERT INTO balance VALUES (0, 0)")
    # no write of a lower token than that of the row: the trigger of a resource that compares
    db.execute(
        "CREATE FUNCTION grows() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF NEW.token < OLD.token THEN RAISE 'late'; END IF; RETURN NEW; END$$"
    )
    db.execute("CREATE TRIGGER grows BEFORE UPDATE ON balance FOR EACH ROW EXECUTE FUNCTION grows()")
    db.execute("CREATE TRIGGER guard BEFORE UPDATE ON balance EXECUTE FUNCTION fence_guard('balance')")

    def amount():
        return db.execute("SELECT amount FROM balance").fetchone()[0]

    def grows(by=5):
        """One that is stopped in its fenced transaction is in the way for lock_election.fence_timeout, a minute."""
        goal = amount() + by
        until(lambda: amount() >= goal, 120)

    with programs(db, *[("fenced.py", 1)] * 3) as writers:
        grows()
        writers[0].signal(signal.SIGKILL)
        writers[1].signal(signal.SIGSTOP)
        grows()
        writers[1].signal(signal.SIGCONT)
        cut(db)
        grows()
        writers[2].signal(signal.SIGKILL)
        grows()
    db.execute("DROP TABLE balance")


def test_jobs_are_done_once(db):
    db.execute("CREATE TABLE job (id bigint PRIMARY KEY, done_at timestamptz)")
    db.execute("CREATE TABLE done (id bigint)")
    db.execute("CREATE RULE done AS ON UPDATE TO job DO ALSO INSERT INTO done VALUES (NEW.id)")
    db.execute("INSERT INTO job SELECT generate_series(1, 300)")

    def left():
        return db.execute("SELECT count(*) FROM job WHERE done_at IS NULL").fetchone()[0]

    # Nobody has a job before all workers are there: on a busy machine the first one would have done them.
    jobs = [f"job {i}" for i in range(1, 301)]
    token = db.execute("SELECT acquire_locks(%s, '5 min')", (jobs,)).fetchone()[0]
    with programs(db, *[("worker.py",)] * 3) as workers:
        db.execute("SELECT release_locks(%s, %s)", (jobs, token))
        until(lambda: left() < 270, 60)
        workers[0].signal(signal.SIGKILL)
        workers[1].signal(signal.SIGSTOP)
        # one that is stopped in a fenced transaction keeps its job for lock_election.fence_timeout, a minute
        until(lambda: left() <= 1, 60)
        workers[1].signal(signal.SIGCONT)
        until(lambda: left() == 0, 60)
        for worker in workers[1:]:
            assert worker.process.wait(20) == 0
    assert db.execute("SELECT count(*), count(DISTINCT id) FROM done").fetchone() == (300, 300)
    db.execute("DROP TABLE job, done")


def holders(db, name):
    return db.execute("SELECT count(slot) FROM lock_election.locks WHERE name = %s", (name,)).fetchone()[0]


def test_a_barrier_waits_for_living_members_alone(db, name):
    """One of four members is killed in the run, and one is stopped past its TTL; all are cut off once."""
    with running() as run:

        def start(member):
            return run(EXAMPLES / "barrier.py", name, member, 4, 5)

        until(lambda: connections(db) == 0)
        a, b, killed = [start(member) for member in "abc"]
        until(lambda: holders(db, name) == 3)
        cut(db)
        killed.kill()
        c, d = [start(member) for member in "cd"]
        # the new c waits until the old one has left, and does not count twice
        until(lambda: all(member.lines == ["begins"] for member in (a, b, c, d)), 60)
        b.signal(signal.SIGKILL)
        c.signal(signal.SIGSTOP)
        a.process.stdin.close()
        until(lambda: holders(db, name) == 1 and waiters(db, name) == 1)
        d.process.stdin.write(b"a step\n")
        d.process.stdin.flush()
        until(lambda: d.lines == ["begins", "did a step"])
        assert a.lines == ["begins"]
        d.process.stdin.close()
        until(lambda: a.lines[-1] == "left" and d.lines[-1] == "left")
        c.signal(signal.SIGCONT)
        c.process.stdin.close()
        assert c.process.wait(20) == 1
        assert killed.lines == [] and c.lines == ["begins"]
        late = start("e")
        late.process.stdin.close()
        until(lambda: late.lines == ["begins", "left"])


def test_a_member_that_fails_to_enter_a_barrier_does_not_count(db, name):
    barrier = load("barrier")
    with lock_election.connect(ttl=10) as session:
        failing = barrier.DoubleBarrier(session, name, 2, "options='-c search_path=pg_catalog'")
        with pytest.raises(psycopg.Error):
            failing.enter("a")
        assert holders(db, name) == 0
        assert holders(db, f"{name}, member a") == 0


def test_every_example_is_here():
    text = "".join(file.read_text() for file in pathlib.Path(__file__).parent.glob("test_*.py"))
    for file in EXAMPLES.glob("*.py"):
        assert re.search(rf"\b{file.stem}\.\w", text), file

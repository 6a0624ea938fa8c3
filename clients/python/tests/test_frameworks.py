"""The examples for schedulers and frameworks: in several processes, of which one is killed, and one stopped."""

import os
import re
import shutil
import signal
import socket
import subprocess
import textwrap

import pytest
from conftest import connections, until
from programs import EXAMPLES, free, programs, running

LEADER = "SELECT owner FROM lock_election.elections WHERE election = %s"


@pytest.fixture(autouse=True)
def nothing_held(db, database):
    free(db)
    # A program that is stopped in a fenced transaction blocks the others no longer than that.
    db.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '3 s'")
    yield
    db.execute(f"ALTER DATABASE {database} RESET idle_in_transaction_session_timeout")
    free(db)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The URL of a Redis server."""
    pytest.importorskip("celery")
    pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    directory = tmp_path_factory.mktemp("redis")
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def answers():
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers)
        yield f"redis://127.0.0.1:{port}/"
    finally:
        server.kill()
        server.wait()


def leader(db, election, started):
    """The program that leads, by the end of its owner, HOST:PID#..."""

    def found():
        owners = [owner for (owner,) in db.execute(LEADER, (election,)) if owner]
        return [program for program in started for owner in owners if f":{program.process.pid}#" in f"{owner}#"]

    until(found, 60)
    return found()[0]


def runs(started):
    return sorted(float(line.split()[1]) for program in started for line in program.lines if line.startswith("run "))


def records_updates(db, table, column, type_):
    """The table record gets each value to which an update sets the column, in their order."""
    db.execute(f"CREATE TABLE record (number serial, value {type_})")
    db.execute(
        "CREATE OR REPLACE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN INSERT INTO record (value) VALUES (NEW.{column}); RETURN NULL; END$$"
    )
    db.execute(f"CREATE TRIGGER record AFTER UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION record()")


# --- APScheduler ----------------------------------------------------------------------------------------------------


def test_apscheduler_runs_a_job_in_one_replica(db):
    """Two seconds are a period here. The name is closed for 1.6 s from the start of a run."""
    pytest.importorskip("apscheduler")
    with programs(db, *[("apscheduler_once.py", 2)] * 3) as replicas:
        until(lambda: len(runs(replicas)) >= 2, 30)
        replicas[0].kill()
        replicas[1].signal(signal.SIGSTOP)
        before = len(runs(replicas))
        until(lambda: len(runs(replicas)) >= before + 2, 30)
        replicas[1].signal(signal.SIGCONT)
        before = len(runs(replicas))
        until(lambda: len(runs(replicas)) >= before + 2, 30)
        starts = runs(replicas)
        assert all(later - start > 1.3 for start, later in zip(starts, starts[1:])), starts


def test_apscheduler_runs_in_the_leader_alone(db):
    pytest.importorskip("apscheduler")
    pytest.importorskip("sqlalchemy")
    url = "postgresql+psycopg2://"  # PGHOST and the like
    with programs(db, *[("apscheduler_leader.py", url, 3)] * 3) as replicas:
        first = leader(db, "apscheduler", replicas)
        until(lambda: len(runs([first])) >= 2, 30)
        assert runs(replicas) == runs([first])
        first.kill()
        rest = [replica for replica in replicas if replica is not first]
        second = leader(db, "apscheduler", rest)
        until(lambda: runs([second]), 30)
        second.signal(signal.SIGSTOP)
        (third,) = [replica for replica in rest if replica is not second]
        until(lambda: runs([third]), 30)
        second.signal(signal.SIGCONT)
        until(lambda: second.lines[-1] == "lost", 30)
        done = len(runs([second]))
        before = len(runs([third]))
        until(lambda: len(runs([third])) >= before + 2, 30)
        assert len(runs([second])) == done
        assert third.lines[-1] != "lost"
    db.execute("DROP TABLE apscheduler_jobs")


# --- Celery ---------------------------------------------------------------------------------------------------------

APP = """
    import pathlib, time
    import celery_beat, celery_once
    from celery_once import app

    celery_beat.TTL = celery_once.TTL = 4
    app.conf.worker_prefetch_multiplier = 1
    app.conf.broker_connection_retry_on_startup = True
    # the broker gives the task of a dead worker to the next one after 2 s
    app.conf.broker_transport_options = {
        "visibility_timeout": 2, "unacked_restore_interval": 0.5, "unacked_restore_throttle": 1
    }
    app.conf.beat_schedule = {"reports": {"task": "celery_once.report", "schedule": 1.0, "args": ["today"]}}

    def work(order):
        print(f"works on {order}", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
        return f"the bill of order {order}"

    celery_once.make_bill = work
"""


@pytest.fixture
def celery_app(tmp_path, broker):
    """A function that starts a command of celery, of an application with short times, in a directory of its own."""
    import redis

    redis.Redis.from_url(broker).flushall()
    (tmp_path / "short.py").write_text(textwrap.dedent(APP))
    with running() as run:

        def celery(*command, **how):
            return run("-m", "celery", "-A", "short", *command, cwd=tmp_path, CELERY_BROKER_URL=broker, **how)

        yield celery


def celery_workers(celery_app, count):
    workers = [celery_app("worker", "--concurrency", 1, "--hostname", f"{i}@x", "-l", "INFO") for i in range(count)]
    until(lambda: all(says(worker, " ready.") for worker in workers), 60)
    return workers


def send(broker, task, *arguments):
    import celery

    with celery.Celery(broker=broker) as app:
        app.send_task(task, arguments)


def says(program, text):
    return any(text in line for line in program.lines)


def test_celery_does_the_task_of_a_killed_worker_once(db, celery_app, broker, tmp_path):
    db.execute("CREATE TABLE bill (number int PRIMARY KEY, text text)")
    workers = celery_workers(celery_app, 3)
    send(broker, "celery_once.bill", 7)

    def working(others=()):
        return [worker for worker in workers if worker not in others and says(worker, "works on 7")]

    # killed with the task in its hands; then stopped, longer than the TTL and the broker's patience
    until(working, 60)
    (first,) = working()
    first.kill()
    until(lambda: working([first]), 60)
    (second,) = working([first])
    second.signal(signal.SIGSTOP)
    until(lambda: working([first, second]), 60)
    assert db.execute("SELECT count(*) FROM bill").fetchone() == (0,)
    (tmp_path / "go").touch()
    until(lambda: db.execute("SELECT text FROM bill").fetchall() == [("the bill of order 7",)], 60)
    second.signal(signal.SIGCONT)
    until(lambda: says(second, "is not held any more") or says(second, "LockLost"), 60)
    (third,) = working([first, second])
    send(broker, "celery_once.bill", 7)
    send(broker, "celery_once.bill", 8)
    until(lambda: says(second, "works on 8") or says(third, "works on 8"), 60)
    until(lambda: db.execute("SELECT count(*) FROM bill").fetchone() == (2,), 60)
    assert sum(line.endswith("works on 7") for worker in workers for line in worker.lines) == 3
    db.execute("DROP TABLE bill")


def test_celery_makes_a_report_at_most_once(db, celery_app, broker, name):
    """Two workers get it three times."""
    workers = celery_workers(celery_app, 2)
    for _ in range(3):
        send(broker, "celery_once.report", name)

    def results():
        lines = [line for worker in workers for line in worker.lines]
        return sorted(re.findall(r"celery_once.report.* succeeded in .*: (.*)", "\n".join(lines)), key=len)

    until(lambda: len(results()) == 3, 60)
    assert results() == ["None", "None", f"'the report of {name}'"]


def test_one_beat_of_many_sends(db, celery_app, broker):
    """A second is a period here. No two sendings are closer, whichever beat has made them."""
    import redis

    db.execute("CREATE TABLE celery_beat (entry text PRIMARY KEY, sent_at timestamptz NOT NULL)")
    records_updates(db, "celery_beat", "sent_at", "timestamptz")
    command = ("beat", "--scheduler", "celery_beat.LeaderScheduler", "--pidfile=", "-l", "INFO")
    until(lambda: connections(db) == 0)
    beats = [celery_app(*command) for _ in range(3)]
    until(lambda: connections(db) == 3, 60)

    def sent():
        return db.execute("SELECT count(*) FROM record").fetchone()[0]

    def more(by):
        goal = sent() + by
        until(lambda: sent() >= goal, 60)

    more(3)
    first = leader(db, "celery beat", beats)
    first.kill()
    others = [beat for beat in beats if beat is not first]
    second = leader(db, "celery beat", others)
    more(2)
    second.signal(signal.SIGSTOP)
    (third,) = [beat for beat in others if beat is not second]
    until(lambda: leader(db, "celery beat", others) is third, 60)
    more(2)
    second.signal(signal.SIGCONT)
    more(3)
    third.process.terminate()
    third.process.wait(60)
    until(lambda: says(second, "leads, term"))
    more(2)
    for beat in beats:
        beat.kill()
    pauses = "SELECT value - lag(value) OVER (ORDER BY number) AS pause FROM record"
    assert db.execute(f"SELECT count(*) FROM ({pauses}) AS p WHERE pause < '0.9 s'").fetchone() == (0,)
    # A beat that is killed between the sending and its commit has sent once more.
    messages = redis.Redis.from_url(broker).llen("celery")
    assert sent() <= messages <= sent() + 2
    db.execute("DROP TABLE celery_beat, record")


# --- Django ---------------------------------------------------------------------------------------------------------


def test_django_command_runs_on_one_machine(db, tmp_path):
    """A thousand months are closed by three processes: each by one of them, and of a late one nothing is written."""
    pytest.importorskip("django")
    db.execute("CREATE TABLE month (id int PRIMARY KEY, closed_by bigint)")
    records_updates(db, "month", "closed_by", "bigint")
    db.execute("INSERT INTO month SELECT generate_series(1, 1000)")
    commands = tmp_path / "shop/management/commands"
    commands.mkdir(parents=True)
    (commands / "close_books.py").symlink_to(EXAMPLES / "django_command.py")
    for package in (tmp_path / "shop", commands.parent, commands):
        (package / "__init__.py").touch()
    variables = {"NAME": "PGDATABASE", "HOST": "PGHOST", "PORT": "PGPORT", "USER": "PGUSER"}
    database = {key: os.environ.get(variable, "") for key, variable in variables.items()}
    database.update(ENGINE="django.db.backends.postgresql", OPTIONS={"application_name": "shop"})
    (tmp_path / "settings.py").write_text(f"DATABASES = {{'default': {database}}}\nINSTALLED_APPS = ['shop']\n")

    def closed():
        return db.execute("SELECT count(*) FROM month WHERE closed_by IS NOT NULL").fetchone()[0]

    def holder(others=()):
        owners = [owner for (owner,) in db.execute("SELECT owner FROM lock_election.locks WHERE name = 'books'")]
        found = [r for r in replicas for owner in owners if f":{r.process.pid}#" in f"{owner}#" and r not in others]
        return found[0] if found else None

    def is_stopped_between_writes(replica):
        """So it has chosen a month, and does not know that this is another one's by now."""
        replica.signal(signal.SIGSTOP)
        backend = "SELECT state, query FROM pg_stat_activity WHERE application_name = 'shop'"
        until(lambda: db.execute(backend).fetchone()[0] != "active")
        state, query = db.execute(backend).fetchone()
        if state == "idle" and query.startswith("SELECT id FROM month"):
            return True
        replica.signal(signal.SIGCONT)
        return False

    def start(run, *options):
        return run("-m", "django", "close_books", *options, cwd=tmp_path, DJANGO_SETTINGS_MODULE="settings")

    with running() as run:
        replicas = [start(run, "--ttl", 3, "--wait", 60) for _ in range(3)]
        until(lambda: closed() >= 10 and holder(), 60)
        first = holder()
        first.kill()
        until(lambda: holder([first]), 60)
        second = holder([first])
        before = closed()
        until(lambda: closed() >= before + 10, 60)
        until(lambda: is_stopped_between_writes(second), 60)
        until(lambda: holder([first, second]), 60)
        second.signal(signal.SIGCONT)
        (third,) = [replica for replica in replicas if replica not in (first, second)]
        assert second.process.wait(60) == 1
        assert third.process.wait(60) == 0
        assert says(second, "another machine goes on")
        db.execute("SELECT acquire_lock('books')")
        refused = start(run, "--wait", 0)
        assert refused.process.wait(60) == 1
        assert says(refused, "another machine runs it")
    assert closed() == 1000
    assert db.execute("SELECT count(*), count(DISTINCT value) FROM record").fetchone() == (1000, 3)
    steps = "SELECT value - lag(value) OVER (ORDER BY number) AS step FROM record"
    assert db.execute(f"SELECT count(*) FROM ({steps}) AS s WHERE step < 0").fetchone() == (0,)
    db.execute("DROP TABLE month, record")

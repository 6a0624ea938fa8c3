"""Sessions for threads, on a server."""

import gc
import math
import os
import signal
import socket
import threading
import time
from decimal import Decimal
from fractions import Fraction

import psycopg
import pytest
from conftest import cut, manager_of, until, waiters

import lock_election

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def session(nothing_left):
    with lock_election.connect(ttl=4, name="test") as session:
        yield session


def in_thread(function, *arguments):
    """Starts it; the result has what it returns or raises."""
    result = []

    def run():
        try:
            result.append(function(*arguments))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, result


def test_lock_is_held_within_the_block(session, name):
    with session.lock(name, wait=5) as hold:
        assert hold.valid
        assert hold.token > 0
        assert 0 < hold.time_left <= 4
        assert not hold.lost.is_set()
        assert session.lock(name).try_acquire() is None
    assert not hold.valid
    assert hold.lost.is_set()
    with session.lock(name, wait=0) as later:
        assert later.token > hold.token


def test_wait_ends_with_its_limit_and_leaves_no_place(session, name, db):
    with session.lock(name):
        begin = time.monotonic()
        with pytest.raises(lock_election.NotAcquired):
            session.lock(name, wait=0.3).acquire()
        assert 0.3 <= time.monotonic() - begin < 3
        until(lambda: waiters(db, name) == 0)


def test_waiters_are_granted_in_their_order(session, name, db):
    order = []

    def work(i):
        with session.lock(name):
            order.append(i)

    with session.lock(name):
        threads = []
        for i in range(10):
            threads.append(in_thread(work, i)[0])
            until(lambda i=i: waiters(db, name) == i + 1)
    for thread in threads:
        thread.join()
    assert order == list(range(10))


def test_modes(session, name):
    with session.lock(name, shared=True), session.lock(name, shared=True):
        assert session.lock(name).try_acquire() is None
    with session.permit(name, 2), session.permit(name, 2), pytest.raises(lock_election.NotAcquired):
        session.permit(name, 2, wait=0).acquire()
    with session.lock([name + "a", name + "b"]) as hold:
        assert hold.names == (name + "a", name + "b")
        assert session.lock(name + "b").try_acquire() is None
        assert session.lock([name + "b", name + "c"]).try_acquire() is None
    assert hold.release() is True  # as it was released already


def test_many_each_for_itself(session, name):
    names = [f"{name} {i}" for i in range(200)]
    with session.lock(names[7]):
        holds = session.try_acquire_each(names)
    assert session.try_acquire_each([]) == []
    assert [hold is None for hold in holds] == [i == 7 for i in range(200)]
    threads = [in_thread(hold.release) for hold in holds if hold is not None]
    for thread, result in threads:
        thread.join()
        assert result == [True]
    with session.lock(names, wait=0):
        pass


def test_fence(session, name, db):
    db.execute("CREATE TABLE IF NOT EXISTS fenced (x text)")
    with psycopg.connect() as work, session.lock(name + "'\\ %s") as hold:
        with work.transaction():
            hold.fence(work)
            work.execute("INSERT INTO fenced VALUES ('in time')")
        db.execute("SELECT force_release_lock(%s)", hold.names)
        with pytest.raises(lock_election.LockLost), work.transaction():
            hold.fence(work)
            work.execute("INSERT INTO fenced VALUES ('late')")
        until(hold.lost.is_set)
        with pytest.raises(lock_election.LockLost):
            hold.fence(None)  # local
    with session.lock(name) as hold, pytest.raises(lock_election.InvalidRequest):
        hold.fence(db)  # outside of a transaction
    assert db.execute("SELECT x FROM fenced").fetchall() == [("in time",)]
    db.execute("DROP TABLE fenced")


def test_forced_release_is_told(session, name, db):
    told = []
    with session.lock(name, on_lost=lambda hold: told.append(hold.token)) as hold:
        db.execute("SELECT force_release_lock(%s)", (name,))
        assert hold.lost.wait(10)
        until(lambda: told == [hold.token])
        assert hold.release() is False
    assert session.state == "connected"


def test_without_threads_no_session_is_opened_and_a_loss_is_told_by_the_event(name, db, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("lock_election"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with lock_election.connect(ttl=30) as session:
        holds = [session.lock(name + end, on_lost=lambda _: None).acquire() for end in "abc"]
        open_files = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(threading.Thread, "start", refuse)
        gc.disable()
        try:
            with pytest.raises(RuntimeError):
                lock_election.connect(ttl=4)
            assert len(os.listdir("/proc/self/fd")) == open_files
        finally:
            gc.enable()
        db.execute("SELECT force_release_lock(%s)", (name + "a",))
        with session._mutex:
            session._protocol.main.renew_at = 0.0
        session._wake()
        assert holds[0].lost.wait(10)
        assert session.state == "connected"
        assert [hold.valid for hold in holds] == [False, True, True]
        db.execute("SELECT force_release_lock(%s)", (name + "b",))
        with session._mutex:
            session._protocol.main.renew_at = 0.0
        session._wake()
        assert holds[1].lost.wait(10)
        assert holds[2].valid


def test_several_are_lost_with_one_of_them(session, name, db):
    with session.lock([name + "a", name + "b"]) as hold:
        db.execute("SELECT force_release_lock(%s)", (name + "b",))
        assert hold.lost.wait(10)
        with session.lock(name + "a", wait=10):
            pass


def test_a_broken_connection_loses_nothing(session, name, db):
    with session.lock(name) as hold:
        thread, result = in_thread(session.lock(name).acquire)
        until(lambda: waiters(db, name) == 1)
        token = hold.token
        cut(db)
        until(lambda: session.state == "connected" and hold.time_left > 3)
        assert hold.valid
        assert hold.token == token
    thread.join()
    assert result[0].valid
    result[0].release()


def test_end_of_the_lease_ends_the_session(session, name, db):
    with session.lock(name) as hold:
        thread, result = in_thread(session.lock(name).acquire)
        until(lambda: waiters(db, name) == 1)
        db.execute("SELECT revoke_lease(%s)", (session.lease,))
        assert hold.lost.wait(10)
        thread.join()
        assert isinstance(result[0], lock_election.LockLost)
        assert session.state == "ended"
        with pytest.raises(lock_election.LockLost):
            session.lock(name).acquire()
        session.reopen()
        assert not hold.valid
        with session.lock(name, wait=0) as again:
            assert again.valid


def test_own_ttl(session, name, db):
    with session.lock(name, ttl=1) as hold:
        assert hold.time_left <= 1
        assert db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (2,)
        assert not hold.lost.wait(2)
        assert hold.valid
    until(lambda: db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (1,))


def test_hold_for_keeps_the_name_closed(session, name):
    runs = []
    job = session.once(name, hold_for=1)(lambda i: runs.append(i) or "done")
    assert job(1) == "done"
    assert job(2) is None
    elsewhere = object()
    assert session.once(name, hold_for=1, otherwise=elsewhere)(lambda: None)() is elsewhere
    with session.lock(name, wait=5):
        pass
    assert job(3) == "done"
    assert session.once(name + " b", hold_for=0, otherwise=elsewhere)(lambda: None)() is None, "it has run"
    assert runs == [1, 3]
    with pytest.raises(lock_election.InvalidRequest):
        session.lock(name, wait=5).acquire().release(hold_for=1e9)
    with pytest.raises(lock_election.LimitExceeded, match="max_hold_for"):
        session.lock(name, wait=0).acquire().release(hold_for=2 * 86400)
    with session.lock(name, wait=0):
        pass
    with pytest.raises(lock_election.LimitExceeded, match="max_hold_for"):
        session.once(name, hold_for=2 * 86400)(lambda: runs.append("late"))()
    assert runs == [1, 3], "a job that would not stay closed does not run"


@pytest.mark.parametrize("hold_for", [-1, float("nan"), "1"])
def test_a_wrong_hold_for_releases_all_the_same(session, name, hold_for):
    hold = session.lock(name).acquire()
    with pytest.raises(lock_election.InvalidRequest):
        hold.release(hold_for=hold_for)
    with session.lock(name, wait=0):
        pass


def test_wrong_arguments_of_connect_and_close(session):
    for conninfo in (None, 5, b""):
        with pytest.raises(lock_election.InvalidRequest):
            lock_election.connect(conninfo)
    for limit in (-1, float("nan"), "x"):
        with pytest.raises(lock_election.InvalidRequest):
            session.close(limit)
    session.close(float("inf"))
    session.close(1e10)


def test_a_handler_of_a_signal_closes_the_session_in_the_middle_of_a_call(name):
    session = lock_election.connect()
    with session._mutex:  # where a signal may come
        session.close()
        with pytest.raises(lock_election.Canceled):
            session.lock(name).acquire()


def test_who_observes_an_election_without_a_leader_is_told(session, name):
    with session.election(name, "a").observe() as watch:
        assert next(watch) is None


def test_who_observes_an_election_that_nobody_leads_any_more_is_told(session, name):
    with session.election(name, "a").campaign():
        pass
    with session.election(name, "a").observe() as watch:
        assert watch._first == [None]


def test_who_observes_is_told_of_all_that_comes_after(session, name):
    """Also where the caller's turns leave the session's own thread no time to look in between."""
    for i in range(20):
        election = session.election(f"{name} {i}", "a")
        with election.observe() as watch:
            with election.campaign() as term:
                pass
            assert [next(watch) for _ in range(3)] == [None, ("a", term.token), None]


def test_once_of_a_job_that_fails_keeps_the_name_closed(session, name):
    @session.once(name, hold_for=30)
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert fail() is None


def test_election(session, name):
    election = session.election(name, "a")
    assert election.leader() is None
    with election.observe() as watch:
        term = election.campaign()
        assert election.leader() == ("a", term.token)
        assert next(watch) is None
        assert next(watch) == ("a", term.token)
        term.proclaim("b")
        assert next(watch) == ("b", term.token)
        assert session.election(name, "c").observe().__next__() == ("b", term.token)
        with pytest.raises(lock_election.NotAcquired):
            session.election(name, "c").campaign(wait=0)
        with pytest.raises(lock_election.InvalidRequest):
            term.release(hold_for=1)
        assert term.resign() is True
        assert next(watch) is None
        with pytest.raises(lock_election.LockLost):
            term.proclaim("c")
        assert watch._observer.election == name
    with pytest.raises(StopIteration):
        next(watch)


def test_run_leads_again_after_a_loss(session, name, db):
    terms = []

    def lead(term, lost):
        terms.append(term.token)
        if len(terms) == 1:
            db.execute("SELECT revoke_lease(%s)", (session.lease,))
            assert lost.wait(10)
            return "lost"
        with psycopg.connect() as work, work.transaction():
            term.fence(work)
        return "led"

    assert session.election(name).run(lead) == "led"
    assert len(terms) == 2
    assert session.election(name).leader() is None


def test_a_candidate_without_a_value_has_the_name_of_its_session(name):
    with lock_election.connect(name="worker #1") as session, session.election(name).campaign():
        assert session.election(name).leader().value == "worker #1"
    with lock_election.connect() as session, session.election(name).campaign():
        assert session.election(name).leader().value == f"{socket.gethostname()}:{os.getpid()}"


def test_an_empty_candidate_is_refused(session, name):
    with pytest.raises(lock_election.InvalidRequest, match="must not be empty"):
        session.election(name, "").campaign()
    with pytest.raises(lock_election.InvalidRequest, match="must not be empty"):
        session.election(name, "").run(lambda term, lost: None)
    term = session.election(name, "a").campaign()
    with term, pytest.raises(lock_election.InvalidRequest, match="must not be empty"):
        term.proclaim("")


def test_run_resigns_after_the_leader_has_failed(session, name):
    def fail(term, lost):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        session.election(name).run(fail)
    assert session.election(name).leader() is None


def test_run_can_be_canceled(session, name, db):
    with session.election(name, "a").campaign():
        other = session.election(name, "b")
        thread, result = in_thread(other.run, lambda term, lost: "led")
        until(lambda: waiters(db, name) == 1)
        other.cancel()
        thread.join()
        assert result == [None]


def test_a_loss_is_told_while_the_server_does_not_answer(name, db):
    """Also to the thread that makes the call itself."""
    with lock_election.connect(ttl=1) as session:
        hold = session.lock(name).acquire()
        with psycopg.connect() as work:
            pid = manager_of(db)
            os.kill(pid, signal.SIGSTOP)
            try:
                thread, result = in_thread(session.lock(name + " other").acquire)
                assert hold.lost.wait(10)
                assert not hold.valid
                with pytest.raises(lock_election.LockLost):
                    hold.fence(work)
                thread.join()
                assert isinstance(result[0], lock_election.LockLost)
            finally:
                os.kill(pid, signal.SIGCONT)
        assert hold.release() is False


@pytest.mark.parametrize("whose", ["caller", "session"])
def test_a_loss_is_told_in_the_middle_of_a_call(name, db, whose):
    """Which takes 10 s, of a thread that asks for something, or of the session's own."""
    told = threading.Event()
    with lock_election.connect(ttl=60) as session:
        hold = session.lock(name, on_lost=lambda hold: told.set()).acquire()
        pid = manager_of(db)
        os.kill(pid, signal.SIGSTOP)
        try:
            if whose == "caller":
                thread, _ = in_thread(session.lock(name + " other").acquire)
            else:
                with session._mutex:
                    session._protocol.main.renew_at = 0.0
                session._wake()
            until(lambda: session._job is not None and bool(session._driver) == (whose == "caller"))
            if whose == "caller":  # the session's own thread has looked since then
                looked = session._sleeps_until
                until(lambda: session._sleeps_until != looked)
            with session._mutex:
                session._protocol.main.deadline = session._protocol.clock()
            assert told.wait(5)
        finally:
            os.kill(pid, signal.SIGCONT)
        if whose == "caller":
            thread.join()
        assert hold.release() is False


def interrupted(after, work):
    """Calls work; SIGALRM raises KeyboardInterrupt, as SIGINT does, after so many seconds."""
    armed = True

    def interrupt(*unused):
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
        armed = False
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore:.*was never released", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_leaves_the_session_to_the_others(session, name):
    """The thread that makes a call goes away: its call is finished, and what it was granted is given back."""
    end, pairs = threading.Event(), [0]

    def ask():
        while not end.is_set():
            with session.lock(f"{name} other"):
                pairs[0] += 1

    thread, _ = in_thread(ask)
    for i in range(200):
        interrupted(
            0.0001 + i * 0.00002, lambda i=i: [session.lock(f"{name} {i} {j}").acquire().release() for j in range(99)]
        )
    seen = pairs[0]
    until(lambda: pairs[0] > seen + 10)
    end.set()
    thread.join()
    until(lambda: session.state == "connected")


def test_a_cancel_reaches_the_thread_that_makes_the_call(session, name, db):
    """It does not wait for the answer."""
    lock = session.lock(name)
    manager = "backend_type = 'lock_election manager' AND datname = current_database()"
    pid = db.execute(f"SELECT pid FROM pg_stat_activity WHERE {manager}").fetchone()[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        thread, result = in_thread(lock.acquire)
        until(lambda: session._driver == thread.ident)
        lock.cancel()
        thread.join(5)
        assert isinstance(result[0], lock_election.Canceled)
    finally:
        os.kill(pid, signal.SIGCONT)
    with session.lock(name, wait=5):
        pass


def test_waiters_are_granted_while_others_ask_without_end(session, name, db):
    end = threading.Event()

    def ask(i):
        while not end.is_set():
            with session.lock(f"{name} {i}"):
                pass

    with session.election(name).observe() as watch:
        threads = [in_thread(ask, i)[0] for i in range(8)]
        for _ in range(5):
            with session.lock(name):
                thread, result = in_thread(session.lock(name, wait=4).acquire)
                until(lambda: waiters(db, name) == 1)
            thread.join()
            assert result[0].release() is True
        assert next(watch) is None
        with session.election(name, "a").campaign() as term:
            assert next(watch) == ("a", term.token)
        end.set()
        for thread in threads:
            thread.join()


def test_a_lock_object_that_threads_share(session, name):
    """The first thread leaves its own block, not that of the second one."""
    lock = session.permit(name, 2)
    entered, leave, told = threading.Event(), threading.Event(), []

    def second():
        with lock as hold:
            entered.set()
            leave.wait(20)
            told.append(hold.valid)

    with lock as first:
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(20)
    assert not first.valid
    leave.set()
    thread.join()
    assert told == [True]


def test_seconds_are_numbers_of_any_kind(session, name, db):
    with session.lock(name, ttl=Fraction(5)) as hold:
        with pytest.raises(lock_election.NotAcquired):
            session.lock(name).acquire(Decimal("0.05"))
        until(lambda: waiters(db, name) == 0)
        assert hold.valid
        assert hold.release(Decimal(0)) is True
    for bad in (10**400, Decimal("nan"), "5", b"5", [5], -1):
        with pytest.raises(lock_election.InvalidRequest, match="wait"):
            session.lock(name).acquire(bad)
        with pytest.raises(lock_election.InvalidRequest, match="ttl"):
            session.lock(name, ttl=bad)
    assert session.state == "connected"


def test_permits_and_elections_have_one_name(session, name):
    for names in ([name], (name, "other"), None, 5, b"name"):
        with pytest.raises(lock_election.InvalidRequest, match="name"):
            session.permit(names, 2)
        with pytest.raises(lock_election.InvalidRequest, match="name"):
            session.election(names)


def test_connect_timeout():
    with pytest.raises(lock_election.InvalidRequest, match="connect_timeout"):
        lock_election.connect("connect_timeout=soon")
    with lock_election.connect("connect_timeout=-1") as session:
        assert session.state == "connected"


def test_cancel_ends_a_wait(session, name, db):
    with session.lock(name):
        lock = session.lock(name)
        thread, result = in_thread(lock.acquire)
        until(lambda: waiters(db, name) == 1)
        lock.cancel()
        thread.join()
        assert isinstance(result[0], lock_election.Canceled)
        until(lambda: waiters(db, name) == 0)


def test_close_ends_waits_and_gives_back(name, db):
    session = lock_election.connect(ttl=4)
    hold = session.lock(name).acquire()
    thread, result = in_thread(session.lock(name).acquire)
    until(lambda: waiters(db, name) == 1)
    session.close()
    thread.join()
    assert isinstance(result[0], lock_election.Canceled)
    assert not hold.valid
    assert db.execute("SELECT count(*) FROM lock_election.locks WHERE name = %s", (name,)).fetchone() == (0,)
    session.close()
    assert hold.release() is None
    with pytest.raises(lock_election.Canceled):
        session.lock(name).acquire()


def test_a_hold_that_is_forgotten_is_given_back(session, name):
    hold = session.lock(name).acquire()
    with pytest.warns(ResourceWarning, match="never released"):
        del hold
        gc.collect()
    with session.lock(name, wait=5):
        pass


def test_an_evicted_hold_that_is_forgotten_is_given_back(session, name, db):
    """Long before its deadline, at which it would be free by itself."""
    hold = session.lock(name, ttl=600).acquire()
    db.execute("SELECT evict_lock(%s)", (name,))
    with session.lock(name + " other", ttl=600):  # a call, whose reply tells it
        assert hold.lost.wait(10)
    with pytest.warns(ResourceWarning, match="never released"):
        del hold
        gc.collect()
    with session.lock(name, wait=30):
        pass


def test_a_child_is_refused(session, name):
    with session.lock(name) as hold:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            refused = 0
            observe = session.election(name).observe
            for use in (session.lock(name).try_acquire, session.reopen, observe, lambda: hold.fence(None)):
                try:
                    use()
                except lock_election.InvalidRequest:
                    refused += 1
            held = hold.valid or hold.time_left > 0 or not hold.lost.is_set() or not hold.lost.wait(0)
            os.write(write, f"{refused} {held}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 10) == b"4 False"
        os.close(read)
        os.close(write)
        assert hold.valid


def test_a_thousand_waiters_on_one_connection(session, name, db):
    granted = []

    def work():
        with session.lock(name):
            granted.append(threading.get_ident())

    threading.stack_size(256 * 1024)
    try:
        with session.lock(name):
            threads = [in_thread(work)[0] for _ in range(1000)]
            until(lambda: waiters(db, name) == 1000, 60)
    finally:
        threading.stack_size(0)
    for thread in threads:
        thread.join()
    assert len(granted) == 1000


def test_errors_of_arguments(session, name):
    with pytest.raises(lock_election.InvalidRequest):
        session.lock("")
    with pytest.raises(lock_election.InvalidRequest):
        session.lock([])
    with pytest.raises(lock_election.InvalidRequest):
        session.lock("x" * 300, wait=1).acquire()
    with pytest.raises(lock_election.InvalidRequest):
        session.lock(name, ttl=0.01)
    with pytest.raises(ValueError, match="ttl"):
        lock_election.connect(ttl=0)
    with pytest.raises(lock_election.InvalidRequest):
        session.permit(name, 0, wait=1).acquire()
    with session.permit(name, 2), pytest.raises(lock_election.InvalidRequest) as caught:
        session.permit(name, 3, wait=1).acquire()
    assert caught.value.sqlstate == "22023"
    for seconds in (-1, math.nan, "5"):
        with pytest.raises(lock_election.InvalidRequest, match="wait is"):
            session.lock(name, wait=seconds)
        with pytest.raises(lock_election.InvalidRequest, match="wait is"):
            session.lock(name).acquire(seconds)
        with pytest.raises(lock_election.InvalidRequest, match="hold_for is"):
            session.once(name, hold_for=seconds)
        with pytest.raises(lock_election.InvalidRequest, match="ttl is"):
            session.lock(name, ttl="5 s" if seconds == "5" else seconds)
    term = session.election(name).campaign()
    with pytest.raises(lock_election.InvalidRequest, match="NUL"):
        term.proclaim("a\0b")
    assert term.resign() is True

    async def job():
        """Not for threads."""

    with pytest.raises(lock_election.InvalidRequest, match="aio"):
        session.once(name, hold_for=1)(job)
    with session.lock(name) as hold, psycopg.connect() as work:
        for bad in (None, work.cursor(), "password=S3cr3t"):
            with pytest.raises(lock_election.InvalidRequest, match="must be an open connection") as caught:
                hold.fence(bad)
            assert "S3cr3t" not in str(caught.value)
    assert session.state == "connected"


@pytest.mark.parametrize("bad", [None, 5, "a\0b", "a\udc80b"])
def test_a_name_that_the_server_cannot_have(session, name, bad):
    for use in (
        lambda: session.lock(bad),
        lambda: session.lock([name, bad]),
        lambda: session.try_acquire_each([name, bad]),
        lambda: session.election(bad, "me"),
        lambda: session.election(name, bad or 7),
        lambda: lock_election.connect(name=bad or 7),
    ):
        with pytest.raises(lock_election.InvalidRequest, match=r"must be a str|must be Unicode|NUL"):
            use()
    with session.lock(name, wait=0):
        pass


def test_an_error_in_the_client_ends_all_calls(db, name, monkeypatch):
    with lock_election.connect(ttl=1) as session:
        session.lock(name).acquire().release()

        def fails(*unused, **more):
            raise RuntimeError("a bug")

        monkeypatch.setattr(session._protocol, "_gather", fails)
        with pytest.raises(lock_election.Error):
            session.lock(name, wait=5).acquire()
        for call in (session.reopen, session.once(name, hold_for=1)(print), lambda: session.election(name).run(print)):
            with pytest.raises(lock_election.Error, match="a bug"):
                call()
    until(lambda: db.execute("SELECT count(*) FROM lock_election.leases").fetchone() == (0,))


def test_connecting_fails_at_once():
    with pytest.raises(lock_election.Unavailable):
        lock_election.connect("host=127.0.0.1 port=1")
    with pytest.raises(lock_election.Unavailable, match="resolve"):
        lock_election.connect("host=no-such-host.invalid")
    with pytest.raises(lock_election.NotInstalled) as told:
        lock_election.connect("dbname=template1")
    assert str(told.value) == (
        'lock_election is not installed in database "template1" '
        "(CREATE EXTENSION lock_election, or lockctl install for the portable edition)"
    )
    with pytest.raises(lock_election.Unavailable, match='database "no_such_database" does not exist') as told:
        lock_election.connect("dbname=no_such_database")
    assert type(told.value) is lock_election.Unavailable
    assert told.value.sqlstate == "3D000"
    with pytest.raises(lock_election.AccessDenied):
        lock_election.connect("user=no_such_role")
    with pytest.raises(lock_election.InvalidRequest):
        lock_election.connect("no such keyword")

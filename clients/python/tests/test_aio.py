"""Sessions for asyncio, on a server, in asyncio's debug mode."""

import asyncio
import gc
import os
import signal
import time

import psycopg
import pytest
import pytest_asyncio
from conftest import cut, manager_of, waiters

import lock_election
from lock_election import aio

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest_asyncio.fixture
async def session(nothing_left):
    asyncio.get_running_loop().set_debug(True)
    async with aio.connect(ttl=4, name="test") as session:
        yield session
    assert session._timer is None
    assert session._watched == (-1, False, False)


async def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.01)


async def test_lock_is_held_within_the_block(session, name):
    async with session.lock(name, wait=5) as hold:
        assert hold.valid
        assert not hold.lost.is_set()
        assert await session.lock(name).try_acquire() is None
        with pytest.raises(lock_election.NotAcquired):
            await session.lock(name, wait=0.2).acquire()
    assert not hold.valid
    assert hold.lost.is_set()
    async with session.permit(name, 2), session.permit(name, 2), session.lock([name + "a", name + "b"]):
        pass


async def test_a_cancelled_task_leaves_nothing(session, name, db):
    hold = await session.lock(name).acquire()
    task = asyncio.create_task(session.lock(name).acquire())
    await until(lambda: waiters(db, name) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: waiters(db, name) == 0)
    # cancelled while the server grants
    for _ in range(20):
        task = asyncio.create_task(session.lock(name + "'").acquire())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with session.lock(name + "'", wait=5):
        pass
    assert await hold.release() is True


async def test_fence(session, name, db):
    async with await psycopg.AsyncConnection.connect() as work:
        async with session.lock(name) as hold:
            async with work.transaction():
                await hold.fence(work)
            await work.commit()
            db.execute("SELECT force_release_lock(%s)", (name,))
            with pytest.raises(lock_election.LockLost):
                async with work.transaction():
                    await hold.fence(work)
            await asyncio.wait_for(hold.lost.wait(), 10)
        await work.set_autocommit(True)
        async with session.lock(name) as hold:
            with pytest.raises(lock_election.InvalidRequest):
                await hold.fence(work)


async def test_loss_is_told(session, name, db):
    told = []

    async def on_lost(hold):
        told.append(hold.token)

    async with session.lock(name, on_lost=on_lost) as hold:
        db.execute("SELECT revoke_lease(%s)", (session.lease,))
        await asyncio.wait_for(hold.lost.wait(), 10)
        await until(lambda: told == [hold.token])
        assert await hold.release() is False
    assert session.state == "ended"
    with pytest.raises(lock_election.LockLost):
        await session.lock(name).acquire()
    await session.reopen()
    async with session.lock(name, wait=0):
        pass


async def test_a_loss_is_told_in_the_middle_of_a_call(name, db):
    """Which takes 10 s."""
    told = asyncio.Event()
    async with aio.connect(ttl=60) as session:
        hold = await session.lock(name, on_lost=lambda hold: told.set()).acquire()
        pid = manager_of(db)
        os.kill(pid, signal.SIGSTOP)
        try:
            task = asyncio.create_task(session.lock(name + " other").acquire())
            await until(lambda: session._job is not None)
            session._protocol.main.deadline = session._protocol.clock()
            await asyncio.wait_for(told.wait(), 5)
        finally:
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(lock_election.LockLost):
            await task
        assert await hold.release() is False


async def test_a_blocked_loop_loses_by_the_clock(name):
    async with aio.connect(ttl=0.5) as session:
        hold = await session.lock(name).acquire()
        time.sleep(0.6)
        assert not hold.valid
        assert hold.lost.is_set()
        with pytest.raises(lock_election.LockLost):
            await hold.fence(None)
        assert await hold.release() is False


async def test_a_broken_connection_loses_nothing(session, name, db):
    async with session.lock(name) as hold:
        task = asyncio.create_task(session.lock(name).acquire())
        await until(lambda: waiters(db, name) == 1)
        cut(db)
        await until(lambda: session.state == "connected" and hold.time_left > 3)
        assert hold.valid
    async with await task as next_hold:
        assert next_hold.valid


async def test_election(session, name, db):
    election = session.election(name, "a")
    terms = []

    async def lead(term, lost):
        terms.append(term.token)
        assert await election.leader() == ("a", term.token)
        await term.proclaim("b")
        if len(terms) == 1:
            db.execute("SELECT revoke_lease(%s)", (session.lease,))
            await lost.wait()
            return "lost"
        return "led"

    told = []
    async with election.observe() as watch:
        assert await election.run(lead) == "led"
        async for leader in watch:
            told.append(leader)
            if len(told) == 7:
                watch.close()
    assert told == [None, ("a", terms[0]), ("b", terms[0]), None, ("a", terms[1]), ("b", terms[1]), None]


async def test_run_can_be_canceled(session, name, db):
    async with await session.election(name, "a").campaign():
        other = session.election(name, "b")
        task = asyncio.create_task(other.run(lambda term, lost: asyncio.sleep(0)))
        await until(lambda: waiters(db, name) == 1)
        other.cancel()
        assert await task is None


async def test_once(session, name):
    @session.once(name, hold_for=30)
    async def job(i):
        return i

    assert await job(1) == 1
    assert await job(2) is None
    assert await session.once(name, hold_for=30, otherwise="elsewhere")(job.__wrapped__)(3) == "elsewhere"
    with pytest.raises(lock_election.LimitExceeded, match="max_hold_for"):
        await session.once(name + " long", hold_for=2 * 86400)(job.__wrapped__)(3)


async def test_a_thousand_waiters_on_one_connection(session, name, db):
    async def work():
        async with session.lock(name):
            pass

    asyncio.get_running_loop().set_debug(False)
    hold = await session.lock(name).acquire()
    tasks = [asyncio.create_task(work()) for _ in range(1000)]
    await until(lambda: waiters(db, name) == 1000, 60)
    await hold.release()
    await asyncio.gather(*tasks)


async def test_close_ends_waits(name, db):
    session = await aio.connect(ttl=4)
    hold = await session.lock(name).acquire()
    task = asyncio.create_task(session.lock(name).acquire())
    await until(lambda: waiters(db, name) == 1)
    await session.close()
    with pytest.raises(lock_election.Canceled):
        await task
    assert await hold.release() is None
    with pytest.raises(lock_election.Canceled):
        await session.lock(name).acquire()


async def test_a_hold_that_is_forgotten_is_given_back(session, name):
    hold = await session.lock(name).acquire()
    with pytest.warns(ResourceWarning, match="never released"):
        del hold
        gc.collect()
    async with session.lock(name, wait=5):
        pass


async def test_other_loops_are_refused(session, name):
    lock = session.lock(name)

    def other_loop():
        with pytest.raises(lock_election.InvalidRequest, match="loop"):
            asyncio.run(lock.acquire())

    await asyncio.get_running_loop().run_in_executor(None, other_loop)
    with pytest.raises(lock_election.InvalidRequest, match="not open"):
        await aio.Session("", 30, None).close() or await aio.Session("", 30, None).lock(name).acquire()


async def test_a_lock_object_that_tasks_share(session, name):
    lock = session.permit(name, 2)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def second():
        async with lock as hold:
            entered.set()
            await leave.wait()
            return hold.valid

    async with lock as first:
        task = asyncio.create_task(second())
        await asyncio.wait_for(entered.wait(), 20)
    assert not first.valid
    leave.set()
    assert await task


async def test_a_program_that_cancels_all_tasks_of_its_loop_does_not_end_the_session(name):
    async with aio.connect(ttl=5) as session:
        async with session.lock(name) as hold:
            waiting = asyncio.create_task(session.lock(name).acquire())
            await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert hold.valid
        async with session.lock(name, wait=5):
            pass


async def test_an_error_in_the_client_ends_all_calls(name, db, monkeypatch):
    lost = asyncio.Event()
    async with aio.connect(ttl=5) as session:
        hold = await session.lock(name, on_lost=lambda _: lost.set()).acquire()
        waiting = asyncio.create_task(session.lock(name).acquire())
        await until(lambda: waiters(db, name) == 1)

        def fails(*unused, **more):
            raise RuntimeError("a bug")

        monkeypatch.setattr(session._protocol, "_gather", fails)
        calls = [waiting, session.lock(name + "b").acquire(), session.lock(name).acquire()]
        for call in calls:
            with pytest.raises(lock_election.LockLost, match="a bug"):
                await asyncio.wait_for(call, 20)
        await asyncio.wait_for(lost.wait(), 20)
        assert not hold.valid
        with pytest.raises(lock_election.Error, match="a bug"):
            await session.reopen()
    # The lease that nobody renews any more.
    db.execute("SELECT force_release_role(current_user::regrole)")


async def test_a_session_that_was_never_opened_says_so(name):
    session = aio.connect()
    uses = (
        lambda: session.state,
        lambda: session.lease,
        lambda: session.election(name),
        lambda: session.once(name, 1),
        session.lock(name).acquire,
        lambda: session.try_acquire_each([name]),
        session.reopen,
    )
    for use in uses:
        with pytest.raises(lock_election.InvalidRequest, match="not open"):
            result = use()
            if result is not None:
                await result
    await session.close()


async def test_connecting_fails_at_once():
    with pytest.raises(lock_election.Unavailable):
        await aio.connect("host=127.0.0.1 port=1")
    with pytest.raises(lock_election.NotInstalled):
        async with aio.connect("dbname=template1"):
            pass


async def test_a_child_that_goes_on_in_the_loop_leaves_the_session_to_its_parent(session, name, db):
    hold = await session.lock(name).acquire()
    child = os.fork()
    if child == 0:
        try:
            await asyncio.sleep(1.5)
        finally:
            os._exit(0)
    await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
    assert session.state == "connected"
    assert hold.valid
    assert await hold.release() is True

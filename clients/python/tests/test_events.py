"""on_event, and the spans of OpenTelemetry that are made from it, on a server, for threads and for asyncio."""

import asyncio
import contextvars
import threading
import time

import pytest
from conftest import cut, until, waiters

import lock_election
from lock_election import aio

pytestmark = pytest.mark.usefixtures("nothing_left")
CALLER = contextvars.ContextVar("caller", default="")


@pytest.fixture
def events():
    return []


def told(events, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in events]


def test_acquire_and_hold(events, name, db):
    with lock_election.connect(ttl=10, on_event=lambda event: events.append((event, CALLER.get()))) as session:
        CALLER.set("request 1")
        hold = session.lock(name).acquire()
        CALLER.set("request 2")
        waiter = threading.Thread(target=lambda: session.lock(name, shared=True).acquire().release())
        waiter.start()
        until(lambda: waiters(db, name) == 1)
        with pytest.raises(lock_election.NotAcquired):
            session.lock([name, name + "'"], shared=True).acquire(0)
        time.sleep(0.5)
        hold.release()
        waiter.join()
        CALLER.set("")
        with session.election(name).campaign():
            pass
    assert [event.kind for event, _ in events].count("acquired") == 3
    acquired, refused, released, later, left, *_, resigned = [event for event, _ in events]
    assert acquired[:4] == ("acquired", "lock", (name,), hold.token)
    assert acquired.seconds < 5
    assert refused[:4] == ("not_acquired", "shared", (name, name + "'"), 0)
    assert isinstance(refused.error, lock_election.NotAcquired)
    assert released[:4] == ("released", "lock", (name,), hold.token)
    assert 0.5 <= released.seconds < 60
    assert released.error is None
    assert abs(released.time - time.time()) < 60
    assert later[:2] == ("acquired", "shared")
    assert later.seconds >= 0.5  # for which it has waited
    assert abs(left.time - later.time - left.seconds) < 0.4  # without the wait
    assert resigned[:2] == ("released", "election")
    assert [caller for _, caller in events[:4]] == ["request 1", "request 2", "request 1", ""]


@pytest.mark.parametrize("loses", ["force_release_lock", "evict_lock"])
def test_loss(events, name, db, loses):
    with lock_election.connect(ttl=10, on_event=events.append) as session:
        hold = session.lock(name).acquire()
        db.execute(f"SELECT {loses}(%s)", (name,))
        until(lambda: len(events) == 2)
        hold.release()
    assert told(events, "kind", "token") == [("acquired", hold.token), ("lost", hold.token)]
    assert isinstance(events[1].error, lock_election.LockLost)


def test_end_of_the_session(events, name, db):
    def slow(event):  # close() waits for it
        time.sleep(0.05)
        events.append(event)

    with lock_election.connect(ttl=10, on_event=slow) as session:
        hold = session.lock(name).acquire()
        db.execute("SELECT revoke_lease(%s)", (session.lease,))
        until(lambda: len(events) == 3)
        assert session.state == "ended"
        hold.release()
        session.reopen()
        with session.lock(name):
            pass
    assert told(events, "kind", "mode") == [
        ("acquired", "lock"),
        ("lost", "lock"),
        ("ended", "session"),
        ("acquired", "lock"),
        ("released", "lock"),
    ]


def test_suspension(events, name, db):
    with lock_election.connect(ttl=10, on_event=events.append) as session, session.lock(name):
        cut(db)
        until(lambda: len(events) == 3)
        assert session.state == "connected"
    assert told(events, "kind") == [("acquired",), ("suspended",), ("resumed",), ("released",)]
    suspended, resumed = events[1:3]
    assert isinstance(suspended.error, lock_election.Error)
    assert resumed.error is None
    assert abs(resumed.time - suspended.time - resumed.seconds) < 1


def test_a_slow_or_broken_function_disturbs_nothing(name, caplog):
    entered, leave = threading.Event(), threading.Event()

    def on_event(event):
        entered.set()
        assert leave.wait(60)
        raise (SystemExit if event.kind == "acquired" else RuntimeError)(f"of {event.kind}")

    with lock_election.connect(ttl=10, on_event=on_event) as session, session.lock(name, wait=5) as hold:
        assert entered.wait(60)
        with session.lock(name + "'", wait=5):
            assert hold.valid
        leave.set()
    messages = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert messages == ["of acquired", "of acquired", "of released", "of released"]


def test_the_function_may_use_the_session(name):
    closed = []

    def on_event(event):
        if not closed:
            closed.append(session.lock(name).try_acquire())
            session.close()

    session = lock_election.connect(ttl=10, on_event=on_event)
    hold = session.lock(name).acquire()
    until(lambda: session.state == "ended")
    assert closed == [None]
    assert not hold.valid


async def test_asyncio(events, name, db):
    awaited = asyncio.Event()

    async def on_event(event):
        events.append((event, CALLER.get()))
        await asyncio.sleep(0)
        if event.kind == "lost":
            awaited.set()

    async with aio.connect(ttl=10, on_event=on_event) as session:
        CALLER.set("request")
        hold = await session.lock(name).acquire()
        CALLER.set("")
        db.execute("SELECT force_release_lock(%s)", (name,))
        await asyncio.wait_for(awaited.wait(), 60)
        assert not hold.valid
    assert [(event.kind, caller) for event, caller in events] == [("acquired", "request"), ("lost", "request")]


async def test_asyncio_function_that_fails(name, caplog):
    def on_event(event):
        raise RuntimeError(f"of {event.kind}")

    async with aio.connect(ttl=10, on_event=on_event) as session, session.lock(name):
        pass
    assert [str(record.exc_info[1]) for record in caplog.records] == ["of acquired", "of released"]


def test_spans(name, db):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import StatusCode

    from lock_election.opentelemetry import spans

    exporter = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    work = provider.get_tracer("work")
    with lock_election.connect(ttl=10, on_event=spans(provider)) as session:
        with work.start_as_current_span("work") as parent:
            hold = session.lock(name).acquire()
            assert session.lock(name).try_acquire() is None
        time.sleep(0.1)
        db.execute("SELECT force_release_lock(%s)", (name,))
        until(lambda: len(exporter.get_finished_spans()) == 4)
        with session.permit(name + "'", 2), pytest.raises(lock_election.InvalidRequest):
            session.permit(name + "'", 3).acquire()
        cut(db)
        until(lambda: "suspend session" in [span.name for span in exporter.get_finished_spans()])
    done = {}
    for span in exporter.get_finished_spans():
        done.setdefault(span.name, []).append(span)
    acquire, refused, _, wrong = done["acquire lock"]
    lost, released = done["hold lock"]
    assert dict(acquire.attributes) == {
        "lock_election.names": (name,),
        "lock_election.mode": "lock",
        "lock_election.token": hold.token,
        "lock_election.outcome": "acquired",
    }
    for span in (acquire, refused, lost):
        assert span.parent.span_id == parent.get_span_context().span_id
    assert acquire.instrumentation_scope.name == "lock_election"
    assert acquire.end_time - acquire.start_time < 60e9
    assert abs(lost.start_time - acquire.end_time) < 1e9
    assert lost.end_time - lost.start_time > 0.1e9
    assert lost.status.status_code is StatusCode.ERROR
    assert lost.attributes["error.type"] == "LockLost"
    assert "error.type" not in refused.attributes
    for span in (acquire, refused, released):
        assert span.status.status_code is StatusCode.UNSET
    assert refused.attributes["lock_election.outcome"] == "not_acquired"
    assert wrong.attributes["error.type"] == "InvalidRequest"
    assert wrong.status.status_code is StatusCode.ERROR
    assert "forced" in lost.status.description
    assert done["suspend session"][0].parent is None

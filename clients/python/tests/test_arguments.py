"""Arguments of all public calls: what is wrong is told in Python's words, and has no effect."""

import asyncio
import datetime
import enum
import inspect
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from conftest import until, waiters

import lock_election
from lock_election import aio

pytestmark = pytest.mark.usefixtures("nothing_left")

SECONDS = [math.nan, -math.inf, -1, -0.001, Decimal("nan"), Decimal(-1), "5", b"5", True, [5], 1j, 10**400]
SECONDS += [datetime.timedelta(seconds=-1), datetime.time(1)]
ENDLESS = [math.inf, Decimal("inf"), 25 * 86400, datetime.timedelta.max]
TEXTS = [None, 5, True, b"name", bytearray(b"name"), ["name"], "a\0b", "a\udc80b"]
FLAGS = [None, 1, 0, "no", "", []]
CALLBACKS = [5, "print", []]
COUNTS = [None, 0, -1, 1.5, 3.0, True, "3", b"3", Decimal(3), math.nan, math.inf, 2**31]


async def work():
    """Of asyncio: not for threads."""


# By method and argument: values that are wrong. The other arguments are right.
WRONG = {
    ("connect", "conninfo"): [None, 5, b"dbname=x", {"dbname": "x"}, ["dbname=x"], "a\0b", "a\udc80b"],
    ("connect", "ttl"): [None, 0, 0.05, *ENDLESS, *SECONDS],
    ("connect", "name"): TEXTS[1:],
    ("connect", "on_event"): CALLBACKS,
    ("lock", "names"): [
        *TEXTS[:5],
        *TEXTS[6:],
        "",
        [],
        [""],
        ["a", b"b"],
        ["a", None],
        {"a": 1, 2: 3},
        memoryview(b"a"),
    ],
    ("lock", "ttl"): [0, 0.05, *ENDLESS, *SECONDS],
    ("lock", "wait"): SECONDS,
    ("lock", "shared"): FLAGS,
    ("lock", "on_lost"): CALLBACKS,
    ("permit", "name"): ["", *TEXTS],
    ("permit", "permits"): COUNTS,
    ("permit", "ttl"): [0, 0.05, *ENDLESS, *SECONDS],
    ("permit", "wait"): SECONDS,
    ("permit", "on_lost"): CALLBACKS,
    ("try_acquire_each", "names"): [
        None,
        0,
        False,
        5,
        b"name",
        "",
        [""],
        ["a", b"b"],
        ["a", 5],
        ["a\0b"],
        ["a\udc80b"],
    ],
    ("try_acquire_each", "shared"): FLAGS,
    ("try_acquire_each", "on_lost"): CALLBACKS,
    ("election", "name"): ["", *TEXTS],
    ("election", "value"): TEXTS[1:],
    ("election", "ttl"): [0, 0.05, *ENDLESS, *SECONDS],
    ("once", "name"): ["", *TEXTS],
    ("once", "hold_for"): [None, *ENDLESS, *SECONDS],
    ("once", "ttl"): [0, 0.05, *ENDLESS, *SECONDS],
    ("close", "limit"): SECONDS,
    ("Lock.acquire", "wait"): SECONDS,
    ("Election.campaign", "wait"): SECONDS,
    ("Election.campaign", "on_lost"): CALLBACKS,
    ("Election.run", "lead"): [None, *CALLBACKS],
    ("Hold.release", "hold_for"): [None, *ENDLESS, *SECONDS],
    ("Hold.fence", "connection"): [None, 5, "password=S3cr3t"],
    ("Term.release", "hold_for"): [1, None, *SECONDS],
    ("Term.proclaim", "value"): TEXTS,
    ("Lost.wait", "timeout"): [math.nan, "5", True, [5]],
    ("decorate", "function"): [None, *CALLBACKS],
}


def call_of(library, session, name, call):
    """What is called, and the arguments that it needs."""
    kind, _, method = call.rpartition(".")
    if call == "connect":
        return library.connect, {}
    if call == "decorate":
        return session.once(name, 1), {}
    if not kind:
        function = getattr(session, method)
        needs = {"name": name, "names": [name], "permits": 2, "hold_for": 1}
        return function, {key: needs[key] for key in inspect.signature(function).parameters if key in needs}
    if kind == "Lock":
        return getattr(session.lock(name), method), {}
    return getattr(session.election(name), method), {}


def is_told(error, argument, value):
    """The argument, what came, and what is allowed; nothing of the database."""
    text = str(error)
    assert isinstance(error, lock_election.InvalidRequest)
    assert error.sqlstate == ""
    assert argument.rstrip("s") in text or (argument == "conninfo" and "connection string" in text), text
    if argument not in ("conninfo", "connection") and not isinstance(value, (list, dict)):
        assert repr(value)[:200] in text, text
    if argument not in ("conninfo",):
        assert "must" in text or "needed" in text, text
    assert "S3cr3t" not in text


@pytest.fixture(scope="module")
def shared_session(database):
    with lock_election.connect(ttl=4, name="arguments") as session:
        yield session


@pytest.fixture
def nothing_left():
    """The session of the module stays."""


@pytest.mark.parametrize(("call", "argument"), WRONG, ids=".".join)
def test_of_threads(shared_session, name, db, call, argument):
    session = shared_session
    kind, _, method = call.rpartition(".")
    for value in WRONG[call, argument]:
        if kind in ("Hold", "Term", "Lost"):
            hold = session.election(name).campaign() if kind == "Term" else session.lock(name).acquire()
            function, needs = getattr(hold.lost if kind == "Lost" else hold, method), {}
        else:
            function, needs = call_of(lock_election, session, name, call)
        with pytest.raises(lock_election.InvalidRequest) as caught:
            function(**{**needs, argument: value})
        is_told(caught.value, argument, value)
        if kind in ("Hold", "Term", "Lost"):
            assert hold.valid is (method != "release")
            hold.release()
    assert session.state == "connected"
    until(lambda: db.execute("SELECT count(*) FROM lock_election.locks WHERE name = %s", (name,)).fetchone() == (0,))
    assert waiters(db, name) == 0


@pytest.mark.parametrize(("call", "argument"), [key for key in WRONG if key[0] != "Lost.wait"], ids=".".join)
async def test_of_asyncio(name, call, argument):
    async with aio.connect(ttl=4) as session:
        kind, _, method = call.rpartition(".")
        for value in WRONG[call, argument]:
            if kind in ("Hold", "Term"):
                hold = await (session.election(name).campaign() if kind == "Term" else session.lock(name).acquire())
                function, needs = getattr(hold, method), {}
            else:
                function, needs = call_of(aio, session, name, call)
            with pytest.raises(lock_election.InvalidRequest) as caught:
                result = function(**{**needs, argument: value})
                if inspect.isawaitable(result):
                    await result
            is_told(caught.value, argument, value)
            if kind in ("Hold", "Term"):
                assert hold.valid is (method != "release")
                await hold.release()
        assert session.state == "connected"


@pytest.mark.parametrize("library", [lock_election, aio], ids=["threads", "asyncio"])
def test_every_argument_is_in_the_table(library):
    """A new one has to be added."""
    told = {(call.rpartition(".")[2], argument) for call, argument in WRONG}
    right = {("__init__", "session"), ("run", "lead"), ("fence", "connection"), ("once", "otherwise")}
    for kind in (library.Session, library.Lock, library.Hold, library.Term, library.Election, library.Watch):
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            if not method.startswith("_"):
                found = {(method, argument) for argument in list(inspect.signature(function).parameters)[1:]}
                assert found <= told | right, kind
    assert {("connect", argument) for argument in inspect.signature(library.connect).parameters} <= told


def test_functions_of_asyncio_are_not_for_threads(shared_session, name):
    session = shared_session
    calls = (
        lambda: session.lock(name, on_lost=work),
        lambda: session.permit(name, 2, on_lost=work),
        lambda: session.try_acquire_each([name], on_lost=work),
        lambda: session.election(name).campaign(on_lost=work),
        lambda: session.election(name).run(work),
        lambda: session.once(name, 1)(work),
    )
    for call in calls:
        with pytest.raises(lock_election.InvalidRequest, match=r"lock_election\.aio"):
            call()


def test_durations_may_be_timedeltas(shared_session, name, db):
    session = shared_session

    def of(seconds):
        return datetime.timedelta(seconds=seconds)

    with lock_election.connect(ttl=of(4.5)) as other:
        assert other._protocol.ttl == 4.5
        with other.lock(name, ttl=of(9), wait=of(5)) as hold:
            assert 4.5 < hold.time_left <= 9
            with pytest.raises(lock_election.NotAcquired):
                session.lock(name).acquire(of(0.05))
            with pytest.raises(lock_election.NotAcquired):
                session.lock(name).acquire(of(0))
            assert hold.lost.wait(of(0.01)) is False
            assert hold.release(of(0)) is True
        runs = []
        job = session.once(name, of(3600), ttl=of(5))(lambda: runs.append(1))
        job()
        job()
        assert runs == [1]
        with session.permit(f"{name} p", 2, ttl=of(5), wait=of(5)), session.election(name, ttl=of(5)).campaign(of(5)):
            pass
        other.close(of(5))
    db.execute("SELECT force_release_lock(%s)", (name,))


def test_durations_may_be_timedeltas_in_asyncio(name):
    def of(seconds):
        return datetime.timedelta(seconds=seconds)

    async def main():
        async with aio.connect(ttl=of(4.5)) as session:
            async with session.lock(name, ttl=of(9), wait=of(5)) as hold:
                assert 4.5 < hold.time_left <= 9
                with pytest.raises(lock_election.NotAcquired):
                    await session.lock(name).acquire(of(0.05))
                assert await hold.release(of(0)) is True
            await session.close(of(5))

    asyncio.run(main())


def test_numbers_may_be_of_any_kind(shared_session, name):
    class Count(int):
        def __index__(self):
            return 2

    with shared_session.permit(name, Count(2), ttl=Fraction(9, 2), wait=Decimal("0.5")) as hold:
        assert hold.valid


def test_an_enum_of_texts_is_its_value(shared_session, name, db):
    """Alone and in a list it is the same name."""

    class Name(str, enum.Enum):
        ONE = f"{name} one"
        TWO = f"{name} two"

    with shared_session.lock([Name.ONE, Name.TWO]) as hold:
        assert hold.names == (f"{name} one", f"{name} two")
        for one in (Name.ONE, f"{name} two"):
            assert shared_session.lock(one).try_acquire() is None
        rows = db.execute("SELECT name FROM lock_election.locks WHERE starts_with(name, %s)", (name,)).fetchall()
        assert sorted(rows) == [(f"{name} one",), (f"{name} two",)]


@pytest.mark.parametrize("value", [b"job", bytearray(b"job"), memoryview(b"job")])
def test_bytes_are_to_be_decoded(shared_session, value):
    """As a name, as names, and as the session's name, which is its owner text."""
    calls = (
        lambda: shared_session.permit(value, 2),
        lambda: shared_session.lock(value),
        lambda: shared_session.lock(["a", value]),
        lambda: lock_election.connect(name=value),
    )
    for call in calls:
        with pytest.raises(lock_election.InvalidRequest, match=r"must be a str.*; pass bytes\(\.\.\)\.decode\(\)$"):
            call()


def test_what_came_is_cut(shared_session):
    with pytest.raises(lock_election.InvalidRequest) as caught:
        shared_session.lock("x\0" * 10**6)
    assert len(str(caught.value)) < 300

"""The protocol alone, on a fake clock and server: deadlines, lost answers, ghosts."""

import asyncio
import time

import pytest
from fake import Fault, Server, World, fails, late, lost_answer, lost_question

from lock_election import _errors as errors
from lock_election._clock import Larger, clock
from lock_election._protocol import DONE, HELD, LOST, OVER, WAITING, Broken
from lock_election._wire import PgWire


def no_jitter(monkeypatch):
    monkeypatch.setattr("lock_election._protocol.jitter", lambda seconds: seconds)


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    no_jitter(monkeypatch)


@pytest.fixture
async def world():
    return World()


async def test_the_deadline_counts_from_the_sending(world):
    """TTL 10 s, margin 0.5 s; the answer to grant_lease takes 2 s."""
    world.wire.faults.append(late("grant_lease", 2.0))
    claim = None

    def ask():
        nonlocal claim
        claim = world.ask()

    def look():
        sent = world.asked("grant_lease")[0]
        assert claim.state is HELD
        assert claim.lease.deadline == pytest.approx(1000.0 + sent + 9.5)
        assert claim.lease.renew_at == pytest.approx(1000.0 + sent + 10 / 3)

    world.at(2.5, ask)
    world.at(2.6, look)
    await world.live(3)


async def test_renewals_move_the_deadline_from_their_sending(world):
    world.wire.faults.append(late("keep_alive", 1.0))
    claim = world.ask()
    world.at(5, lambda: None)
    await world.live(6)
    first = world.asked("keep_alive")[0]
    assert first == pytest.approx(10 / 3, abs=0.1)
    assert claim.lease.deadline == pytest.approx(1000.0 + first + 9.5)


async def test_a_shorter_validity_counts_and_is_renewed_sooner(world):
    """TTL 10 s, margin 0.5 s, validity 3 s: the next renewal after 1 s."""
    claim = world.ask()
    world.server.validity = 3000
    world.at(9, lambda: None)
    await world.live(9.4)
    times = world.asked("keep_alive")
    assert times[0] == pytest.approx(10 / 3, abs=0.1)
    assert [b - a for a, b in zip(times, times[1:])] == pytest.approx([1.0] * (len(times) - 1), abs=0.1)
    # what the grant has promised stands, until a renewal promises more
    assert claim.lease.deadline == pytest.approx(1000.0 + times[-1] + 2.5)
    assert claim.lease.deadline > 1000.0 + 9.5


async def test_a_shorter_validity_takes_back_no_promise(world):
    claim = world.ask()
    world.server.validity = 0
    told = []
    world.at(3.2, lambda: told.append(claim.lease.deadline))
    world.at(9.3, lambda: told.append(claim.lease.deadline))
    world.at(9.6, lambda: None)
    await world.live(9.8)
    assert told[0] == told[1]
    assert claim.state is LOST
    times = [time for time in world.asked("keep_alive") if time < 9.5]
    # as often as after a failure, and not more often
    assert [b - a for a, b in zip(times, times[1:])] == pytest.approx([0.5] * (len(times) - 1), abs=0.1)


async def test_a_schema_that_was_renamed_is_learned_again(world):
    claim = world.ask()
    later, held = [], []

    def rename(schema):
        world.server.schema = schema

    world.at(1, lambda: rename("t"))
    world.at(5, lambda: later.append(world.ask("m")))
    world.at(5.5, lambda: rename("u"))
    world.at(6, lambda: world.protocol.release(claim))
    world.at(7, lambda: held.append(later[0].state))
    world.at(11, lambda: None)
    await world.live(12)
    assert claim.released is True
    assert held == [HELD]
    assert world.wire.connects == 1
    assert len(world.asked("pg_extension")) == 3


async def test_without_the_extension_it_is_lost_at_the_deadline(world):
    claim = world.ask()

    def drop():
        world.server.schema = None

    world.at(1, drop)
    world.at(9.4, lambda: None)
    world.at(9.7, lambda: None)
    await world.live(10)
    assert claim.state is LOST
    assert len(world.asked("keep_alive")) > 5


async def test_a_standby_is_avoided(world):
    """Where libpq cannot tell, or was told not to look."""
    world.server.standby = True

    def promote():
        world.server.standby = False

    claim, held = world.ask(), []
    world.protocol.opened = True  # the first connection may fail at once
    world.at(0.5, promote)
    world.at(2, lambda: held.append(claim.state))
    await world.live(3)
    assert held == [HELD]
    assert world.wire.avoided > 1


async def test_a_renewal_answered_after_the_deadline_is_too_late(world):
    claim = world.ask()
    world.wire.faults.append(late("keep_alive", 9.0))
    await world.live(20)
    assert claim.state is LOST
    assert isinstance(claim.error, errors.LockLost)
    assert isinstance(world.protocol.end_error, errors.LockLost)
    # what it may have prolonged is given back
    assert world.asked("revoke_lease")
    assert world.server.leases == {}


async def test_without_a_connection_it_is_lost_at_the_deadline(world):
    claim = world.ask()

    def cut():
        world.wire.refuse = True
        world.wire.faults.append(lost_question("keep_alive"))

    world.at(1, cut)
    ended = []
    claim.ended = lambda: ended.append(world.clock.now - 1000.0)
    world.at(9.4, lambda: ended.append("held" if claim.state is HELD else "lost"))
    await world.live(20)
    deadline = world.asked("grant_lease")[0] + 9.5
    assert ended[0] == "held"
    assert deadline <= ended[1] < deadline + 0.6  # a back-off later at most: valid says it at once
    assert len(ended) == 2


async def test_valid_is_right_while_nothing_runs(world):
    claim = world.ask()
    left = []

    def stopped():
        world.clock.now += 9.6
        left.append(claim.time_left(world.clock.now))

    world.at(1, stopped)
    await world.live(20)
    assert left == [0.0]
    assert claim.state is LOST


async def test_a_suspended_session_goes_on(world):
    claim = world.ask()

    def cut():
        world.wire.refuse = True
        world.wire.faults.append(lost_question("keep_alive"))

    world.at(1, cut)
    states = []
    world.at(5, lambda: states.append((world.protocol.state, claim.state)))

    def mend():
        world.wire.refuse = False

    world.at(6, mend)
    world.at(8, lambda: states.append((world.protocol.state, claim.state)))
    await world.live(9)
    assert states == [("suspended", HELD), ("connected", HELD)]


async def test_a_renewal_on_its_way_suspends_nothing(world):
    states = []

    def strike(wire, sql, params, until):
        states.append(wire.protocol.state)
        return wire.server.answer(sql, params)

    world.wire.faults.append(Fault("keep_alive", strike))
    world.at(3.5, lambda: states.append(world.protocol.state))
    await world.live(4)
    assert states == ["connected", "connected"]


async def test_renewals_that_fail_are_tried_again_with_growing_delays(world):
    world.wire.faults.extend(fails("keep_alive", "55P03") for _ in range(6))
    await world.live(8)
    times = world.asked("keep_alive")[:7]
    delays = [round(later - time, 2) for time, later in zip(times, times[1:])]
    assert delays == [0.0, 0.05, 0.1, 0.2, 0.4, 0.5]


async def test_a_server_that_breaks_each_connection_is_not_overrun(world):
    claim = world.ask()

    def break_all():
        world.wire.faults.extend(lost_question("keep_alive") for _ in range(100))
        world.wire.faults.extend(lost_question("lease_holds") for _ in range(100))

    world.at(1, break_all)
    states = []
    world.at(7, lambda: states.append((world.protocol.state, claim.state)))
    await world.live(8)
    assert states == [("suspended", HELD)]
    assert world.wire.connects <= 15


async def test_what_is_learned_first_may_be_refused_for_a_moment(world):
    claim = world.ask()
    world.at(1, lambda: world.wire.faults.extend([lost_question("keep_alive"), fails("pg_extension", "57014")]))
    states = []
    world.at(5, lambda: states.append((world.protocol.state, claim.state)))
    await world.live(6)
    assert states == [("connected", HELD)]
    assert world.wire.connects == 3


async def test_a_waiter_is_granted_by_a_look(world):
    """The notification was dropped."""
    other = world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    world.at(1, lambda: world.server.drop("n", other["token"]))
    world.at(1.1, lambda: None)
    states = []
    world.at(4, lambda: states.append(claim.state))
    await world.live(5)
    assert states == [HELD]
    assert world.asked("LISTEN")


async def test_a_notification_decides_nothing(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    states = []

    def announce():
        world.protocol.notified("le_x", f'{{"event":"granted","token":"{claim.token}","sequence":1}}')

    world.at(1, announce)
    world.at(1.2, lambda: states.append(claim.state))
    await world.live(2)
    assert states == [WAITING]
    assert world.asked("is_held")


async def test_a_notification_is_looked_after_at_once(world):
    other = world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    states = []

    def grant():
        world.server.drop("n", other["token"])
        world.protocol.notified("le_x", f'{{"event":"granted","token":"{claim.token}","sequence":1}}')

    world.at(1, grant)
    world.at(1.1, lambda: states.append(claim.state))
    await world.live(2)
    assert states == [HELD]


@pytest.mark.parametrize("token", ["\u00b2", "9" * 5000, "", "-1", "x"])
async def test_a_notification_of_anybody_does_no_harm(world, token):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    states = []
    world.at(1, lambda: world.protocol.notified("le_x", f'{{"event":"granted","token":"{token}","sequence":1}}'))
    world.at(1.9, lambda: states.append((claim.state, world.protocol.state)))
    await world.live(2)
    assert states == [(WAITING, "connected")]


async def test_where_listen_does_not_work_it_looks_four_times_a_second(world):
    world.server.take("lock", "n", "somebody", "0")
    world.protocol.notified = lambda channel, payload: None
    world.ask()
    await world.live(3)
    looks = [time for time in world.asked("lease_holds") if time < 3]
    assert 8 <= len(looks) <= 14


@pytest.mark.parametrize("refused", ["LISTEN le_self", 'LISTEN "le_x"'])
async def test_where_listen_is_refused_it_looks_four_times_a_second(world, refused):
    world.server.take("lock", "n", "somebody", "0")
    world.wire.faults.extend(fails(refused, "0A000") for _ in range(9))
    world.ask()
    states = []
    world.at(2.9, lambda: states.append(world.protocol.state))
    await world.live(3)
    assert states == ["connected"]
    assert world.wire.connects == 1
    assert len(world.asked(refused)) == 1
    looks = [time for time in world.asked("lease_holds") if time < 3]
    assert 8 <= len(looks) <= 14


async def test_a_lost_answer_is_adopted(world):
    world.wire.faults.append(lost_answer("enqueue_lock"))
    claim = world.ask()
    states = []
    world.at(1, lambda: states.append((claim.state, str(claim.token))))
    await world.live(1.5)
    ((state, token),) = states
    assert state is HELD
    assert len(world.asked("enqueue_lock")) == 1
    # the old backend has gone before the look
    assert world.asked("pg_terminate_backend")[-1] < world.asked("lease_holds")[0]
    assert token == "102"


@pytest.mark.parametrize("sqlstate", ["57014", "55P03"])
async def test_the_old_backend_is_ended_before_the_look_whatever_passes_meanwhile(world, sqlstate):
    """It carries the request out after the server has refused to end it for a moment."""
    world.wire.faults.append(lost_question("enqueue_lock"))

    def strike(wire, sql, params, until):
        if len(world.asked("pg_terminate_backend")) < 4:
            raise errors.of_server(sqlstate, "no")
        wire.server.take("lock", "n", world.protocol.marker + "-1", world.protocol.main.id)
        return [["t"]]

    world.wire.faults.extend(Fault("pg_terminate_backend", strike) for _ in range(4))
    claim = world.ask()
    await world.live(1.5)
    ended = world.asked("pg_terminate_backend")
    assert [round(later - time, 1) for time, later in zip(ended, ended[1:4])] == [0.1] * 3
    assert ended[-1] < world.asked("lease_holds")[0]
    assert len(world.asked("enqueue_lock")) == 1
    assert claim.token


async def test_an_old_backend_that_may_not_be_ended_ends_by_itself(world):
    world.wire.faults.extend([lost_question("enqueue_lock"), fails("pg_terminate_backend", "42501")])
    claim = world.ask()
    states = []
    world.at(1, lambda: states.append(claim.state))
    await world.live(1.5)
    assert states == [HELD]
    assert len(world.asked("pg_terminate_backend")) == 1


async def test_a_lost_question_is_asked_again(world):
    world.wire.faults.append(lost_question("enqueue_lock"))
    claim = world.ask()
    states = []
    world.at(1, lambda: states.append(claim.state))
    await world.live(1.5)
    assert states == [HELD]
    assert len(world.asked("enqueue_lock")) == 2


async def test_lost_answers_of_many_keep_their_order(world):
    world.wire.faults.append(lost_question("enqueue_each"))
    claims = [world.ask(f"n{i}") for i in range(5)]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    await world.live(1.5)
    assert states == [HELD] * 5
    assert [claim.token for claim in claims] == sorted(claim.token for claim in claims)


async def test_a_ghost_is_given_back(world):
    """Its caller has gone before the answer is lost."""
    claim = world.ask()

    def strike(wire, sql, params, until):
        wire.server.answer(sql, params)
        world.protocol.over(claim, errors.Canceled("gone"))
        raise Broken(errors.Unavailable("the connection broke"))

    world.wire.faults.append(Fault("enqueue_lock", strike))
    rows = []
    world.at(1, lambda: rows.extend(world.server.rows))
    await world.live(1.5)
    assert claim.phase is DONE
    assert rows == []


async def test_a_grant_to_a_caller_that_has_gone_is_given_back(world):
    claim = world.ask()

    def strike(wire, sql, params, until):
        world.protocol.over(claim, errors.Canceled("gone"))
        return wire.server.answer(sql, params)

    world.wire.faults.append(Fault("enqueue_lock", strike))
    rows = []
    world.at(1, lambda: rows.extend(world.server.rows))
    await world.live(1.5)
    assert claim.state is OVER
    assert rows == []


async def test_a_late_place_that_nobody_knows_is_given_back(world):
    """A request that takes effect after the session has asked again."""
    claim = world.ask("m")

    def appear():
        world.server.take("lock", "n", world.protocol.marker + "-77", world.protocol.main.id)
        world.server.take("lock", "own", "the application", world.protocol.main.id)

    world.at(1, appear)
    rows = []
    world.at(5, lambda: rows.extend(row["name"] for row in world.server.rows))
    await world.live(6)
    assert rows == ["m", "own"]
    assert claim.token


async def test_a_wait_that_is_given_up_leaves_no_place(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    world.at(1, lambda: world.protocol.over(claim, errors.Canceled("gone")))
    rows = []
    world.at(1.2, lambda: rows.extend(row["owner"] for row in world.server.rows))
    await world.live(2)
    assert rows == ["somebody"]
    assert claim.phase is DONE
    assert any("UNLISTEN" in sql and "le_x" in sql for _, sql in world.wire.asked)


async def test_a_wait_whose_limit_has_passed_at_the_first_answer_leaves_no_place(world):
    held, overdue = world.ask(), world.ask()
    free = world.ask("m")
    overdue.overdue = free.overdue = True
    seen = []
    world.at(1, lambda: seen.append((overdue.state, free.state, len(world.server.rows))))
    await world.live(2)
    assert held.phase is DONE
    assert seen == [(OVER, HELD, 2)]
    assert isinstance(overdue.error, errors.NotAcquired)


async def test_a_forced_release_is_noticed_at_the_next_renewal(world):
    claim = world.ask()
    world.at(1, world.server.rows.clear)
    states = []
    world.at(3.5, lambda: states.append(claim.state))
    await world.live(4)
    assert states == [LOST]
    assert world.protocol.end_error is None


async def test_a_lease_that_the_server_has_ended(world):
    claim = world.ask()
    waiter = world.ask()
    world.at(1, lambda: world.server.end(world.protocol.main.id))
    states = []
    world.at(3.5, lambda: states.append((claim.state, waiter.state, world.protocol.state)))
    await world.live(4)
    assert states == [(LOST, LOST, "ended")]
    assert isinstance(waiter.error, errors.LockLost)


async def test_a_release_whose_answer_was_lost_is_sent_again(world):
    claim = world.ask()

    def release():
        world.wire.faults.append(lost_answer("release_lock"))
        world.protocol.release(claim)

    world.at(1, release)
    await world.live(3)
    assert claim.released is True
    assert len(world.asked("release_lock")) == 2


async def test_a_second_release_does_nothing(world):
    """Such as that of a with-block, while the first one has no answer yet."""
    claim, sent = world.ask(), []

    def answer(wire, sql, params, until):
        sent.append(params[-1])
        return wire.server.answer(sql, params)

    def release():
        world.protocol.release(claim, 60.0)
        world.protocol.release(claim)

    world.wire.faults.append(Fault("release_lock", answer))
    world.at(2, release)
    await world.live(3)
    assert sent == ["60000 ms"]


async def test_a_refusal_of_many_is_told_to_each_alone(world):
    world.wire.faults.append(fails("enqueue_each", "53400"))
    world.wire.faults.append(fails("enqueue_lock", "53400"))
    claims = [world.ask(f"n{i}") for i in range(3)]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    await world.live(1.5)
    assert states == [OVER, HELD, HELD]
    assert isinstance(claims[0].error, errors.LimitExceeded)


async def test_what_passes_is_tried_again_and_what_does_not_is_told(world):
    world.wire.faults.append(fails("enqueue_lock", "55P03"))
    claim = world.ask()
    denied = world.ask("m", attempt=True)
    world.wire.faults.append(fails("acquire_lock", "42501"))
    states = []
    world.at(1, lambda: states.extend((claim.state, denied.error.sqlstate)))
    await world.live(1.5)
    assert states == [HELD, "42501"]


async def test_a_call_is_tried_again_while_its_caller_waits(world):
    world.wire.faults.extend(fails("proclaim", "55P03") for _ in range(3))
    answers = []

    async def call(reads):
        try:
            await world.protocol.ask_server("SELECT {s}.proclaim($1)", "x", reads=reads)
        except errors.Error as error:
            answers.append(error)

    def refused(sqlstate, times=1):
        world.wire.faults.extend(fails("proclaim", sqlstate) for _ in range(times))

    world.wire.server.answer = lambda sql, params, old=world.server.answer: (
        [["t"]] if "proclaim" in sql else old(sql, params)
    )
    calls = []
    world.at(1, lambda: calls.append(asyncio.ensure_future(call(False))))
    world.at(2, lambda: calls.append(asyncio.ensure_future(call(False))) or refused("57014"))
    world.at(3, lambda: calls.append(asyncio.ensure_future(call(True))) or refused("57014"))
    await world.live(4)
    await asyncio.gather(*calls)
    times = [round(time, 1) for time in world.asked("proclaim")]
    assert times == [1.0, 1.1, 1.2, 1.3, 2.0, 3.0, 3.1]
    assert [type(answer) for answer in answers] == [errors.OutcomeUnknown]  # perhaps it was done


async def test_an_own_ttl_has_a_lease_of_its_own(world):
    claim = world.ask(ttl=2.0)
    other = world.ask("m", ttl=2.0)
    world.at(5, lambda: [world.protocol.release(c) for c in (claim, other)])
    leases = []
    world.at(4.9, lambda: leases.append(len(world.server.leases)))
    world.at(7, lambda: leases.append(len(world.server.leases)))
    await world.live(8)
    assert leases == [2, 1]
    assert (claim.released, other.released) == (True, True)


async def test_a_session_that_ended_opens_again(world):
    claim = world.ask()
    world.at(1, lambda: world.server.end(world.protocol.main.id))

    def again():
        with pytest.raises(errors.LockLost):
            world.ask("m")
        world.protocol.reopen()
        claims.append(world.ask("m"))

    claims = []
    world.at(4, again)
    states = []
    world.at(5, lambda: states.extend((claim.state, claims[0].state, world.protocol.state)))
    await world.live(6)
    assert states == [LOST, HELD, "connected"]


async def test_an_attempt_that_is_refused_holds_nothing(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask(attempt=True)
    world.at(1, lambda: None)
    await world.live(1.5)
    assert isinstance(claim.error, errors.NotAcquired)
    assert len(world.server.rows) == 1


async def test_two_holds_of_a_session_exclude_each_other(world):
    first, second = world.ask(), world.ask()
    states = []
    world.at(1, lambda: states.extend((first.state, second.state)))
    world.at(2, lambda: world.protocol.release(first))
    world.at(8, lambda: states.append(second.state))
    await world.live(9)
    assert states == [HELD, WAITING, HELD]
    assert first.owner != second.owner


async def test_closing_revokes_and_tells(world):
    held, waiting = world.ask(), world.ask()
    world.at(1, lambda: None)
    world.at(2, lambda: world.protocol.close(1.0))
    await world.protocol.run()
    assert (held.state, waiting.state) == (OVER, OVER)
    assert isinstance(waiting.error, errors.Canceled)
    assert world.server.leases == {}
    assert world.server.rows == []
    with pytest.raises(errors.Canceled):
        world.ask()


async def test_no_wait_lasts_beyond_the_deadline(monkeypatch):
    """Whatever is waited for: the loss is told then."""
    monkeypatch.setattr("lock_election._wire.MAX_SLICE", 1000.0)
    world = World()
    wire = PgWire("", world.protocol)
    ticks = []
    monkeypatch.setattr(world.protocol, "next_deadline", lambda: world.clock.now)
    monkeypatch.setattr(world.protocol, "tick", lambda: ticks.append(world.clock.now))
    assert await asyncio.wait_for(wire._wait(world.clock.now + 1000.0), 20) is False
    assert ticks == [world.clock.now]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no such clock")
def test_the_clock_counts_a_suspend(monkeypatch):
    now = {time.CLOCK_BOOTTIME: 61.0}
    monkeypatch.setattr(time, "clock_gettime", lambda number: now.get(number, 1.0))
    assert clock()() == 61.0


def test_the_larger_of_two_clocks():
    monotonic, wall = [100.0], [1e9]
    larger = Larger(lambda: monotonic[0], lambda: wall[0])
    begin = larger()
    monotonic[0] += 1
    wall[0] += 1.2
    assert larger() - begin == pytest.approx(1)  # noise
    wall[0] += 60  # a suspend
    assert larger() - begin == pytest.approx(61.2)
    wall[0] -= 3600  # somebody sets it back
    assert larger() - begin == pytest.approx(61.2)
    wall[0] += 10
    assert larger() - begin == pytest.approx(71.2)


def test_errors_by_sqlstate():
    kinds = {"LE001": errors.LockLost, "28P01": errors.AccessDenied, "55000": errors.NotInstalled}
    kinds.update({"57014": errors.OutcomeUnknown, "57P01": errors.Unavailable, "P0001": errors.ServerError})
    kinds.update({"3D000": errors.Unavailable, "3F000": errors.NotInstalled})
    for sqlstate, kind in kinds.items():
        error = errors.of_server(sqlstate, "message", "hint")
        assert type(error) is kind
        assert error.sqlstate == sqlstate
        assert str(error) == "message (hint)"
    assert errors.breaks(errors.of_server("57P03", "")) is True
    assert errors.breaks(errors.of_server("57014", "")) is False


def test_the_server_of_the_tests():
    server = Server()
    lease = server.answer("s.grant_lease(", ["1"])[0][0]
    first = server.answer("s.enqueue_lock(", ["n", "a", lease])[0]
    second = server.answer("s.enqueue_lock(", ["n", "b", lease])[0]
    assert (first[1], second[1]) == ("t", "f")
    server.drop("n", first[0])
    assert server.rows[0]["granted"]

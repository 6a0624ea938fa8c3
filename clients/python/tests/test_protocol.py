"""The protocol alone, on a fake clock and server: turns, deadlines, lost answers, ghosts."""

import time

import pytest
from fake import Fault, World, fails, late, lost_answer, lost_question, requests

from lock_election import _errors as errors
from lock_election._clock import Larger, clock
from lock_election._protocol import DONE, HELD, ITEMS, LOST, OVER, WAITING, Broken, Observer

BARE = "{} wait"  # a call without items


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    monkeypatch.setattr("lock_election._protocol.jitter", lambda seconds: seconds)


@pytest.fixture
def world():
    return World()


def actions(world, pattern="lease_sync"):
    """Of each call, the actions of its items."""
    calls = [sql for _, sql in world.wire.asked if pattern in sql and "lease_sync(" in sql]
    return [[item[1] for item in requests(sql[sql.rindex(" {") + 1 : sql.rindex(" wait")])] for sql in calls]


# --- turns ------------------------------------------------------------------------------------------------------------


def test_all_that_is_asked_for_travels_in_one_call_behind_the_releases(world):
    held = [world.ask(f"n{i}") for i in range(3)]

    def more():
        for claim in held[:2]:
            world.protocol.release(claim)
        held.extend([world.ask("m", attempt=True), world.ask(["x", "y"]), world.ask("p", "permit", last="2")])

    states = []
    world.at(1, more)
    world.at(2, lambda: states.extend(claim.state for claim in held))
    world.live(3)
    assert states == [OVER, OVER, HELD, HELD, HELD, HELD]
    asks = ["try_lock", "enqueue_lock", "enqueue_lock", "enqueue_permit"]
    assert actions(world, "lock") == [["enqueue_lock"] * 3, ["release"] * 2, asks]
    assert [claim.released for claim in held[:2]] == [True, True]


def test_a_call_has_so_many_items_at_most(world):
    claims = [world.ask(f"n{i}") for i in range(300)]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    world.at(2, lambda: [world.protocol.release(claim) for claim in claims])
    world.live(3)
    assert states == [HELD] * 300
    assert [len(call) for call in actions(world) if call] == [ITEMS, ITEMS, 44] * 2
    assert [claim.token for claim in claims] == sorted(claim.token for claim in claims)


def test_a_call_has_so_many_names_at_most(world):
    claims = [world.ask([f"n{i} {j}" for j in range(400)]) for i in range(3)]
    world.at(1, lambda: None)
    world.live(2)
    assert [len(call) for call in actions(world, "enqueue_lock")] == [800, 400]
    assert all(claim.token for claim in claims)


def test_releases_alone_do_not_wait(world):
    claim, other = world.ask(), world.ask("m")
    world.at(1, lambda: world.protocol.release(claim))
    world.at(2, lambda: world.protocol.release(other, 60.0))
    world.live(3)
    assert (claim.released, other.released) == (True, True)
    assert [sql.partition("} wait ")[2][:5] for _, sql in world.wire.asked if "release" in sql] == ["None "] * 2


def test_releases_beside_a_waiter_tell_what_they_have_let_in(world):
    """One round trip for a lock that is handed from one hold of the session to another."""
    first, second = world.ask(), world.ask()
    states = []
    world.at(1, lambda: states.extend((first.state, second.state)))
    world.at(2, lambda: world.protocol.release(first))
    world.at(2.002, lambda: states.append(second.state))
    world.live(3)
    assert states == [HELD, WAITING, HELD]
    assert first.owner != second.owner


def test_the_statement_is_prepared_once(world):
    world.ask()
    world.at(7, lambda: None)
    world.live(8)
    assert len(world.wire.prepared) == 1
    assert all(sql.endswith(world.wire.prepared[0]) for _, sql in world.wire.asked if "lease_sync(" in sql)


def test_behind_a_pooler_nothing_is_prepared(world):
    world.wire.pid = "8"
    world.ask()
    world.live(1)
    assert world.wire.prepared == []


@pytest.mark.parametrize("sqlstate", ["26000", "42P05", "0A000"])
def test_where_what_was_prepared_is_gone_it_goes_on_without(world, sqlstate):
    world.wire.faults.append(fails("enqueue_lock", sqlstate))
    claim = world.ask()
    states = []
    world.at(1, lambda: states.append(claim.state))
    world.live(2)
    assert states == [HELD]
    assert [sql.endswith("wait 1250 ms ") for _, sql in world.wire.asked if "enqueue_lock" in sql] == [False, True]
    assert world.wire.connects == 1


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_the_deadline_counts_from_the_sending(world):
    """TTL 10 s, margin 0.5 s; the answer takes 2 s."""
    world.wire.faults.append(late("enqueue_lock", 2.0))
    claim = world.ask()
    seen = []
    world.at(2.5, lambda: seen.append((claim.state, claim.lease.deadline, claim.lease.renew_at)))
    world.live(3)
    sent = 1000.0 + world.asked("enqueue_lock")[0]
    assert seen == [(HELD, pytest.approx(sent + 9.5), pytest.approx(sent + 10 / 3))]


def test_the_first_deadline_counts_from_the_sending(world):
    world.wire.faults.extend([late("grant_lease", 2.0), lost_question("lease_sync")])
    world.wire.refuse, deadlines = False, []
    world.at(2.0, lambda: setattr(world.wire, "refuse", True))
    world.at(3, lambda: deadlines.append(world.protocol.main.deadline))
    world.ask()
    world.live(4)
    assert deadlines == [pytest.approx(1000.0 + world.asked("grant_lease")[0] + 9.5)]


def test_a_shorter_validity_counts_and_is_renewed_sooner(world):
    """TTL 10 s, margin 0.5 s, validity 3 s: the next renewal after 1 s."""
    claim = world.ask()
    deadlines = []
    world.at(0.5, lambda: setattr(world.server, "validity", "3000"))
    world.at(9, lambda: deadlines.append(claim.lease.deadline))
    world.live(9.4)
    times = world.asked(BARE)
    assert times[0] == pytest.approx(10 / 3, abs=0.1)
    assert [b - a for a, b in zip(times, times[1:])] == pytest.approx([1.0] * (len(times) - 1), abs=0.1)
    # what the first call has promised stands, until a renewal promises more
    assert deadlines == [pytest.approx(max(1000.0 + [t for t in times if t < 9][-1] + 2.5, 1009.5), abs=0.1)]


def test_a_shorter_validity_takes_back_no_promise(world):
    claim = world.ask()
    told = []
    world.at(0.5, lambda: setattr(world.server, "validity", "0"))
    world.at(3.2, lambda: told.append(claim.lease.deadline))
    world.at(9.3, lambda: told.append(claim.lease.deadline))
    world.at(9.6, lambda: None)
    world.live(9.8)
    assert told[0] == told[1]
    assert claim.state is LOST
    times = [time for time in world.asked(BARE) if time < 9.5]
    # as often as after a failure, and not more often
    assert [b - a for a, b in zip(times, times[1:])] == pytest.approx([0.5] * (len(times) - 1), abs=0.1)


def test_any_call_with_a_validity_renews(world):
    for second in range(1, 9):
        world.at(second, lambda: world.ask(f"n{world.clock.now}"))
    world.live(9)
    assert world.asked(BARE) == []


def test_a_renewal_answered_after_the_deadline_is_too_late(world):
    claim = world.ask()
    world.wire.faults.append(late(BARE, 9.0))
    world.live(20)
    assert claim.state is LOST
    assert isinstance(claim.error, errors.LockLost)
    assert isinstance(world.protocol.end_error, errors.LockLost)
    # what it may have prolonged is given back
    assert world.asked("revoke_lease")
    assert world.server.leases == {}


def test_without_a_connection_it_is_lost_at_the_deadline(world):
    claim = world.ask()

    def cut():
        world.wire.refuse = True
        world.wire.faults.append(lost_question("lease_sync"))

    world.at(1, cut)
    ended = []
    claim.ended = lambda: ended.append(world.clock.now - 1000.0)
    world.at(9.4, lambda: ended.append("held" if claim.state is HELD else "lost"))
    deadlines = []
    world.at(9, lambda: deadlines.append(claim.lease.deadline - 1000.0))
    world.live(20)
    assert ended[0] == "held"
    assert deadlines[0] <= ended[1] < deadlines[0] + 0.6  # a back-off later at most: valid says it at once
    assert len(ended) == 2


def test_valid_is_right_while_nothing_runs(world):
    claim = world.ask()
    left = []

    def stopped():
        world.clock.now += 9.6
        left.append(claim.time_left(world.clock.now))

    world.at(1, stopped)
    world.live(20)
    assert left == [0.0]
    assert claim.state is LOST


# --- renewals and connections -----------------------------------------------------------------------------------------


def test_a_suspended_session_goes_on(world):
    claim = world.ask()

    def cut():
        world.wire.refuse = True
        world.wire.faults.append(lost_question("lease_sync"))

    world.at(1, cut)
    states = []
    world.at(5, lambda: states.append((world.protocol.state, claim.state)))
    world.at(6, lambda: setattr(world.wire, "refuse", False))
    world.at(8, lambda: states.append((world.protocol.state, claim.state)))
    world.live(9)
    assert states == [("suspended", HELD), ("connected", HELD)]


def test_renewals_that_fail_are_tried_again_with_growing_delays(world):
    world.at(0.5, lambda: world.wire.faults.extend(fails("lease_sync", "55P03") for _ in range(6)))
    world.ask()
    world.live(8)
    times = world.asked(BARE)[:7]
    delays = [round(later - time, 2) for time, later in zip(times, times[1:])]
    assert delays == [0.0, 0.05, 0.1, 0.2, 0.4, 0.5]


def test_a_server_that_breaks_each_connection_is_not_overrun(world):
    claim = world.ask()
    world.at(1, lambda: world.wire.faults.extend(lost_question("lease_sync") for _ in range(100)))
    states = []
    world.at(7, lambda: states.append((world.protocol.state, claim.state)))
    world.live(8)
    assert states == [("suspended", HELD)]
    assert world.wire.connects <= 15


def test_what_is_learned_first_may_be_refused_for_a_moment(world):
    claim = world.ask()
    world.at(1, lambda: world.wire.faults.extend([lost_question("lease_sync"), fails("pg_extension", "57014")]))
    states = []
    world.at(5, lambda: states.append((world.protocol.state, claim.state)))
    world.live(6)
    assert states == [("connected", HELD)]
    assert world.wire.connects == 3


def test_a_standby_is_avoided(world):
    """Where libpq cannot tell, or was told not to look."""
    world.server.standby = True
    claim, held = world.ask(), []
    world.protocol.opened = True  # the first connection may fail at once
    world.at(0.5, lambda: setattr(world.server, "standby", False))
    world.at(2, lambda: held.append(claim.state))
    world.live(3)
    assert held == [HELD]
    assert world.wire.avoided > 1


def test_a_schema_that_was_renamed_is_learned_again(world):
    claim = world.ask()
    later, held = [], []
    world.at(1, lambda: setattr(world.server, "schema", "t"))
    world.at(5, lambda: later.append(world.ask("m")))
    world.at(5.5, lambda: setattr(world.server, "schema", "u"))
    world.at(6, lambda: world.protocol.release(claim))
    world.at(7, lambda: held.append(later[0].state))
    world.at(11, lambda: None)
    world.live(12)
    assert claim.released is True
    assert held == [HELD]
    assert world.wire.connects == 1
    assert len(world.asked("pg_extension")) == 3
    assert len(set(world.wire.prepared)) == 3


def test_a_statement_learns_a_schema_that_was_renamed(world):
    calls = []

    def read():
        world.server.schema = "t"
        calls.append(world.protocol.read("SELECT * FROM {s}.current_leader($1)", "e"))

    world.at(1, read)
    world.at(2, lambda: None)
    world.live(2.5)
    assert calls[0].answer == [["me", "7"]]
    assert world.wire.connects == 1


def test_without_the_extension_it_is_lost_at_the_deadline(world):
    claim = world.ask()
    world.at(1, lambda: setattr(world.server, "schema", None))
    world.at(9.4, lambda: None)
    world.at(9.7, lambda: None)
    world.live(10)
    assert claim.state is LOST
    assert len(world.asked("pg_extension")) > 5


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_waiter_is_granted_by_any_call(world):
    """The notification was dropped."""
    other = world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    world.at(1, lambda: world.server.drop("n", other["token"]))
    world.at(1.1, lambda: world.ask("m"))
    states = []
    world.at(1.2, lambda: states.append(claim.state))
    world.live(5)
    assert states == [HELD]


def test_it_listens_while_something_waits_and_then_asks(world):
    other = world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    world.at(5, lambda: world.server.drop("n", other["token"]))
    world.at(5.01, lambda: world.protocol.notified("le_x"))
    states = []
    world.at(5.1, lambda: states.append(claim.state))
    world.at(6.9, lambda: states.append(world.asked("UNLISTEN *")))
    world.live(7)
    assert states[0] is HELD
    listened = world.asked('LISTEN "le_x"')[0]
    assert [time for time in world.asked(BARE) if listened < time < listened + 0.1]
    assert states[1] == [pytest.approx(6.0, abs=0.2)]


def test_it_does_not_listen_while_nothing_waits(world):
    world.ask()
    world.at(1, lambda: world.ask("m"))
    world.live(5)
    assert world.asked("LISTEN") == []


def test_a_notification_decides_nothing(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    states = []
    world.at(1, lambda: world.protocol.notified("le_x"))
    world.at(1.2, lambda: states.append(claim.state))
    world.live(2)
    assert states == [WAITING]
    assert [time for time in world.asked(BARE) if 1 <= time < 1.1]


def test_a_notification_beside_an_older_reply_is_not_lost(world):
    other = world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()

    def strike(wire, sql, params, until):
        rows = wire.server.answer(sql, params)
        wire.server.drop("n", other["token"])
        world.protocol.notified("le_x")
        return rows

    world.at(1, lambda: world.wire.faults.append(Fault('"m"', strike)))
    world.at(1.1, lambda: world.ask("m"))
    states = []
    world.at(1.2, lambda: states.append(claim.state))
    world.live(2)
    assert states == [HELD]


def test_a_notification_before_the_reply_that_it_waits_is_not_lost(world):
    others = {name: world.server.take("lock", name, "somebody", "0")["token"] for name in "nm"}
    world.ask()
    claims, states = [], []

    def drop(name):
        world.server.drop(name, others[name])
        world.protocol.notified("le_x")

    def strike(wire, sql, params, until):
        rows = wire.server.answer(sql, params)
        drop("m")
        return rows

    world.at(1, lambda: drop("n"))
    world.at(1.1, lambda: world.wire.faults.append(Fault('"m"', strike)))
    world.at(1.2, lambda: claims.append(world.ask("m")))
    world.at(1.3, lambda: states.append(claims[0].state))
    world.live(2)
    assert states == [HELD]
    assert len([time for time in world.asked(BARE) if time >= 1.1]) == 1


def test_notifications_of_one_moment_make_one_call(world):
    world.server.take("lock", "n", "somebody", "0")
    world.ask()
    world.at(1, lambda: [world.protocol.notified("le_x") for _ in range(9)])
    world.live(1.5)
    assert len([time for time in world.asked(BARE) if time >= 1]) == 1


@pytest.mark.parametrize("way", ["deaf", "LISTEN", "pooler"])
def test_where_listen_does_not_work_it_asks_four_times_a_second(world, way):
    world.server.take("lock", "n", "somebody", "0")
    world.wire.deaf = True
    if way == "LISTEN":
        world.wire.faults.append(fails("LISTEN", "0A000"))
    if way == "pooler":
        world.wire.pid = "8"
    claim, states = world.ask(), []
    world.at(2.9, lambda: states.append(world.protocol.state))
    world.at(3, lambda: world.protocol.over(claim, errors.Canceled("gone")))
    world.live(6)
    assert states == ["connected"]
    assert world.wire.connects == 1
    assert 8 <= len([time for time in world.asked(BARE) if time < 3]) <= 14
    assert len([time for time in world.asked(BARE) if time > 3]) <= 1


# --- lost answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lock", "permit"])
def test_a_lost_answer_is_adopted(world, kind):
    world.server.permits = 9
    world.wire.faults.append(lost_answer("enqueue_"))
    claim = world.ask(kind=kind, last="9" if kind == "permit" else None)
    states = []
    world.at(1, lambda: states.append((claim.state, claim.token, len(world.server.rows))))
    world.live(1.5)
    assert states == [(HELD, 102, 1)]
    assert len(world.asked("enqueue_")) == 1


def test_a_lost_question_is_asked_again_after_the_news(world):
    world.wire.faults.append(lost_question("enqueue_lock"))
    claim = world.ask()
    states = []
    world.at(1, lambda: states.append(claim.state))
    world.live(1.5)
    assert states == [HELD]
    first, second = world.asked("enqueue_lock")
    assert [time for time in world.asked(BARE) if first < time < second]


def test_a_permit_whose_answer_was_lost_and_is_not_durable_is_not_taken_twice(world):
    """A reply whose `complete` is NULL holds the news back: the permit is asked for again only if they lack it."""
    world.server.permits = 9
    world.wire.faults.append(lost_answer("enqueue_"))
    claim = world.ask(kind="permit", last="9")
    world.server.durable = False
    world.at(0.5, lambda: setattr(world.server, "durable", True))
    rows = []
    world.at(2, lambda: rows.extend(row["token"] for row in world.server.rows))
    world.live(3)
    assert rows == [str(claim.token)]
    assert len(world.asked("enqueue_")) == 1


def test_a_grant_whose_news_are_held_back_is_asked_for(world):
    """It may be told by no notification: the session looks again soon after a reply whose `complete` is NULL."""
    world.wire.deaf = False
    first = world.ask()
    second = world.ask()
    states = []
    world.at(1, lambda: setattr(world.server, "durable", False))
    world.at(1, lambda: world.protocol.release(first))
    world.at(1.1, lambda: states.append(second.state))
    world.at(1.1, lambda: setattr(world.server, "durable", True))
    world.at(1.3, lambda: states.append(second.state))
    world.live(2)
    assert states == [WAITING, HELD]


def test_lost_answers_of_many_keep_their_order(world):
    world.wire.faults.append(lost_question("enqueue_lock"))
    claims = [world.ask(f"n{i}") for i in range(5)]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    world.live(1.5)
    assert states == [HELD] * 5
    assert [claim.token for claim in claims] == sorted(claim.token for claim in claims)


def test_a_ghost_is_given_back(world):
    """Its caller has gone before the answer is lost."""
    claim = world.ask()

    def strike(wire, sql, params, until):
        wire.server.answer(sql, params)
        world.protocol.over(claim, errors.Canceled("gone"))
        raise Broken(errors.Unavailable("the connection broke"))

    world.wire.faults.append(Fault("enqueue_lock", strike))
    rows = []
    world.at(1, lambda: rows.extend(world.server.rows))
    world.live(1.5)
    assert claim.phase is DONE
    assert rows == []


def test_a_grant_to_a_caller_that_has_gone_is_given_back(world):
    claim = world.ask()

    def strike(wire, sql, params, until):
        world.protocol.over(claim, errors.Canceled("gone"))
        return wire.server.answer(sql, params)

    world.wire.faults.append(Fault("enqueue_lock", strike))
    rows = []
    world.at(1, lambda: rows.extend(world.server.rows))
    world.live(1.5)
    assert claim.state is OVER
    assert rows == []


def test_what_nobody_knows_is_given_back(world):
    """A request that nobody wants any more, and that was not durable when its call was answered."""
    claim = world.ask("m")

    def appear():
        world.server.take("lock", "n", world.protocol.marker + "-77", world.protocol.main.id)
        world.server.take("election", "e", world.protocol.marker + "-78", world.protocol.main.id)
        world.server.take("lock", "own", "the application", world.protocol.main.id)

    world.at(1, appear)
    rows = []
    world.at(5, lambda: rows.extend(row["name"] for row in world.server.rows))
    world.live(6)
    assert rows == ["m", "own"]
    assert claim.token


def test_a_hold_of_the_application_on_the_lease_is_not_the_session_s(world):
    """It has called the functions with the number of the lease, and an owner of its own."""
    claim = None

    def ask():
        nonlocal claim
        world.server.take("lock", "n", "the application", world.protocol.main.id)
        world.wire.faults.append(lost_question("enqueue_lock"))
        claim = world.ask("n")

    world.at(1, ask)
    states, rows = [], []
    world.at(1.5, lambda: states.append(claim.state))
    world.at(1.5, lambda: rows.extend(row["owner"] for row in world.server.rows))
    world.live(2)
    assert states == [WAITING]
    assert rows == ["the application", claim.owner]


def test_after_a_restart_of_the_manager_it_asks_again(world):
    held, claim = world.ask(), None
    states = []

    def ask():
        nonlocal claim
        world.server.restart()
        claim = world.ask("m")

    world.at(1, ask)
    world.at(2, lambda: states.extend((held.state, claim.state)))
    world.live(3)
    assert states == [HELD, HELD]
    assert len(world.asked('"m"')) == 2


def test_what_a_complete_reply_does_not_have_is_lost(world):
    world.server.take("lock", "w", "somebody", "0")
    held, gone, waits = world.ask("a"), world.ask("b"), world.ask("w")
    states = []
    world.at(1, lambda: world.server.restart(forgets=("b", "w")))
    world.at(4, lambda: states.extend((held.state, gone.state, waits.state)))
    world.live(5)
    assert states == [HELD, LOST, LOST]


def test_an_evicted_hold_is_given_back_when_the_application_has_left_it(world):
    evicted, other = world.ask("a"), world.ask("b")
    states = []
    world.at(1, lambda: world.server.evict("a"))
    world.at(6, lambda: states.extend((evicted.state, other.state, len(world.asked("release")))))
    world.at(7, lambda: world.protocol.release(evicted))
    world.live(8)
    assert states == [LOST, HELD, 0]
    assert len(world.asked("release")) == 1
    assert evicted.released is False


@pytest.mark.parametrize("how", ["the other name", "again"])
def test_what_is_evicted_twice_is_not_given_back_sooner(world, how):
    evicted = world.ask(["a", "b"])
    states = []
    world.at(1, lambda: world.server.evict("a"))
    world.at(5, lambda: world.server.evict("b") if how == "the other name" else world.server.restart())
    world.at(9, lambda: states.extend((evicted.state, len(world.asked("release")))))
    world.at(9.1, lambda: world.protocol.release(evicted))
    world.at(9.3, lambda: states.append(world.server.rows))
    world.live(9.4)
    assert states == [LOST, 0, []]


def test_nothing_of_an_evicted_hold_is_left_to_give_back_when_its_lease_has_ended(world):
    evicted = world.ask(["a", "b"])
    world.at(1, lambda: world.server.evict("a"))
    phases = []
    world.at(5, lambda: world.server.end(world.protocol.main.id))
    world.at(8, lambda: world.protocol.release(evicted))
    world.at(8.1, lambda: phases.append(evicted.phase))
    world.live(9)
    assert (evicted.state, evicted.released, phases) == (LOST, False, ["done"])


def test_a_forgotten_evicted_hold_is_given_back(world):
    evicted = world.ask("a")
    world.at(1, lambda: world.server.evict("a"))
    world.at(6, lambda: world.protocol.dropped.append(evicted))
    world.live(8)
    assert (evicted.state, len(world.asked("release"))) == (LOST, 1)


def test_what_was_evicted_before_its_grant_was_known_is_given_back(world):
    claim = None

    def ask():
        nonlocal claim
        world.server.durable = False
        claim = world.ask("a")

    world.at(1, ask)
    world.at(2, lambda: world.server.evict("a"))
    world.at(2.5, lambda: setattr(world.server, "durable", True))
    world.live(5)
    assert claim.state != HELD and isinstance(claim.error, errors.LockLost)
    assert len(world.asked("release")) == 1


def test_what_is_not_durable_is_told_later(world):
    first = world.ask("a")
    claim, states = None, []

    def ask():
        nonlocal claim
        world.server.durable = False
        claim = world.ask("b")

    world.at(1, ask)
    world.at(2, lambda: states.extend((first.state, claim.state)))
    world.at(2.5, lambda: setattr(world.server, "durable", True))
    world.at(3, lambda: states.append(claim.state))
    world.live(4)
    assert states == [HELD, WAITING, HELD]
    assert len(world.asked('"b"')) == 1


@pytest.mark.parametrize("how", ["forgotten", "forced"])
def test_what_was_not_durable_and_is_gone_is_asked_for_again(world, how):
    world.ask("a")
    claim, states = None, []

    def ask():
        nonlocal claim
        world.server.durable = False
        claim = world.ask("b")

    def crash():
        world.server.durable = True
        world.server.restart(forgets=("b",)) if how == "forgotten" else world.server.force("b")

    world.at(1, ask)
    world.at(2.01, crash)
    world.at(3, lambda: states.append(claim.state))
    world.live(4)
    assert states == [HELD]
    assert len(world.asked('"b"')) == 2


@pytest.mark.parametrize("how", ["forgotten", "forced"])
def test_what_is_asked_for_again_comes_before_what_came_after_it(world, how):
    world.ask("a")
    claims = []

    def ask():
        world.server.durable = False
        claims.extend(world.ask(name) for name in ("b", "c", "d"))

    def crash():
        world.server.durable = True
        if how == "forgotten":
            world.server.restart(forgets=("b", "c", "d"))
        else:
            [world.server.force(name) for name in ("b", "c", "d")]
        claims.append(world.ask("e"))

    world.at(1, ask)
    world.at(2.01, crash)
    states = []
    world.at(3, lambda: states.extend(claim.state for claim in claims))
    world.live(4)
    assert states == [HELD] * 4
    again = claims if how == "forgotten" else claims[:3]  # the last one was asked for with the call that told the loss
    assert [claim.token for claim in again] == sorted(claim.token for claim in again)


def test_a_proclamation_that_is_not_durable_is_sent_again(world):
    term = world.ask("e", "candidate", last="me")
    ops = []

    def proclaim():
        world.server.durable = False
        ops.append(world.protocol.operate(term.lease, "proclaim", "e", str(term.token), None, "text"))

    world.at(1, proclaim)
    world.at(1.1, lambda: ops.append(ops[0].answer))
    world.at(1.2, lambda: setattr(world.server, "durable", True))
    world.at(2, lambda: None)
    world.live(3)
    assert ops[1] is None
    assert ops[0].answer == "proclaimed"


# --- losses and releases ----------------------------------------------------------------------------------------------


def test_a_wait_that_is_given_up_leaves_no_place(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask()
    world.at(1, lambda: world.protocol.over(claim, errors.Canceled("gone")))
    rows = []
    world.at(1.2, lambda: rows.extend(row["owner"] for row in world.server.rows))
    world.live(3)
    assert rows == ["somebody"]
    assert claim.phase is DONE
    assert world.asked("UNLISTEN")


def test_a_wait_whose_limit_has_passed_at_the_first_answer_leaves_no_place(world):
    held, overdue = world.ask(), world.ask()
    free = world.ask("m")
    overdue.overdue = free.overdue = True
    seen = []
    world.at(1, lambda: seen.append((overdue.state, free.state, len(world.server.rows))))
    world.live(2)
    assert held.phase is DONE
    assert seen == [(OVER, HELD, 2)]
    assert isinstance(overdue.error, errors.NotAcquired)


def test_a_forced_release_is_noticed_at_the_next_renewal(world):
    claim = world.ask()
    world.at(1, lambda: world.server.force("n"))
    states = []
    world.at(3.5, lambda: states.append((claim.state, str(claim.error))))
    world.live(4)
    assert states == [(LOST, "the server has ended it: forced")]
    assert world.protocol.end_error is None


def test_a_lease_that_the_server_has_ended(world):
    claim = world.ask()
    waiter = world.ask()
    world.at(1, lambda: world.server.end(world.protocol.main.id))
    states = []
    world.at(6, lambda: states.append((claim.state, waiter.state, world.protocol.state)))
    world.live(7)
    assert states == [(LOST, LOST, "ended")]
    assert isinstance(waiter.error, errors.LockLost)


def test_a_release_whose_answer_was_lost_is_sent_again(world):
    claim = world.ask()

    def release():
        world.wire.faults.append(lost_answer("release"))
        world.protocol.release(claim)

    world.at(1, release)
    world.live(3)
    assert claim.released is True
    assert len(world.asked("release")) == 2


def test_a_second_release_does_nothing(world):
    """Such as that of a with-block, while the first one has no answer yet."""
    claim = world.ask()

    def release():
        world.protocol.release(claim, 60.0)
        world.protocol.release(claim)

    world.at(2, release)
    world.live(3)
    assert len(world.asked('"60000 ms"')) == 1
    assert len(world.asked('"release"')) == 1


def test_a_hold_for_that_is_refused_releases_all_the_same(world):
    claim = world.ask()

    def strike(wire, sql, params, until):
        first, _ = wire.server.answer(sql, params)
        row = ["1", "error", None, "n", None, "lock", None, "53400", "no", "See max_hold_for."]
        return [first, row + [None] * 5]

    def release():
        world.wire.faults.append(Fault("release", strike))
        world.protocol.release(claim, 1e6)

    world.at(1, release)
    world.live(2)
    assert isinstance(claim.error, errors.LimitExceeded)
    assert len(world.asked("1000000000 ms")) == 1
    assert len(world.asked("release")) == 2


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_of_an_item_is_told_to_its_caller_alone(world):
    world.server.refused["n0"] = "53400"
    claims = [world.ask(f"n{i}") for i in range(3)]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    world.live(1.5)
    assert states == [OVER, HELD, HELD]
    assert isinstance(claims[0].error, errors.LimitExceeded)


def test_an_error_of_a_call_is_found_by_sending_each_alone(world):
    """As where a name cannot be converted to the server's encoding."""

    def strike(wire, sql, params, until):
        wire.faults.append(Fault('"bad"', strike))
        raise errors.of_server("22P05", "no such character")

    world.wire.faults.append(Fault('"bad"', strike))
    claims = [world.ask(name) for name in ("a", "bad", "c")]
    states = []
    world.at(1, lambda: states.extend(claim.state for claim in claims))
    world.live(2)
    assert states == [HELD, OVER, HELD]
    assert isinstance(claims[1].error, errors.InvalidRequest)
    assert len(world.asked('"bad"')) == 2


def test_a_request_that_fails_each_call_stops_no_renewal(world):
    """As where the server has no memory for it."""
    held, waits, bad = world.ask("a"), [], world.ask("bad")

    def strike(wire, sql, params, until):
        wire.faults.append(Fault('"bad"', strike))
        raise errors.of_server("XX000", "no")

    def ask():
        world.wire.faults.append(Fault('"bad"', strike))
        world.protocol.release(bad)
        waits.append(world.ask("bad"))

    world.at(1, ask)
    states = []
    world.at(15, lambda: states.extend((held.state, waits[0].state, bad.released)))
    world.live(16)
    assert states == [HELD, WAITING, None]


def test_what_passes_is_tried_again_and_what_does_not_is_told(world):
    world.server.refused.update(n="55P03", m="42501", k="55P03")
    claim, denied, busy = world.ask(), world.ask("m", attempt=True), world.ask("k", attempt=True)
    states = []
    world.at(0.5, world.server.refused.clear)
    world.at(1, lambda: states.extend((claim.state, denied.error.sqlstate, busy.error.sqlstate)))
    world.live(1.5)
    assert states == [HELD, "42501", "55P03"]
    assert 2 < len(world.asked('"n"')) < 9


def test_a_statement_is_tried_again_while_its_caller_waits(world):
    calls = []

    def read(sqlstate):
        world.wire.faults.append(fails("current_leader", sqlstate))
        calls.append(world.protocol.read("SELECT * FROM {s}.current_leader($1)", "e"))

    world.at(1, lambda: read("55P03"))
    world.at(2, lambda: read("42501"))
    world.live(3)
    assert [round(time, 1) for time in world.asked("current_leader")] == [1.0, 1.1, 2.0]
    assert calls[0].answer == [["me", "7"]]
    assert isinstance(calls[1].answer, errors.AccessDenied)


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_an_own_ttl_has_a_lease_of_its_own(world):
    claim = world.ask(ttl=2.0)
    other = world.ask("m", ttl=2.0)
    world.at(5, lambda: [world.protocol.release(c) for c in (claim, other)])
    leases = []
    world.at(4.9, lambda: leases.append(len(world.server.leases)))
    world.at(7, lambda: leases.append(len(world.server.leases)))
    world.live(8)
    assert leases == [2, 1]
    assert (claim.released, other.released) == (True, True)


def test_a_session_that_ended_opens_again(world):
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
    world.live(6)
    assert states == [LOST, HELD, "connected"]


def test_a_lease_that_is_not_durable_yet_is_not_lost(world):
    """A disk that stops: nothing is told to be held, and the session goes on."""

    def strike(wire, sql, params, until):
        if world.clock.now < 1030:
            wire.faults.append(Fault("lease_sync", strike))
        rows = wire.server.answer(sql, params)
        rows[0][10] = None
        return rows

    world.server.durable = False
    world.wire.faults.append(Fault("lease_sync", strike))
    claim = world.ask()
    states = []
    world.at(25, lambda: states.append((world.protocol.state, claim.state)))
    world.at(31, lambda: setattr(world.server, "durable", True))
    world.at(33, lambda: states.append((world.protocol.state, claim.state)))
    world.live(34)
    assert states == [("connected", WAITING), ("connected", HELD)]


def test_an_attempt_that_is_refused_holds_nothing(world):
    world.server.take("lock", "n", "somebody", "0")
    claim = world.ask(attempt=True)
    world.at(1, lambda: None)
    world.live(1.5)
    assert isinstance(claim.error, errors.NotAcquired)
    assert len(world.server.rows) == 1


def test_others_have_their_turn_while_calls_are_made_without_end(world):
    calls = []

    def ask():
        if world.clock.now < 1002:
            claim = world.ask(f"n{world.clock.now}")
            claim.wakers.append(ask)

    def others():
        calls.append(world.protocol.read("SELECT * FROM {s}.current_leader($1)", "e"))

    world.at(1, ask)
    world.at(1.5, others)
    world.at(1.6, lambda: calls.append(calls[0].answer))
    world.live(3)
    assert calls[1] is not None


def test_closing_revokes_and_tells(world):
    held, waiting = world.ask(), world.ask()
    told = []
    world.at(1, lambda: world.protocol.observe(Observer("e", told.append)))
    world.at(2, lambda: world.protocol.close(1.0))
    answer = world.server.answer
    world.server.answer = lambda sql, params: [] if "history" in sql else answer(sql, params)
    world.run()
    assert (held.state, waiting.state) == (OVER, OVER)
    assert isinstance(waiting.error, errors.Canceled)
    assert world.server.leases == {}
    assert world.server.rows == []
    assert told[0] is None
    assert len(told) == 2
    with pytest.raises(errors.Canceled):
        world.ask()


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

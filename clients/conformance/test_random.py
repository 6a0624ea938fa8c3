"""Random runs of all clients together, and tests of their judges."""

import json
import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from harness import chance, judge
from harness.agent import Failure, Violation
from harness.arena import HERE, ROOT

SHARE = int(os.environ.get("SHARE") or 1)
SECONDS = 25 / SHARE
CHECK = ROOT / "build/torture/check"
PORCUPINE = ROOT / "build/conformance/porcupine"


@pytest.fixture(scope="session")
def check():
    """The checker of the torture test."""
    subprocess.run(["make", "-s", "build/torture/check"], cwd=ROOT, check=True)
    return CHECK


@pytest.fixture(scope="session")
def porcupine():
    if not os.environ.get("LE_GO"):
        pytest.skip("Porcupine needs Go")
    subprocess.run(["go", "build", "-C", HERE / "porcupine", "-o", PORCUPINE, "."], check=True)
    return PORCUPINE


@pytest.fixture(scope="session")
def world(arena, seed, request):
    """Makes a run. Its stamps have already been judged."""
    clients = request.getfixturevalue("all_clients")
    world = chance.World(arena, clients, seed, SECONDS)
    try:
        arena.do(world.run())
    except Failure as e:
        arena.random_result(clients, seed, "failed", str(e).split("\n", maxsplit=1)[0])
        pytest.fail(str(e), pytrace=False)
    arena.random_result(clients, seed, "passed", None)
    return world


def run_check(check, histories, directory):
    """Returns the last line of the output, and all of it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    files = []
    for who, text in chance.torture_files(histories).items():
        files.append(directory / who)
        files[-1].write_text(text, encoding="ascii")
    # the time until a grant is reported, through agents and proxies, is not promised
    done = subprocess.run([check, "--slack", "1000000", "--p99", "1000000", *files], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def run_porcupine(porcupine, histories):
    done = subprocess.run([porcupine], input=json.dumps(chance.porcupine_calls(histories)), capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_stamps(world):
    held = [hold for history in world.histories for hold in history.holds]
    lost = [hold for hold in held if hold.lost is not None]
    print(f"seed {world.seed}: {len(held)} holds of {len(world.histories)} sessions, {len(lost)} lost; faults: {world.faults}")
    assert len(held) > 20 / SHARE


def test_torture_checker(world, check, tmp_path):
    code, said = run_check(check, world.histories, tmp_path / "history")
    print(said)
    if code != 0:
        texts = chance.torture_files(world.histories)
        story = "\n".join([*world.lines, said, *(f"== {who}\n{text}" for who, text in texts.items())])
        print(world.arena.save(f"random-{world.seed}.log", story))
    assert code == 0, said


def test_porcupine(world, porcupine):
    code, said = run_porcupine(porcupine, world.histories)
    print(said)
    assert code == 0, said


# --- the judges themselves ---


def history(who, name, grants, released="ok"):
    """A session with these grants and releases: (token, sent, at, release sent, release at)."""
    made = chance.History(who, lease=f"9{who}")
    made.entries.append(chance.Entry("grant_lease", 1, 2, "ok", lease=made.lease))
    made.entries.append(chance.Entry("keep_alive", 5, 6, "ok", lease=made.lease))
    for token, sent, at, end_sent, end_at in grants:
        hold = judge.Hold(SimpleNamespace(name=who), f"h{token}", [name], "exclusive", 0, {"token": str(token), "at": at})
        hold.promised, hold.ended = end_sent, end_sent
        made.holds.append(hold)
        made.entries.append(chance.Entry("acquire", sent, at, "ok", name, "exclusive", None, str(token)))
        made.entries.append(chance.Entry("release", end_sent, end_at, released, name, "exclusive", token=str(token)))
    return made


HISTORIES = {
    "in order": (True, [history("1", "n", [(11, 10, 20, 100, 110)]), history("2", "n", [(12, 30, 105, 200, 210)])]),
    "two at a time": (False, [history("1", "n", [(11, 10, 20, 100, 110)]), history("2", "n", [(12, 30, 60, 200, 210)])]),
    "it dies while it releases": (True, [history("1", "n", [(11, 10, 20, 40, 45)], "dead"),
                                         history("2", "n", [(12, 30, 60, 200, 210)])]),
    "a lower token": (False, [history("1", "n", [(12, 10, 20, 100, 110)]), history("2", "n", [(11, 130, 140, 200, 210)])]),
}


@pytest.mark.parametrize("kind", HISTORIES)
def test_stamps_notice(kind):
    good, made = HISTORIES[kind]
    held = [hold for one in made for hold in one.holds]
    try:
        judge.check_exclusion(held)
        judge.check_tokens(held)
    except Violation:
        assert not good
    else:
        assert good


@pytest.mark.parametrize("kind", HISTORIES)
def test_torture_checker_notices(kind, check, tmp_path):
    good, made = HISTORIES[kind]
    code, said = run_check(check, made, tmp_path / "history")
    assert (code == 0) == good, said


@pytest.mark.parametrize("kind", HISTORIES)
def test_porcupine_notices(kind, porcupine):
    good, made = HISTORIES[kind]
    code, said = run_porcupine(porcupine, made)
    assert (code == 0) == good, said

"""Checks that a test catches each fault of mutants-CLIENT.list, in a copy of the client.

A fault names scenarios, of which one has to fail, and the agent's mode if that matters.  What no agent can show names tests
of the client's own instead ("own").
"""

import os
import re
import shlex
import shutil
import subprocess

import pytest

from harness.agent import Failure
from harness.arena import HERE, ROOT, absent, build, capabilities, read_agents, read_scenarios

AGENTS = read_agents()
PATIENCE = 900  # seconds: a test that waits longer has caught the fault
# A test has failed. Build errors and missing tests do not count.
FAILED = re.compile(r"FAIL|not ok|Tests run:.*Failures: [1-9]|\n +\d+\) (?:Failure|Error):")


def read_mutants(client):
    """Returns the mutants of a client's list, like test/lib/LeMutants.pm."""
    mutants, part = [], None
    path = HERE / f"mutants-{client}.list"
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []:
        mark = re.fullmatch(r"-- (old|new|end)\n", line)
        field = re.match(r"(\w+): +(.*\S)\n", line)
        if mark:
            part = None if mark[1] == "end" else mark[1]
            if part:
                mutants[-1][part] = ""
        elif part:
            mutants[-1][part] += line
        elif field:
            if field[1] == "name":
                mutants.append({"client": client, "mode": "", "scenarios": "", "own": ""})
            mutants[-1][field[1]] = field[2]
    return mutants


def seed(mutant, root):
    """Copies the sources of the client's agent, and seeds this fault."""
    entry = AGENTS[mutant["client"]]
    for what in entry["copy"]:
        (root / what).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / what).is_dir():
            shutil.copytree(ROOT / what, root / what, symlinks=True, ignore=shutil.ignore_patterns("node_modules", "target"))
        else:
            shutil.copy2(ROOT / what, root / what)
    for what in entry.get("link", []):
        (root / what).symlink_to(ROOT / what)
    path = root / mutant["file"]
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant["old"]) == 1, f"its old text is in {mutant['file']} {text.count(mutant['old'])} times"
    path.write_text(text.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    if "rebuild" in entry:
        build(entry["rebuild"], root)
    if "build" in entry and mutant["scenarios"]:  # build the agent, which the client's own tests do not need
        build(entry["build"], root)
    return root


class Trial:
    """A seeded fault, and the scenarios that run with it."""

    def __init__(self, mutant, arena, scenarios, root):
        self.mutant, self.root = mutant, seed(mutant, root)
        names = mutant["scenarios"].split()
        modes = capabilities(mutant["client"], AGENTS[mutant["client"]]["run"], root) if names else []
        client = next((mode for mode in modes if mutant["mode"] in ("", mode.mode)), None)
        self.runs = [arena.start(name, scenarios[name], client, once=True) for name in names]

    def caught(self, server):
        """Returns the output of the tests that fail."""
        said = []
        for run in self.runs:
            try:
                run.result()
            except Failure as e:
                said.append(str(e).split("\n", maxsplit=1)[0])
        own = AGENTS[self.mutant["client"]].get("own", "").replace("{tests}", self.mutant["tests"])
        for test in self.mutant["own"].split():
            env = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}
            try:
                done = subprocess.run([*shlex.split(own), test], cwd=self.root, env=env, capture_output=True,
                                      text=True, check=False, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                said.append(f"{test} does not end")
                continue
            output = done.stdout + done.stderr
            if done.returncode != 0:
                assert FAILED.search(output), f"{test} cannot be run: {output}"
                said.append(f"{test} fails")
        return said


def pytest_generate_tests(metafunc):
    clients = [c for c in os.environ.get("CLIENTS", "c python go").split() if absent(c, AGENTS[c]) is None]
    mutants = [mutant for client in clients for mutant in read_mutants(client)]
    metafunc.parametrize("mutant", mutants, ids=[f"{mutant['client']}-{mutant['name']}" for mutant in mutants])


@pytest.fixture(scope="session")
def trials(arena, request, tmp_path_factory):
    """The trials of all selected mutants, already started."""
    scenarios = read_scenarios()
    mutants = [item.callspec.params["mutant"] for item in request.session.items]
    return {id(mutant): Trial(mutant, arena, scenarios, tmp_path_factory.mktemp("mutant")) for mutant in mutants}


def test_mutant(mutant, arena, trials):
    trial = trials[id(mutant)]
    said = trial.caught(arena.shared)
    shutil.rmtree(trial.root, ignore_errors=True)
    assert said, f"survived: {mutant['story']}"
    print(f"{mutant['client']}: {mutant['name']}: {said[0]}")

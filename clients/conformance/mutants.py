"""Would a scenario notice this fault?  Builds liblockelection's agent with each fault of mutants.list, in a copy."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.agent import Failure
from harness.arena import ROOT, Client, capabilities, read_scenarios

LIST = Path(__file__).with_name("mutants.list")


def read_mutants():
    """Those of the list, as test/lib/LeMutants.pm reads it."""
    mutants, part = [], None
    for line in LIST.read_text(encoding="utf-8").splitlines(keepends=True):
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
                mutants.append({})
            mutants[-1][field[1]] = field[2]
    return mutants


def build(mutant, directory):
    """The agent with this fault in it."""
    for what in ("src/client", "build/client/lib", "clients/conformance"):
        shutil.copytree(ROOT / what, directory / what, symlinks=True)
    for what in ("Makefile", "META.json", "lock_election.control"):
        shutil.copy2(ROOT / what, directory)
    path = directory / mutant["file"]
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant["old"]) == 1, f"its old text is in {mutant['file']} {text.count(mutant['old'])} times"
    path.write_text(text.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    made = subprocess.run(["make", "-s", "build/conformance/agent_c"], cwd=directory, capture_output=True, text=True,
                          check=False)
    assert made.returncode == 0, made.stderr
    return directory / "build/conformance/agent_c"


@pytest.fixture(scope="session")
def runs(arena, request, tmp_path_factory):
    """The scenarios of all mutants that were chosen, which have begun."""
    scenarios = read_scenarios()
    begun = {}
    for item in request.session.items:
        mutant = item.callspec.params["mutant"]
        command = str(build(mutant, tmp_path_factory.mktemp("mutant") / "source"))
        told = capabilities("c", command)[0]
        client = Client(mutant["name"], None, command, told.features, told.version)
        begun[mutant["name"]] = [arena.start(name, scenarios[name], client, once=True)
                                 for name in mutant["scenarios"].split()]
    return begun


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda m: m["name"])
def test_mutant(mutant, runs):
    caught = []
    for run in runs[mutant["name"]]:
        try:
            run.result()
        except Failure as e:
            caught.append(str(e).split("\n", maxsplit=1)[0])
    assert caught, f"survived: {mutant['story']}"
    print(f"{mutant['name']}: {caught[0]}")

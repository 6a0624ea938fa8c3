"""The conformance suite under pytest: all selected scenarios start together, and each test waits for its own."""

import os
import random
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.agent import Failure  # noqa: E402
from harness.arena import Arena, find_clients, missing, read_scenarios  # noqa: E402

# Seeds of random runs; the first one also selects the scenarios, if only some are run.
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "").split()] or [random.SystemRandom().randrange(10**6)]
SHARE = int(os.environ.get("SHARE") or 1)


def pytest_generate_tests(metafunc):
    if "scenario" in metafunc.fixturenames:
        clients = clients_of(metafunc.config)
        cases = [(client, name) for client in clients for name in metafunc.config.scenarios]
        cases = cases[SEEDS[0] % SHARE :: SHARE]
        metafunc.parametrize(("client", "scenario"), cases, ids=[f"{client.tag}-{name}" for client, name in cases])

    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", SEEDS, scope="session")


def clients_of(config):
    if not hasattr(config, "clients"):
        say = config.pluginmanager.getplugin("terminalreporter").write_line
        try:
            config.clients = find_clients(os.environ.get("CLIENTS", "c python go").split(), lambda t: say(f"== {t}"))
            config.scenarios = read_scenarios()
        except Failure as e:
            raise pytest.UsageError(str(e)) from None
    return config.clients


def pytest_collection_modifyitems(items):
    """Puts random runs last, because all scenarios start with the first test that needs the arena."""
    items.sort(key=lambda item: "world" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def arena(request):
    """The servers, and all scenarios, already started."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        arena = Arena(directory)
        arena.runs = {}
        scenarios = request.config.scenarios if hasattr(request.config, "scenarios") else {}
        for item in request.session.items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if "scenario" not in params:
                continue
            client, name = params["client"], params["scenario"]
            lacks = missing(scenarios[name], client)
            if lacks:
                arena.result(name, client, "not supported", why=lacks)
            else:
                arena.runs[item.name] = arena.start(name, scenarios[name], client)
        yield arena
        arena.close()
        say = request.config.pluginmanager.getplugin("terminalreporter").write_line
        for name, why in arena.again.items():
            say(f"\n== run twice: {why.splitlines()[0]}")


@pytest.fixture(scope="session")
def all_clients(request):
    return clients_of(request.config)

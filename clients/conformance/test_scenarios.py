"""Runs every scenario with every client."""

import re

import pytest

from harness.agent import Failure
from harness.arena import ROOT, missing, read_scenarios

# Rules without a command of agents: reports of progress, callbacks that lead, and the goodbye of a process.  And the
# messages of a loss, which test/t/085_client_table.t checks in the sources.
NOT_SHOWN = {"4.6", "10.4", "12.2", "12.4", "14.4"}


def test_scenario(arena, client, scenario, request):
    lacks = missing(request.config.scenarios[scenario], client)
    if lacks:
        pytest.skip(f"not supported: {lacks}")
    try:
        arena.runs[request.node.name].result()
    except Failure as e:
        pytest.fail(str(e), pytrace=False)


def test_rules():
    """Every rule of the protocol is verified by a scenario, and scenarios cite no other rules."""
    text = (ROOT / "docs/reference/client-protocol.md").read_text(encoding="utf-8")
    rules = set(re.findall(r"^- \*\*(\d+\.\d+)\*\*", text, re.M))
    shown = {rule for scenario in read_scenarios().values() for rule in scenario["rules"]}
    assert shown == rules - NOT_SHOWN

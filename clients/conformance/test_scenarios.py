"""Every client through every scenario."""

import pytest

from harness.agent import Failure
from harness.arena import missing


def test_scenario(arena, client, scenario, request):
    lacks = missing(request.config.scenarios[scenario], client)
    if lacks:
        pytest.skip(f"not supported: {lacks}")
    try:
        arena.runs[request.node.name].result()
    except Failure as e:
        pytest.fail(str(e), pytrace=False)

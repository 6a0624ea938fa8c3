"""A scenario that was too slow is repeated only if the machine was busy."""

import asyncio
from types import SimpleNamespace

import pytest

from harness import arena as under_test
from harness.agent import Failure, Violation


@pytest.mark.parametrize(("error", "late", "runs"), [
    (Failure("slow"), 151, 2),
    (Failure("slow"), 149, 1),
    (Violation("two hold it"), 10000, 1),
])
def test_again(monkeypatch, error, late, runs):
    """The TTL is 3 s."""
    begun = []

    class Scenario:
        def __init__(self, *arguments):
            begun.append(arguments)

        async def run(self):
            raise error

    async def run():
        monkeypatch.setattr(under_test, "Scenario", Scenario)
        arena = under_test.Arena.__new__(under_test.Arena)
        arena.room, arena.own_room, arena.again_room = (asyncio.Semaphore(1) for _ in range(3))
        arena.again, arena.results, arena.late = {}, [], []
        arena.ttl = lambda: 3000
        arena.machine = SimpleNamespace(worst=lambda since: late)
        client = SimpleNamespace(name="c", mode=None, version="1")
        with pytest.raises(Failure):
            await arena.run("one", {}, client, False)

    asyncio.run(run())
    assert len(begun) == runs


def test_machine_is_late(monkeypatch):
    """The thread records how much longer it sleeps."""
    machine = under_test.Machine.__new__(under_test.Machine)
    machine.nap, machine.late = 0.02, []
    monkeypatch.setattr(under_test.time, "sleep", lambda seconds: None)
    times = iter([0.0, 0.02, 1.0, 1.5, 1.5])
    monkeypatch.setattr(under_test.time, "monotonic", lambda: next(times))
    with pytest.raises(StopIteration):
        machine.watch()
    assert machine.worst(0) == pytest.approx(480)
    assert machine.worst(2) == 0

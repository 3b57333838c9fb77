"""Test that ``run()`` loses no record while processes join, stop and are killed."""

from __future__ import annotations

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


@scenario
def test_handlers_called_by_run_lose_nothing_when_processes_die(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    [a] = fleet.start("a", runs="thread", delay=0.005)
    [b] = fleet.start("b", runs="batch", delay=0.05)
    [c] = fleet.start("c", runs="record", delay=0.005)
    fleet.settle("a", "b", "c")
    fleet.produce(60)
    fleet.pause(1)
    a.kill()
    fleet.settle("b", "c")
    fleet.start("d", runs="thread", delay=0.005)
    fleet.settle("b", "c", "d")
    b.freeze()
    fleet.settle("c", "d")
    b.thaw()
    fleet.settle("b", "c", "d")
    fleet.leave(c)
    fleet.settle("b", "d")
    fleet.finish(takeovers=2)
    letters = [e for k in fleet.clients for e in k.events if e.name == "dead letter"]
    fleet.note(f"{len(letters)} records became dead letters")
    assert letters

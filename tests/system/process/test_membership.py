"""Test clients that join, leave, freeze and come back while records flow."""

from __future__ import annotations

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


@scenario
def test_a_frozen_client_wakes_up_without_delivering_as_a_zombie(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    clients = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    fleet.pause(1)
    leader = fleet.look().leader
    assert leader is not None
    first = next(client_id for client_id in clients if client_id != leader)
    for frozen in (first, leader):
        incarnation = fleet.look().members[frozen].incarnation
        clients[frozen].freeze()
        fleet.settle(*(clients.keys() - {frozen}))
        fleet.pause(0.5)
        clients[frozen].thaw()
        back = fleet.settle(*clients)
        fleet.note(f"a client that was frozen is back after {back:.1f} s")
        assert fleet.look().members[frozen].incarnation == incarnation + 1
    fleet.finish(takeovers=2)


@scenario
def test_a_rolling_restart_repeats_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    running = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    for client_id in tuple(running):
        fleet.leave(running[client_id])
        [running[client_id]] = fleet.start(client_id)
    fleet.settle(*running)
    fleet.finish()

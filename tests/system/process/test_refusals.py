"""Test that clients outlast refused threads and descriptors, and leave meanwhile."""

from __future__ import annotations

from tests.system.process.client import Client
from tests.system.process.fleet import Fleet
from tests.system.process.machine import DESCRIPTORS, THREADS
from tests.system.process.scenarios import scenario

FOREVER = 600.0  # seconds, longer than each scenario


def refuse(fleet: Fleet, client: Client, seconds: float, *kinds: str) -> None:
    client.order(refused=[*kinds], refuse=seconds)
    fleet.until(lambda: client.has("refused"), "it gets nothing new")


def reconnect(client: Client) -> None:
    for cable in client.cables.values():
        cable.set("whole")  # which breaks the connections


def reads_on(fleet: Fleet, client: Client) -> None:
    seen = len(client.handled)
    fleet.until(lambda: len(client.handled) > seen, "it reads again")


@scenario
def test_a_client_without_new_threads_connects_again(fleet: Fleet) -> None:
    fleet.stream("orders")
    first, _ = fleet.started("a", "b", cabled=True)
    fleet.produce()
    before, lease = fleet.sessions(), fleet.config["lease_duration_seconds"]
    refuse(fleet, first, 6 * lease, THREADS)
    for _ in range(4):  # the addresses are looked up again after ten seconds
        fleet.pause(lease)
        reconnect(first)
        reads_on(fleet, first)

    assert fleet.sessions() == before
    fleet.pause(3 * lease)
    fleet.finish()


@scenario
def test_a_client_that_got_no_descriptors_for_a_while_goes_on(fleet: Fleet) -> None:
    fleet.stream("orders")
    first, _ = fleet.started("a", "b", cabled=True)
    fleet.produce()
    seconds = fleet.config["lease_duration_seconds"]
    refuse(fleet, first, seconds, DESCRIPTORS)
    reconnect(first)
    fleet.pause(2 * seconds)
    reads_on(fleet, first)

    fleet.finish(takeovers=1)


@scenario
def test_a_client_without_threads_and_descriptors_hands_its_shards_over(
    fleet: Fleet,
) -> None:
    fleet.stream("orders")
    first, _ = fleet.started("a", "b", cabled=True)
    fleet.produce()
    refuse(fleet, first, FOREVER, THREADS, DESCRIPTORS)
    fleet.pause(1)
    fleet.leave(first)

    assert first.has("gave up"), fleet.report()
    fleet.finish()

"""Test that no record is lost if AWS fails, or the system refuses threads and files."""

from __future__ import annotations

from typing import Any

from tests.system.process.cable import State
from tests.system.process.client import Client
from tests.system.process.fleet import Fleet, scenario
from tests.system.process.machine import DESCRIPTORS, THREADS


def handled_after(client: Client, moment: float) -> list[Any]:
    return [h for h in client.handled if h.began > moment]


@scenario
def test_an_outage_of_the_store_fences_nobody(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    clients = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    before = fleet.sessions()
    for kind in ("refuse", "drop", "error", "throttle"):
        number = fleet.aws.fault(kind, service="dynamodb", resource=fleet.table)
        # Wait for longer than a lease. A leader that doesn't notice the outage would
        # now fence the clients whose heartbeats it can't read.
        fleet.pause(1.2 * fleet.config["lease_duration_seconds"])
        fleet.aws.clear_faults(number)
        fleet.pause(0.3)
    restored = fleet.look().at
    back = fleet.until(
        lambda: all(handled_after(client, restored) for client in clients),
        "all go on",
    )
    fleet.pause(fleet.config["lease_duration_seconds"])
    fleet.drain()

    assert fleet.sessions() == before
    fleet.leave()
    fleet.note(f"all go on {back:.1f} s after the store came back")
    fleet.finish()


@scenario
def test_a_client_cut_off_from_the_store_pauses_before_others_take_over(
    fleet: Fleet,
) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    clients = fleet.started("a", "b", "c", "d", cabled=True)
    fleet.produce()
    fleet.until(lambda: all(c.handled for c in clients), "all get records")
    ways: tuple[State, ...] = ("cut", "silent", "one-way")
    owned = [fleet.owned(client.client_id) for client in clients]
    for client, way in zip(clients, ways, strict=False):
        client.cables["dynamodb"].set(way)
    fleet.settle("d")
    fleet.until(
        lambda: all(
            any(h.shard in before for h in clients[-1].handled) for before in owned[:3]
        ),
        "d gets records of each of the others",
    )
    for client, way, before in zip(clients, ways, owned, strict=False):
        last = max(h.began for h in client.handled)
        first = min(h.began for h in clients[-1].handled if h.shard in before)
        fleet.note(f"{way}: paused {first - last:.2f} s before another took over")
        assert first > last
        client.cables["dynamodb"].set("whole")
    fleet.settle("a", "b", "c", "d")
    fleet.finish(takeovers=1)


@scenario
def test_leaving_while_the_store_is_down_ends_and_tells_the_truth(
    fleet: Fleet,
) -> None:
    fleet.stream("orders")
    [a] = fleet.started("a")
    fleet.produce()
    fleet.pause(1)
    number = fleet.aws.fault("refuse", service="dynamodb", resource=fleet.table)
    a.leave()
    took = fleet.until(lambda: a.process.poll() is not None, "it ends")
    fleet.aws.clear_faults(number)
    fleet.start("b")
    fleet.finish(takeovers=2)

    fleet.note(f"without a store it took {took:.1f} s to leave")
    assert a.process.poll() == 1
    assert a.failure.startswith("CommitTimeoutError: the state store")


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
    # A request that a slow machine answers too late would cost a connection.
    fleet.config["lease_duration_seconds"] = 20.0
    fleet.stream("orders")
    first, _ = fleet.started("a", "b", cabled=True)
    fleet.produce()
    refuse(fleet, first, FOREVER, THREADS, DESCRIPTORS)
    fleet.pause(1)
    fleet.leave(first)

    assert first.has("left"), fleet.report()
    fleet.finish()

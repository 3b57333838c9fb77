"""Test clients and KCL workers that share the leases of one fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from kinesumer.errors import StoreUnavailableError
from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support.fleet import FAILOVER_SECONDS, Fleet
from tests.support.world import Client


def all_seen(fleet: Fleet, *clients: Client) -> Counter[str]:
    seen = Counter[str]()
    for worker in fleet.workers:
        seen.update(worker.seen)
    for client in clients:
        seen.update(client.texts)
    return seen


@pytest.fixture
def world() -> Fleet:
    return Fleet(VirtualLoop(Random(0)))


async def test_a_client_takes_its_share_and_the_fleet_stays_as_it_is(
    world: Fleet,
) -> None:
    world.worker("w1")
    world.worker("w2")
    await world.produce(60)
    assert [world.leases.count(w) for w in ("w1", "w2")] == [4, 4]
    client = world.client("c1")
    await world.produce(60)
    counts = {w: world.leases.count(w) for w in ("w1", "w2", "c1")}
    assert sorted(counts.values()) == [2, 3, 3]
    owners = world.leases.owners()
    await world.produce(120)
    assert world.leases.owners() == owners
    assert sorted(client.held) == [k for k, owner in owners.items() if owner == "c1"]


async def test_a_rolling_deploy_to_clients_and_back_loses_no_record(
    world: Fleet,
) -> None:
    workers = [world.worker(f"w{n}") for n in range(3)]
    await world.produce(90)
    clients = []
    for n, worker in enumerate(workers):
        clients.append(world.client(f"c{n}"))
        await world.produce(40)
        worker.kill()
        await world.produce(60)
    assert sorted(world.leases.count(f"c{n}") for n in range(3)) == [2, 3, 3]
    for n, client in enumerate(clients):
        world.worker(f"v{n}")
        await world.produce(40)
        await client.stop()
        await world.produce(60)
    assert sorted(world.leases.count(f"v{n}") for n in range(3)) == [2, 3, 3]
    await asyncio.sleep(10)
    seen = all_seen(world, *clients)
    assert world.produced <= seen.keys()
    repeats = sum(count - 1 for count in seen.values())
    # A killed worker, or one whose lease was stolen, had read for up to a second since
    # its checkpoint, five records a second.
    assert repeats <= 5 * (8 * 3 + 8 * 3)


async def test_the_leases_of_a_killed_client_go_to_clients_and_workers(
    world: Fleet,
) -> None:
    world.worker("w1")
    await world.produce(40)
    clients = [world.client("c1"), world.client("c2")]
    await world.produce(90)
    clients[0].kill()
    await world.produce(90)
    assert world.leases.count("c1") == 0
    await asyncio.sleep(5)
    assert world.produced <= all_seen(world, *clients).keys()


async def test_without_other_clients_workers_take_the_leases_of_a_killed_client(
    world: Fleet,
) -> None:
    client = world.client("c1")
    await world.produce(40)
    assert world.leases.count("c1") == 8
    client.kill()
    await world.produce(5)
    world.worker("w1")
    await world.produce(60)
    assert world.leases.count("w1") == 8
    await asyncio.sleep(5)
    assert world.produced <= all_seen(world, client).keys()


async def test_a_client_that_stands_still_delivers_nothing_that_a_worker_has_taken(
    world: Fleet,
) -> None:
    client = world.client("c1")
    await world.produce(20)
    world.worker("w1")
    await world.produce(25)
    world.loop.spawn(world.loop.services, world.produce(100))
    assert world.leases.count("c1") >= 4
    client.machine.freeze(60.0)
    await asyncio.sleep(59.0)
    assert world.leases.count("w1") == 8
    taken_from, before = world.workers[0], len(client.seen)
    read = {*taken_from.seen}
    await asyncio.sleep(45.0)
    # What it had fetched before, it may not deliver after its leases have run out.
    assert not read.intersection(client.texts[before:])
    assert world.leases.count("c1") > 0  # it has taken its share again
    await asyncio.sleep(5)
    assert world.produced <= all_seen(world, client).keys()


async def test_a_client_that_cannot_renew_stops_delivering_and_goes_on_later(
    world: Fleet,
) -> None:
    client = world.client("c1")
    await world.produce(20)
    outage: list[Exception] = [StoreUnavailableError("down") for _ in range(10_000)]
    world.leases.errors = outage
    world.loop.spawn(world.loop.services, world.produce(60))
    await asyncio.sleep(0.8 * FAILOVER_SECONDS)
    before = len(client.seen)
    await asyncio.sleep(20)
    assert len(client.seen) == before
    world.leases.errors = []
    await asyncio.sleep(40)
    assert {*client.texts} == world.produced
    assert len(client.seen) == world.put_count


async def test_shards_are_split_and_merged_while_both_kinds_of_workers_read(
    world: Fleet,
) -> None:
    world.worker("w1")
    await world.produce(40)
    client = world.client("c1")
    await world.produce(60)
    for _ in range(3):
        shards = world.open_shards()
        for owner in ("w1", "c1"):
            owned = [k for k, o in world.leases.owners().items() if o == owner]
            world.kinesis.split("orders", next(s for s in shards if s in owned))
        await world.produce(60)
        first, second = world.open_shards()[:2]
        world.kinesis.merge("orders", first, second)
        await world.produce(60)
    await asyncio.sleep(20)
    assert world.produced <= all_seen(world, client).keys()
    # Within a shard, and from a parent to its children, records keep their order.
    texts = [text for text in client.texts if int(text[1:]) % 8 == 0]
    assert texts == sorted(texts, key=lambda text: int(text[1:]))

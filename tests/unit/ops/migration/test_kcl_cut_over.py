"""Test that an app leaves a KCL fleet's lease table while it consumes, and returns."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.rows import Row
from kinesumer.ops.migration.kcl_cut_over import CutOver, find_lease_table
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire import rows
from kinesumer.wire.kcl_leases import COUNTER
from kinesumer.wire.kcl_shards import parents_of
from tests.support.fleet import TABLE, Fleet, MemoryLeaseTable, lease_row, number
from tests.support.world import APP, ARN, Client


@pytest.fixture
def world() -> Fleet:
    return Fleet(VirtualLoop(Random(0)))


def cut_over(fleet: Fleet, watch_seconds: float = 5.0) -> CutOver:
    context = fleet.context("operator")
    return CutOver(context, fleet.leases, TABLE, watch_seconds)


def group_row(fleet: Fleet) -> Row:
    found = [row for row in fleet.table.rows(f"group#{APP}") if row["sk"] == "group"]
    return found[0]


def is_moved(fleet: Fleet) -> list[bool]:
    return ["kinesumer_moved" in row for row in fleet.leases.rows.values()]


async def longest_pause(client: Client, seconds: float) -> float:
    """Return the longest time in which a client got no record, of some time."""
    last, longest, clock = len(client.seen), 0.0, client.world.clock
    since, end = clock.now(), clock.now() + seconds
    while clock.now() < end:
        await asyncio.sleep(0.05)
        if len(client.seen) > last:
            last, since = len(client.seen), clock.now()
        longest = max(longest, clock.now() - since)
    return longest


async def test_shards_move_to_the_own_table_without_a_stop_and_back(
    world: Fleet,
) -> None:
    one, two = world.client("c1"), world.client("c2")
    await world.produce(40)
    world.loop.spawn(world.loop.services, world.produce(120))
    context = world.context("operator")
    assert await find_lease_table(context, is_back=False) == TABLE
    pause = asyncio.create_task(longest_pause(one, 40))
    assert await cut_over(world).move() == 8
    assert await pause < 1.0
    assert all(is_moved(world))
    assert group_row(world)["version"] == 1
    # Clients without kcl_table join those with it, and replace them.
    world.joins = False
    three = world.client("c3")
    await asyncio.sleep(20)
    await one.stop()
    await two.stop()
    await asyncio.sleep(80)
    assert len(three.held) == 8
    await three.stop()
    seen = Counter(one.texts + two.texts + three.texts)
    assert seen.keys() == world.produced
    assert seen.total() == world.put_count
    # And back.
    assert await find_lease_table(context, is_back=True) == TABLE
    assert await cut_over(world).move_back() == 8
    assert not any(is_moved(world))
    assert group_row(world)["version"] == 2
    worker = world.worker("w1")
    await world.produce(30)
    await asyncio.sleep(5)
    assert Counter(worker.seen).keys() == world.produced - seen.keys()


async def test_reshards_during_and_after_the_move_lose_nothing(world: Fleet) -> None:
    client = world.client("c1")
    await world.produce(20)
    moving = asyncio.create_task(cut_over(world, 0.0).move())
    world.kinesis.split("orders", world.open_shards()[0])
    await world.produce(10)
    await moving
    world.kinesis.merge("orders", *world.open_shards()[:2])
    await world.produce(60)
    await asyncio.sleep(5)
    assert Counter(client.texts) == Counter(dict.fromkeys(world.produced, 1))
    await client.stop()
    assert await cut_over(world).move_back() > 8  # children have leases, too
    world.joins = True
    again = world.client("c2")
    await world.produce(30)
    await asyncio.sleep(5)
    assert Counter(client.texts + again.texts).keys() == world.produced


async def test_a_lease_is_created_after_those_of_its_parents(world: Fleet) -> None:
    client = world.client("c1")
    await world.produce(20)
    await cut_over(world, 0.0).move()
    for _ in range(2):
        world.kinesis.split("orders", world.open_shards()[0])
        await world.produce(10)
        await asyncio.sleep(5)
    await client.stop()
    known = {*world.leases.rows}
    assert len(known) == 8  # the new shards are in the own table
    assert await cut_over(world, 0.0).move_back() == 12
    for key, row in world.leases.rows.items():  # as they were created
        assert key in known or known.issuperset(parents_of(row))
        known.add(key)
    assert len(known) == 12


class InterruptedTable(MemoryLeaseTable):
    """A lease table whose writes end after some time."""

    left = 3

    async def write(self, write: Write) -> WriteResult:
        if not self.left:
            raise KinesumerError("interrupted")
        self.left -= 1
        return await super().write(write)


@pytest.mark.parametrize("back", [False, True])
async def test_an_interrupted_move_is_finished_by_another_one(
    world: Fleet, *, back: bool
) -> None:
    client = world.client("c1")
    await world.produce(20)
    await client.stop()
    if back:
        await cut_over(world).move()
    table = InterruptedTable()
    table.rows = world.leases.rows
    first = CutOver(world.context("operator"), table, TABLE, 0.0)
    with pytest.raises(KinesumerError, match="interrupted"):
        await (first.move_back() if back else first.move())
    assert is_moved(world).count(not back) == 3
    again = cut_over(world, 0.0)
    assert await (again.move_back() if back else again.move()) == 5
    assert is_moved(world).count(not back) == 8
    world.joins = back
    other = world.client("c2")
    await world.produce(20)
    await asyncio.sleep(5)
    assert Counter(client.texts + other.texts).keys() == world.produced


async def test_a_living_kcl_worker_prevents_it_and_a_dead_one_does_not(
    world: Fleet,
) -> None:
    worker = world.worker("w1")
    client = world.client("c1")
    await world.produce(40)
    with pytest.raises(GroupBusyError, match=r"workers of table .* are alive: w1"):
        await cut_over(world).move()
    assert not any(is_moved(world))
    worker.kill()
    await cut_over(world).move()
    await world.produce(30)
    assert len(client.held) == 8


async def test_a_move_back_needs_that_no_client_runs(world: Fleet) -> None:
    client = world.client("c1")
    await world.produce(20)
    await cut_over(world).move()
    with pytest.raises(GroupBusyError, match="c1"):
        await cut_over(world).move_back()
    assert all(is_moved(world))
    assert len(client.held) == 8


async def test_a_lease_without_hash_keys_is_not_moved_unless_it_has_ended(
    world: Fleet,
) -> None:
    client = world.client("c1")
    await world.produce(20)
    old = world.leases.rows["old"] = lease_row("old", checkpoint="SHARD_END")
    del old["startingHashKey"]
    await cut_over(world).move()
    assert all(is_moved(world))
    world.leases.rows["older"] = old | {"leaseKey": "older", "checkpoint": "49"}
    with pytest.raises(KinesumerError, match="lease older has no hash keys"):
        await cut_over(world, 0.0).move()
    assert client.held


@pytest.mark.parametrize("back", [False, True])
async def test_an_app_that_is_not_there_cannot_leave(
    world: Fleet, *, back: bool
) -> None:
    with pytest.raises(ConfigurationError, match="the lease table of a KCL fleet"):
        await find_lease_table(world.context("operator"), is_back=back)


async def test_the_counter_grows_so_that_no_former_owner_can_write(
    world: Fleet,
) -> None:
    world.client("c1")
    await world.produce(20)
    before = {key: number(row[COUNTER]) for key, row in world.leases.rows.items()}
    await cut_over(world, 0.0).move()
    for key, row in world.leases.rows.items():
        assert number(row[COUNTER]) > before[key]
        assert "leaseOwner" not in row
    assert len(world.table.rows(rows.shard_partition(APP, ARN))) == 8

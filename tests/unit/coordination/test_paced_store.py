"""Test that writes are limited, slow down at throttling, and wait for heartbeats."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.coordination.paced_store import PARALLEL_WRITES, PacedStore
from kinesumer.errors import StoreThrottledError
from kinesumer.model.rows import Key
from kinesumer.ports import AllOf, Write, WriteResult
from tests.support.faulty import FaultyStore
from tests.support.world import World


class Slow(FaultyStore):
    """A store that counts its concurrent writes, and keeps the largest count."""

    under_way = most = 0

    async def write(self, write: Write) -> WriteResult:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().write(write)
        finally:
            self.under_way -= 1


def write_of(number: int) -> Write:
    return Write(Key("p", str(number)), AllOf(), {"n": number})


async def test_some_writes_are_under_way_at_a_time(world: World) -> None:
    store = Slow(world.table)
    store.latency = 1.0
    paced = PacedStore(store, world.clock, Random(1))
    count = 2 * PARALLEL_WRITES
    await asyncio.gather(*(paced.write(write_of(n)) for n in range(count)))
    assert store.most == PARALLEL_WRITES
    assert [write.set["n"] for write in store.sent] == [*range(count)]


async def test_a_throttled_write_raises_and_slows_the_others(world: World) -> None:
    store = FaultyStore(world.table)
    paced = PacedStore(store, world.clock, Random(1))
    before = paced.rate.per_second
    store.spoil("throttled", "n")
    with pytest.raises(StoreThrottledError):
        await paced.write(write_of(1))
    assert paced.rate.per_second < before
    await paced.write(write_of(2))
    assert [row["n"] for row in world.table.rows("p")] == [2]


async def test_writes_wait_while_the_heartbeat_is_throttled(world: World) -> None:
    throttled = [True]
    store = FaultyStore(world.table)
    paced = PacedStore(store, world.clock, Random(1), lambda: throttled[-1])
    tasks = [
        asyncio.ensure_future(paced.write(write_of(n)))
        for n in range(2 * PARALLEL_WRITES)
    ]
    await asyncio.sleep(3)
    assert store.sent == []
    for task in tasks[:-1]:
        task.cancel()  # cancelled writes don't block later ones
    throttled.append(False)
    await asyncio.wait_for(tasks[-1], 1)
    assert len(store.sent) == 1

"""Test that handlers of all shards take turns on the event loop and in threads."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby

import pytest

from kinesumer import Batch, Record
from kinesumer.handlers.invokers import Gate
from tests.support.handler_client import Runner
from tests.support.real_time_client import RealTimeClient
from tests.support.world import World, hold, in_virtual_time

KEYS = 2**128


def put(world: World, shard: int, *keys: str) -> None:
    """Put records with these keys into one of the three shards of the stream "many"."""
    for key in keys:
        world.kinesis.put("many", b"x", key, shard * KEYS // 3)


class Blocking:
    """A handler that blocks the event loop, and notes the shards of its records."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world, self._seconds = world, seconds
        self.shards: list[int] = []

    async def record(self, record: Record) -> None:
        self.shards.append(int(record.shard_id[-1]))
        self._world.loop.real += self._seconds

    async def batch(self, batch: Batch) -> None:
        await self.record(batch.records[0])


@pytest.mark.parametrize("concurrency", [1, 4])
@in_virtual_time
async def test_shards_take_turns_while_a_handler_blocks_the_loop(
    world: World, concurrency: int
) -> None:
    world.kinesis.create_stream("many", 3)
    for shard in range(3):
        put(world, shard, *map(str, range(20)))
    handler = Blocking(world, 1)
    runner = Runner(world, handler.record, "c1", "many", concurrency=concurrency)
    await world.until(lambda: len(handler.shards) >= 60, seconds=300)
    # The first shard begins alone, since the records of the others arrive later.
    order = handler.shards[6:54]
    assert all(len({*order[at : at + 3]}) == 3 for at in range(len(order) - 2))
    await runner.leave()


class Place:
    """What waits at the gate: an item, and its queue of the same shard."""

    def __init__(self) -> None:
        self.queue = self.work = self
        self.owned, self.is_over = hold(), False


@in_virtual_time
async def test_a_handler_that_needed_no_wait_had_a_turn_too(world: World) -> None:
    gate, passed = Gate(world.clock, lambda: None), list[str]()

    async def enter(name: str, place: Place) -> None:
        await gate(place)  # type: ignore[arg-type]
        passed.append(name)

    one, other = Place(), Place()
    await asyncio.gather(enter("one", one), enter("other", other))
    await enter("one", one)  # before the next pause
    world.loop.real += 1
    await asyncio.gather(enter("one", one), enter("other", other))
    assert passed == ["one", "other", "one", "other", "one"]


@pytest.mark.parametrize("whole", [True, False])
@in_virtual_time
async def test_a_shard_that_had_no_records_is_next(world: World, whole: bool) -> None:
    world.kinesis.create_stream("many", 3)
    for shard in range(2):
        put(world, shard, *map(str, range(300)))
    handler = Blocking(world, 0.3)
    runner = Runner(
        world,
        handler.batch if whole else handler.record,
        "c1",
        "many",
        batch=whole,
        concurrency=8,
    )
    await world.until(lambda: len(handler.shards) >= 8, seconds=300)
    put(world, 2, "new")
    before = len(handler.shards)
    await world.until(lambda: 2 in handler.shards, seconds=300)
    # It is read in the first or second pause of the loop.
    assert handler.shards.index(2) <= before + 3
    await runner.leave()


async def test_plain_functions_take_turns_if_there_are_too_few_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.handlers.runner.MAX_THREADS", 1)
    shards: list[str] = []

    def handle(record: Record) -> None:
        shards.append(record.shard_id)
        time.sleep(0.02)
        if len(shards) == 40:
            client.close()

    client = RealTimeClient(handle, shards=2)
    for number in range(20):
        client.kinesis.put("orders", b"x", str(number), 0)
        client.kinesis.put("orders", b"x", str(number), KEYS - 1)
    await client.run_all()
    runs = [len([*run]) for _, run in groupby(shards)]
    # A turn ends with the record that is handled 50 ms after its beginning. The first
    # shard may begin alone, and the last one may end alone.
    assert max(runs[1:-1]) <= 3
    assert len(runs) >= 6

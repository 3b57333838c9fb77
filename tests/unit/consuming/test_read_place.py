"""Test where reading begins and continues."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.testing.memory import MemorySource
from tests.support.delivery import read_shard
from tests.support.world import SHARD, World


async def test_it_goes_on_after_the_checkpoint(world: World) -> None:
    world.put("a")
    _, number = world.kinesis.put("orders", b"b", explicit_hash_key=0)
    world.put("c")
    desk = read_shard(world, position=Position(number))
    assert await desk.read(1) == ["c"]
    assert desk.source.iterators == [(SHARD, Position(number))]


async def test_an_expired_iterator_is_renewed_where_it_was(world: World) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    await desk.read(2)
    last = desk.records[-1].sequence_number
    desk.source.errors.append(ExpiredIteratorError("too old"))
    world.put("c", "d")
    assert await desk.read(4) == ["a", "b", "c", "d"]
    assert desk.source.iterators[1:] == [(SHARD, Position(last))]


async def test_a_start_in_the_future_is_awaited(world: World) -> None:
    moment = world.clock.wall() + 0.9
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    world.put("too early")
    await asyncio.sleep(1)
    world.put("a")
    assert await desk.read(1, seconds=5) == ["a"]
    assert desk.stream.failing is None


async def test_after_a_start_by_time_late_arrivals_are_delivered(world: World) -> None:
    moment = world.clock.wall()
    world.put("on time")
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    await desk.read(1)
    world.put("put later, arrived on a host whose clock is behind")
    log = world.kinesis.stream("orders").shards[SHARD].log
    log[-1].arrived_at = moment - 1
    assert len(await desk.read(2)) == 2


async def test_a_start_by_time_skips_pages_of_early_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = MemorySource.get_iterator_now

    def to_the_second(
        source: MemorySource, shard_id: str, after: Start, **options: float
    ) -> str:
        assert after.timestamp is not None
        early = Start(type=after.type, timestamp=after.timestamp // 1)
        return exact(source, shard_id, early, **options)

    monkeypatch.setattr(MemorySource, "get_iterator_now", to_the_second)
    await asyncio.sleep(10.2)
    world.put("early", "also early", "still early, but in the same second")
    await asyncio.sleep(0.3)
    moment = world.clock.wall()
    world.put("on time", "later")
    start = Start(type="AT_TIMESTAMP", timestamp=moment)
    desk = read_shard(world, max_records_per_read=1, start=start)
    assert await desk.read(2) == ["on time", "later"]

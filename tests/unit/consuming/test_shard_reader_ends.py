"""Test that a shard is read until its end is confirmed."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import ShardMissingError
from kinesumer.model.positions import Position
from tests.support.delivery import ReaderDesk, read_shard
from tests.support.world import SHARD, World


def children(desk: ReaderDesk) -> list[str]:
    assert desk.owned.children is not None
    return [child.shard_id for child in desk.owned.children]


def ending_number(world: World) -> str:
    shard = world.kinesis.stream("orders").shard(SHARD).shard
    assert shard.ending_sequence_number is not None
    return shard.ending_sequence_number


# --- open shards ---


async def test_answers_that_never_have_an_iterator_lose_nothing(world: World) -> None:
    desk = read_shard(world, max_records_per_read=2)
    desk.source.without_iterator = float("inf")
    texts = [str(number) for number in range(9)]
    for text in texts:
        world.put(text)
        await asyncio.sleep(1)
    assert await desk.read(9, seconds=10) == texts
    assert desk.stream.failing is None


async def test_reads_without_an_iterator_back_off(world: World) -> None:
    desk = read_shard(world)
    desk.source.without_iterator = float("inf")
    await asyncio.sleep(60)
    assert 15 <= len(desk.source.reads) <= 40


# --- closed shards ---


async def test_a_closed_shard_whose_children_are_not_named_ends_by_its_listing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    world.kinesis.split("orders", SHARD)
    desk = read_shard(world)
    desk.source.without_iterator = float("inf")
    await desk.task
    assert desk.texts == ["a"]
    assert desk.owned.children == ()
    assert desk.source.listings == 1
    assert not caplog.records


async def test_records_that_arrive_before_a_shard_closes_are_read(world: World) -> None:
    desk = read_shard(world)
    await asyncio.sleep(1)
    listed = desk.source.list_shards

    async def list_after_a_split() -> object:
        world.put("a", "b")
        world.kinesis.split("orders", SHARD)
        return await listed()

    desk.source.list_shards = list_after_a_split  # type: ignore[assignment, method-assign]
    desk.source.without_iterator = 1
    await desk.task
    assert desk.texts == ["a", "b"]


@pytest.mark.parametrize("part", [None, 0])
async def test_a_position_that_is_the_ending_number_ends_the_shard(
    world: World, part: int | None
) -> None:
    world.put("a")
    low, high = world.kinesis.split("orders", SHARD)
    desk = read_shard(world, position=Position(ending_number(world), part))
    await desk.task
    assert desk.texts == []
    assert children(desk) == [low, high]


async def test_a_refused_position_waits_for_a_listing_with_its_shard(
    world: World,
) -> None:
    world.put("a")
    low, high = world.kinesis.split("orders", SHARD)
    desk = read_shard(world, position=Position(ending_number(world)))
    desk.source.listing = desk.source.list_shards_now()[1:]
    await asyncio.sleep(10)
    assert not desk.task.done()
    desk.source.listing = None
    await desk.task
    assert children(desk) == [low, high]


async def test_a_shard_that_is_listed_is_not_missing(world: World) -> None:
    world.put("a")
    desk = read_shard(world)
    desk.source.errors.extend(ShardMissingError("no such shard") for _ in range(3))
    assert await desk.read(1, seconds=10) == ["a"]
    assert not desk.task.done()

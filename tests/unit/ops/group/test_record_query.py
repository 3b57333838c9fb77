"""Test the search for records of a shard in memory."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.ops.group import records
from kinesumer.ops.group.records import FoundRecords, RecordQuery, find_records
from kinesumer.ops.group.shard_reads import (
    MAX_READS,
    READ_INTERVAL_SECONDS,
    PacedReader,
)
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.faulty import FaultySource
from tests.support.world import World

SHARD = "shardId-000000000000"


def orders(world: World) -> FaultySource:
    return FaultySource(world.kinesis.source("orders"))


async def find(
    source: FaultySource,
    start: Position | Start | None = None,
    limit: int = 3,
    **only: object,
) -> FoundRecords:
    query = RecordQuery(start, limit, **only)  # type: ignore[arg-type]
    info = await source.describe()
    shard = next(s for s in await source.list_shards() if s.shard_id == SHARD)
    reader = PacedReader(READ_INTERVAL_SECONDS)
    return await find_records(reader, source, info, shard, query)


def data(found: FoundRecords) -> list[bytes]:
    return [record.data for record in found.records]


async def put_over_time(world: World, count: int, seconds: float) -> None:
    for number in range(count):
        world.kinesis.put("orders", b"%d" % number, f"key-{number % 2}")
        await asyncio.sleep(seconds)


async def test_the_last_records_are_found_however_long_ago_they_arrived(
    world: World,
) -> None:
    await put_over_time(world, 20, 1.0)
    source = orders(world)
    found = await find(source)
    assert data(found) == [b"17", b"18", b"19"]
    assert found.ended_by == "tip"
    assert found.since is not None, "only some of the records were searched"
    for _ in range(5):
        await put_over_time(world, 1000, 0.01)
    await asyncio.sleep(7 * 3600)
    found = await find(source, limit=50)
    assert data(found) == [b"%d" % number for number in range(950, 1000)]
    assert found.reads <= MAX_READS


async def test_a_shard_with_few_records_shows_all_of_them(world: World) -> None:
    world.kinesis.put("orders", b"only")
    found = await find(orders(world))
    assert data(found) == [b"only"]
    assert found.since is None, "everything was searched"


async def test_the_whole_retention_is_searched_if_necessary(world: World) -> None:
    source = orders(world)
    world.kinesis.put("orders", b"old")
    await asyncio.sleep(80_000)
    await put_over_time(world, 3, 0.1)
    await asyncio.sleep(5_000)
    found = await find(source, limit=4)
    assert data(found) == [b"old", b"0", b"1", b"2"]
    found = await find(source, contains=b"none")
    assert (found.records, found.scanned, found.ended_by) == ([], 4, "tip")


async def test_reads_continue_after_the_last_shown_record(world: World) -> None:
    await put_over_time(world, 7, 1.0)
    source = orders(world)
    found = await find(source, Start.TRIM_HORIZON)
    assert (data(found), found.ended_by) == ([b"0", b"1", b"2"], "limit")
    found = await find(source, found.next)
    assert data(found) == [b"3", b"4", b"5"]
    found = await find(source, found.next)
    assert (data(found), found.ended_by) == ([b"6"], "tip")
    world.kinesis.put("orders", b"later")
    assert data(await find(source, found.next)) == [b"later"]


async def test_records_are_filtered_by_key_and_by_text(world: World) -> None:
    await put_over_time(world, 12, 0.1)
    source = orders(world)
    found = await find(source, Start.TRIM_HORIZON, partition_key="key-1")
    assert data(found) == [b"1", b"3", b"5"]
    found = await find(source, contains=b"1")
    assert data(found) == [b"1", b"10", b"11"]
    assert data(await find(source, Start.TRIM_HORIZON, contains=b"x")) == []


async def test_few_and_small_reads_are_made_and_the_place_to_continue_is_returned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SHARED_PAGE_BYTES", 10_000)
    for number in range(1000):
        world.kinesis.put("orders", b"%04d" % number + b"x" * 996)
        await asyncio.sleep(0.1)
    source = orders(world)
    found = await find(source, Start.TRIM_HORIZON, contains=b"none")
    assert found.ended_by == "budget"
    assert found.reads == len(source.limits) == MAX_READS
    assert max(source.limits[1:]) <= 10
    gaps = [b - a for a, b in zip(source.reads, source.reads[1:], strict=False)]
    assert min(gaps) >= READ_INTERVAL_SECONDS - 0.001
    more = await find(source, found.next)
    assert more.records[0].data.startswith(b"%04d" % found.scanned)
    # The last records of a shard that the limits don't reach are unknown.
    monkeypatch.setattr(records, "MAX_READS", 2)
    found = await find(source, contains=b"none")
    assert (found.records, found.ended_by) == ([], "budget")


async def test_aggregates_are_opened_and_continued_in_the_middle(world: World) -> None:
    parts = [Entry(b"%d" % number, f"key-{number}") for number in range(4)]
    world.kinesis.put("orders", aggregate(parts))
    source = orders(world)
    found = await find(source, Start.TRIM_HORIZON)
    assert data(found) == [b"0", b"1", b"2"]
    assert found.records[2].partition_key == "key-2"
    assert data(await find(source, found.next)) == [b"3"]


async def test_a_closed_shard_is_read_to_its_end(world: World) -> None:
    world.kinesis.put("orders", b"a")
    world.kinesis.split("orders", SHARD)
    found = await find(orders(world), Start.TRIM_HORIZON)
    assert (data(found), found.ended_by) == ([b"a"], "end")


async def test_records_that_arrive_between_two_queries_at_latest_are_found(
    world: World,
) -> None:
    source = orders(world)
    found = await find(source, Start.LATEST)
    assert data(found) == []
    await asyncio.sleep(1.0)
    world.kinesis.put("orders", b"new")
    assert data(await find(source, found.next)) == [b"new"]

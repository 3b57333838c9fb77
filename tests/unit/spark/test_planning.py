"""How batches are planned: what it costs, how tips are found, what limits mean."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.errors import ConfigurationError, SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Start, Stream
from kinesumer.spark.offsets.model import After, StreamOffset
from kinesumer.spark.offsets.offset_json import from_json
from tests.support.spark_query import simulated

if TYPE_CHECKING:
    from kinesumer.model.records import Page
    from kinesumer.testing.memory import MemorySource
    from tests.support.spark_query import World


class Counted:
    """A source that counts calls."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._source, name)


def counted(world: World) -> Counted:
    """Let queries from now on read through a counting source."""
    source = Counted(world.kinesis.source("orders"))

    async def open_source(stream: Stream) -> Counted:
        return source

    world.open = open_source  # type: ignore[method-assign]
    return source


@simulated
async def test_a_trigger_over_many_shards_costs_one_call_each(world: World) -> None:
    world.kinesis.create_stream("orders", 1_000)
    source = counted(world)
    query = world.query(starting=Start.TRIM_HORIZON)
    for i in range(1_000):
        world.kinesis.put("orders", b"x", explicit_hash_key=i * HASH_KEYS // 1_000)
    assert len(await query.trigger() or ()) == 1_000
    await query.drain()
    source.calls.clear()
    await asyncio.sleep(1)
    assert await query.trigger() is None
    assert source.calls == {"get_records": 1_000}
    source.calls.clear()
    world.put(200)
    await asyncio.sleep(1)
    assert len(await query.trigger() or ()) == 200
    assert source.calls == {"get_records": 1_000}


@simulated
async def test_an_old_tip_of_any_age_takes_two_batches_at_most(world: World) -> None:
    for hours in (0.1, 3, 20):
        name = f"orders-{hours}"
        world.kinesis.create_stream(name)
        query = world.query(streams=(Stream(name),), starting=Start.TRIM_HORIZON)
        for _ in range(2_000):
            world.put(name=name)
            await asyncio.sleep(0.1)
        await asyncio.sleep(hours * 3600)
        await query.trigger()
        await query.trigger()
        assert len(query.rows) == 2_000


@simulated
async def test_nobody_reads_a_shard_more_than_four_times_a_second(world: World) -> None:
    world.kinesis.create_stream("orders")
    await world.stream_in(3_000, seconds=600)
    await asyncio.sleep(7_200)
    query = world.query(starting=Start.TRIM_HORIZON)
    world.kinesis.reads_per_second = 4
    await query.drain()
    await world.stream_in(300, seconds=3)
    await query.drain()
    assert world.kinesis.throttled == 0
    assert len(query.rows) == 3_300


@simulated
async def test_a_slow_trickle_is_read_to_its_tip_by_every_trigger(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    query = world.query(starting=Start.LATEST)
    await query.trigger()
    for number in range(10):
        await world.stream_in(20, seconds=1, key="one")
        await query.trigger()
        assert len(query.rows) == 20 * (number + 1)


@simulated
async def test_a_limit_gives_the_oldest_records_of_all_shards(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    arrival = {}
    for i in range(900):
        # Nine tenths go to one shard: the others mustn't run ahead of it in time.
        [row] = world.put(key=f"key-{i}" if i % 10 == 0 else "one")
        arrival[row] = i
        await asyncio.sleep(0.05)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=90)
    await query.drain()
    assert sorted(map(len, query.batches))[-1] <= 90
    assert len(query.batches) <= 14
    times = [
        (min(map(arrival.__getitem__, rows)), max(map(arrival.__getitem__, rows)))
        for rows in query.batches
    ]
    assert all(before[1] < after[0] for before, after in pairwise(times))


@simulated
async def test_a_large_limit_is_met_about(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    for _ in range(600):
        world.put(50)
        await asyncio.sleep(1)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=6_000)
    await query.drain()
    assert len(query.rows) == 30_000
    sizes = [len(rows) for rows in query.batches]
    assert all(3_000 < size < 9_000 for size in sizes[:-1])


@simulated
async def test_available_now_ends_where_it_began_though_shards_part(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    wanted = await world.stream_in(500, seconds=50)
    [first, second] = world.kinesis.split("orders", "shardId-000000000000")
    wanted += world.put(100)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=100)
    await query.driver.fix_targets()
    world.kinesis.merge("orders", first, second)
    late = world.put(100)
    await query.drain()
    assert sorted(query.rows) == sorted(wanted)
    await query.available_now()
    assert sorted(query.rows) == sorted(wanted + late)


@simulated
async def test_the_only_batch_of_a_query_holds_all_that_is_there(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    await world.stream_in(2_000, seconds=200)
    await asyncio.sleep(3600)
    query = world.query(starting=Start.TRIM_HORIZON)
    end = await query.driver.all_there_is({})
    assert end is not None
    assert len(query.read(await query.driver.partitions({}, end))) == 2_000


@simulated
async def test_latest_begins_where_the_query_was_first_planned(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    world.put(20)
    await asyncio.sleep(2)
    query = world.query(starting=Start.LATEST)
    assert await query.trigger() == []
    query.restart()
    wanted = world.put(20)
    await query.drain()
    assert sorted(query.rows) == sorted(wanted)


@simulated
async def test_positions_given_are_where_reading_goes_on(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    rows = await world.stream_in(100, seconds=100)
    await asyncio.sleep(1)
    by_shard = [row for row in rows if row[0] == "shardId-000000000001"]
    given = {
        "orders": StreamOffset(
            0.0, {"shardId-000000000001": After(Position(by_shard[9][1]), 0.0)}
        )
    }
    query = world.query(starting_positions=given)
    await query.drain()
    others = [row for row in rows if row[0] == "shardId-000000000000"]
    assert sorted(query.rows) == sorted(others + by_shard[10:])
    unknown = {"orders": StreamOffset(0.0, {"shardId-9": Start.TRIM_HORIZON})}
    with pytest.raises(ConfigurationError, match="no shard shardId-9"):
        await world.query(starting_positions=unknown).trigger()


@simulated
async def test_positions_of_a_stream_that_is_not_read_are_refused(world: World) -> None:
    world.kinesis.create_stream("orders")
    world.put(5)
    shard = {"shardId-000000000000": Start.TRIM_HORIZON}
    arn = "arn:aws:kinesis:us-east-1:999999999999:stream/orders"
    for name in ("oders", arn):
        query = world.query(starting_positions={name: StreamOffset(0.0, shard)})
        with pytest.raises(ConfigurationError, match=f"startingPosition names {name}"):
            await query.trigger()


@simulated
async def test_a_backlog_is_shared_out_by_what_it_holds(world: World) -> None:
    world.kinesis.create_stream("orders", 16)
    world.kinesis.reads_per_second = 0
    for _ in range(20):
        for shard in world.kinesis.stream("orders").open:
            world.kinesis.put("orders", b"x" * 50_000, "", shard.shard.first_hash)
        await asyncio.sleep(0.05)
    await asyncio.sleep(3600)
    query = world.query(starting=Start.TRIM_HORIZON, max_partitions=64)
    assert len(await query.driver.bounded()) in (4, 5)  # 16 MB, 4 MB a task
    end = await query.driver.all_there_is({})
    assert end is not None
    assert len(await query.driver.partitions({}, end)) in (4, 5)


@simulated
async def test_an_end_that_names_nothing_of_the_streams_is_refused(
    world: World,
) -> None:
    info = world.kinesis.create_stream("orders")
    world.put(5)
    end = After(Position("7"), 0.0)
    for name, created, shard, said in (
        ("oders", 0.0, "shardId-000000000000", "endingPosition names oders"),
        ("orders", 0.0, "shardId-9", "has no shard shardId-9"),
        ("orders", info.created_at - 1, "shardId-000000000000", "was recreated"),
    ):
        ending = {name: StreamOffset(created, {shard: end})}
        query = world.query(starting=Start.TRIM_HORIZON, ending=ending)
        with pytest.raises(ConfigurationError, match=said):
            await query.driver.bounded()


@simulated
async def test_streams_begin_on_their_own_and_may_join_later(world: World) -> None:
    world.kinesis.create_stream("orders")
    world.kinesis.create_stream("payments")
    both = world.put(5) + world.put(7, name="payments")
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert len(query.rows) == 5
    query.options = world.query(
        streams=(
            Stream("orders"),
            Stream("payments", start=Start.TRIM_HORIZON),
        )
    ).options
    query.restart()
    await query.drain()
    assert sorted(query.rows) == sorted(both)


@simulated
async def test_a_refused_shard_waits_but_never_stops_available_now(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    rows = world.put(40)
    source = Refusing(world.kinesis.source("orders"))

    async def open_source(stream: Stream) -> Refusing:
        return source

    world.open = open_source  # type: ignore[method-assign]
    query = world.query(starting=Start.TRIM_HORIZON)
    source.refused = "shardId-000000000001"
    await query.drain()
    others = [row for row in rows if row[0] != source.refused]
    assert sorted(query.rows) == sorted(others)
    asyncio.get_running_loop().call_later(20, setattr, source, "refused", None)
    await query.available_now()
    assert sorted(query.rows) == sorted(rows)
    source.refused = "shardId-000000000001"
    with pytest.raises(SourceUnavailableError):
        for _ in range(200):
            await asyncio.sleep(1)
            await query.plan()


class Refusing:
    """A source that doesn't answer for one shard."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.refused: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def get_records(self, iterator: str, limit: int) -> Page:
        if self.refused is not None and self.refused in iterator:
            raise SourceUnavailableError("no answer")
        return await self._source.get_records(iterator, limit)


@simulated
async def test_progress_shows_the_worst_shard_of_each_stream(world: World) -> None:
    arn = world.kinesis.create_stream("orders", 2).arn
    for i in range(60):
        world.kinesis.put("orders", b"x", explicit_hash_key=(i % 2) * (HASH_KEYS - 1))
        await asyncio.sleep(1)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=20)
    await query.trigger()
    shown = query.driver.report()
    assert shown["data_losses"] == 0
    assert shown["streams"][arn]["shards"] == 2
    assert 40_000 <= shown["streams"][arn]["behind_ms"] <= 42_000
    assert shown["streams"][arn]["worst_shard"].startswith("shardId-")
    await query.drain()
    assert query.driver.report()["streams"][arn] == {"behind_ms": 0, "shards": 2}
    json.dumps(shown)


@simulated
async def test_read_shards_are_forgotten_once_kinesis_has_dropped_them(
    world: World,
) -> None:
    arn = world.kinesis.create_stream("orders", retention_hours=24).arn
    query = world.query(starting=Start.TRIM_HORIZON)
    world.put(3)
    world.kinesis.split("orders", "shardId-000000000000")
    world.put(3)
    await query.drain()
    for _ in range(60):
        await asyncio.sleep(3600)
        world.kinesis.apply_retention()
        world.put()
        await query.drain()
    known = from_json(json.loads(query.ends[-1]))[arn].shards
    assert sorted(known) == ["shardId-000000000001", "shardId-000000000002"]
    assert len(query.rows) == 66

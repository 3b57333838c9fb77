"""Test planning batches within limits, and finding tips with few calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS, Start, Stream
from kinesumer.wire.query_offsets import from_json
from tests.support.spark_query import World, simulated


@simulated(400)
async def test_a_trigger_over_many_shards_costs_one_call_each(world: World) -> None:
    source = world.source()
    query = world.query(starting=Start.TRIM_HORIZON)
    for i in range(400):
        world.kinesis.put("orders", b"x", explicit_hash_key=i * HASH_KEYS // 400)
    assert len(await query.trigger() or ()) == 400
    await query.drain()
    source.iterators.clear()
    for rows in (0, 200):
        source.reads.clear()
        world.put(rows)
        await asyncio.sleep(1)
        assert len(await query.trigger() or ()) == rows
        assert (len(source.reads), len(source.iterators)) == (400, 0)


@simulated(8)
async def test_each_trigger_reads_a_slow_shard_to_its_tip(world: World) -> None:
    query = world.query(starting=Start.LATEST)
    await query.trigger()
    for number in range(10):
        await world.stream_in(20, seconds=1, key="one")
        await query.trigger()
        assert len(query.rows) == 20 * (number + 1)


@simulated(1)
async def test_streams_begin_on_their_own_and_may_join_later(world: World) -> None:
    world.kinesis.create_stream("payments")
    both = world.put(5) + world.put(7, name="payments")
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert len(query.rows) == 5
    payments = Stream("payments", start=Start.TRIM_HORIZON)
    query.options = world.query(streams=(Stream("orders"), payments)).options
    query.restart()
    await query.drain()
    assert sorted(query.rows) == sorted(both)


@simulated(2)
async def test_a_refused_shard_waits_but_does_not_end_a_query(world: World) -> None:
    rows = world.put(40)
    refused = world.source().refused
    query = world.query(starting=Start.TRIM_HORIZON)
    refused.add("shardId-000000000001")
    await query.drain()
    others = [row for row in rows if row[0] not in refused]
    assert sorted(query.rows) == sorted(others)
    asyncio.get_running_loop().call_later(20, refused.clear)
    await query.available_now()
    assert sorted(query.rows) == sorted(rows)
    refused.add("shardId-000000000001")
    with pytest.raises(SourceUnavailableError):
        for _ in range(200):
            await asyncio.sleep(1)
            await query.plan()


@simulated(2)
async def test_a_query_waits_for_credentials_as_long_as_there_are_none(
    world: World,
) -> None:
    rows = world.put(40)
    source = world.source()
    query = world.query(starting=Start.TRIM_HORIZON)
    source.lacks_credentials = True
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(3600, setattr, source, "lacks_credentials", False)
    await query.available_now()
    assert loop.time() - began > 3600
    assert sorted(query.rows) == sorted(rows)


@simulated()
async def test_progress_shows_the_worst_shard_of_each_stream(world: World) -> None:
    arn = world.kinesis.create_stream("orders", 2).arn
    for i in range(60):
        world.kinesis.put("orders", b"x", explicit_hash_key=(i % 2) * (HASH_KEYS - 1))
        await asyncio.sleep(1)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=20)
    await query.trigger()
    shown = json.loads(json.dumps(query.driver.report()))
    assert shown["data_losses"] == 0
    assert shown["streams"][arn]["shards"] == 2
    assert 40_000 <= shown["streams"][arn]["behind_ms"] <= 42_000
    assert shown["streams"][arn]["worst_shard"].startswith("shardId-")
    await query.drain()
    assert query.driver.report()["streams"][arn] == {"behind_ms": 0, "shards": 2}


@simulated()
async def test_read_shards_that_kinesis_dropped_are_forgotten(world: World) -> None:
    arn = world.kinesis.create_stream("orders", retention_hours=24).arn
    query = world.query(starting=Start.TRIM_HORIZON)
    world.put(3)
    world.kinesis.split("orders", "shardId-000000000000")
    world.put(3)
    await query.drain()
    for _ in range(60):
        await world.pass_time(3600)
        world.put()
        await query.drain()
    known = from_json(json.loads(query.ends[-1]))[arn].shards
    assert sorted(known) == ["shardId-000000000001", "shardId-000000000002"]
    assert len(query.rows) == 66


# --- sizes of tasks ------------------------------------------------------------------


@simulated(16)
async def test_a_backlog_is_distributed_by_its_size(world: World) -> None:
    world.kinesis.reads_per_second = 0
    for _ in range(20):
        for shard in world.kinesis.stream("orders").open:
            world.kinesis.put("orders", b"x" * 50_000, "", shard.shard.first_hash)
        await asyncio.sleep(0.05)
    await asyncio.sleep(3600)
    query = world.query(starting=Start.TRIM_HORIZON, max_partitions=64)
    assert len(await query.driver.bounded()) in (4, 5)  # 16 MB, with 4 MB per task
    end = await query.driver.all_there_is({})
    assert end is not None
    assert len(await query.driver.partitions({}, end)) in (4, 5)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    ("count", "size", "tasks"), [(1, 1_000, 1), (20, 1_000, 1), (200, 10_000, 4)]
)
@simulated(8)
async def test_a_burst_is_distributed_by_its_size(
    world: World, count: int, size: int, tasks: int, bounded: bool
) -> None:
    query = world.query(starting=Start.TRIM_HORIZON, max_partitions=64)
    await query.plan()
    for shard in world.kinesis.stream("orders").open:
        for _ in range(count):
            world.kinesis.put("orders", b"x" * size, "", shard.shard.first_hash)
    await asyncio.sleep(5)
    if bounded:
        await query.driver.fix_targets()
    assert await query.plan()
    planned = await query.tasks(len(query.ends) - 1)
    assert len(planned) == tasks
    assert len(await query.run_batch()) == 8 * count
    sizes = [part.estimated_bytes for task in planned for part in task.ranges]
    assert sum(sizes) == 8 * count * size

"""Test a query's answers that look like a shard's end, and positions past the end."""

from __future__ import annotations

import asyncio
import json

import pytest

from kinesumer.consuming.read_place import FRESH_SECONDS
from kinesumer.errors import DataLossError
from kinesumer.model.positions import After, End, Position, StreamOffset
from kinesumer.model.streams import Start
from kinesumer.wire.query_offsets import from_json, to_json
from tests.support.spark_query import Query, Row, World, simulated

ONE = "shardId-000000000000"


@simulated(1)
async def test_a_query_that_starts_at_the_ending_number_reads_the_children(
    world: World,
) -> None:
    world.put(10)
    await asyncio.sleep(1)
    world.kinesis.split("orders", ONE)
    rows = world.put(10)
    number = world.kinesis.stream("orders").shard(ONE).shard.ending_sequence_number
    position = After(Position(number or ""), 0.0)
    query = world.query(
        starting_positions={"orders": StreamOffset(0.0, {ONE: position})}
    )
    await query.drain()
    assert sorted(query.rows) == sorted(rows)


async def wrongly_ended(world: World, **options: bool) -> tuple[Query, list[Row]]:
    """Return a query whose checkpoint says that its open shard has ended."""
    rows = world.put(10)
    await asyncio.sleep(100)
    query = world.query(starting=Start.TRIM_HORIZON, **options)
    await query.drain()
    [(arn, offset)] = from_json(json.loads(query.ends[-1])).items()
    last = offset.shards[ONE]
    assert isinstance(last, After)
    ended = StreamOffset(
        offset.created_at, {ONE: End(last.seen)}, offset.anchored_at, {}
    )
    query.ends[-1] = json.dumps(to_json({arn: ended}))
    query.restart()
    return query, rows


@simulated(1)
async def test_an_end_of_an_open_shard_fails_a_query(world: World) -> None:
    query, _ = await wrongly_ended(world)
    world.put(5)
    assert not await query.plan()  # the first listing may be older than the end
    await asyncio.sleep(FRESH_SECONDS + 1)
    with pytest.raises(DataLossError, match="earlier version of kinesumer took an"):
        await query.plan()


@simulated(1)
async def test_an_open_shard_goes_on_after_its_wrong_end_if_losses_are_allowed(
    world: World,
) -> None:
    query, rows = await wrongly_ended(world, fail_on_data_loss=False)
    later = world.put(5)
    await query.drain()
    await asyncio.sleep(FRESH_SECONDS + 1)
    await query.drain()
    assert set(query.rows) == {*rows, *later}
    assert query.rows[-5:] == later
    query.restart()
    more = world.put(5)
    await query.drain()
    assert query.rows[-5:] == more


@simulated(1)
async def test_an_end_of_a_closed_shard_stays(world: World) -> None:
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    world.kinesis.split("orders", ONE)
    rows = world.put(10)
    for _ in range(4):
        await query.drain()
        await asyncio.sleep(FRESH_SECONDS + 1)
    assert sorted(query.rows)[-10:] == sorted(rows)

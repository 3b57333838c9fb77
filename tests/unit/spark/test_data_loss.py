"""What retention or a deletion took before it was read: loud, or counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Start
from tests.support.spark_query import simulated

if TYPE_CHECKING:
    from tests.support.spark_query import Query, World

DAY = 86_400.0


async def after_a_pause(world: World, seconds: float, *, fail: bool = True) -> Query:
    """Read ten records, put ten more, and come back later."""
    world.kinesis.create_stream("orders")
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON, fail_on_data_loss=fail)
    await query.drain()
    world.put(10)
    await asyncio.sleep(seconds)
    world.kinesis.apply_retention()
    query.restart()
    return query


@simulated
async def test_records_that_expired_unread_are_an_error(world: World) -> None:
    query = await after_a_pause(world, 2 * DAY)
    with pytest.raises(DataLossError, match=r"orders.*shardId.*failOnDataLoss=false"):
        await query.trigger()


@simulated
async def test_allowed_losses_are_counted_and_what_is_left_is_read(
    world: World,
) -> None:
    query = await after_a_pause(world, 2 * DAY, fail=False)
    left = world.put(5)
    await query.drain()
    assert query.rows[10:] == left
    assert query.driver.report()["data_losses"] == 1
    await asyncio.sleep(1)
    await query.drain()
    assert query.driver.report()["data_losses"] == 1


@simulated
async def test_a_pause_within_the_retention_loses_nothing(world: World) -> None:
    query = await after_a_pause(world, DAY - 60)
    await query.drain()
    assert len(query.rows) == 20


@simulated
async def test_a_running_query_tells_silence_from_loss(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    query = world.query(starting=Start.LATEST)
    await query.trigger()
    for _ in range(24 * 5):
        await asyncio.sleep(3600)
        world.kinesis.apply_retention()
        await query.drain()
    # Idle for five days: an empty batch for each 24th of the retention, no more.
    assert len(query.batches) <= 24 * 5 + 2
    rows = world.put(10)
    query.restart()
    await query.drain()
    assert sorted(query.rows) == sorted(rows)


@simulated
async def test_an_old_position_is_whole_if_its_record_is_still_there(
    world: World,
) -> None:
    query = await after_a_pause(world, 0)
    await query.drain()
    world.kinesis.stream("orders").retention_hours = 48
    await asyncio.sleep(1.5 * DAY)
    query.restart()
    world.kinesis.stream("orders").retention_hours = 24  # not applied yet
    rows = world.put(3)
    await query.drain()
    assert query.rows[-3:] == rows


@simulated
async def test_a_shard_that_expired_unread_is_an_error(world: World) -> None:
    query = await after_a_pause(world, 0)
    world.kinesis.split("orders", "shardId-000000000000")
    await asyncio.sleep(2 * DAY)
    world.kinesis.apply_retention()
    query.restart()
    with pytest.raises(DataLossError, match="no longer knows"):
        await query.trigger()
    allowed = world.query(starting=Start.TRIM_HORIZON, fail_on_data_loss=False)
    allowed.ends, allowed.batches = query.ends, query.batches
    left = world.put(5)
    await allowed.drain()
    assert sorted(allowed.rows[10:]) == sorted(left)
    assert allowed.driver.report()["data_losses"] >= 1


@simulated
async def test_a_child_that_lost_records_while_the_query_was_down_is_an_error(
    world: World,
) -> None:
    world.kinesis.create_stream("orders")
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    world.kinesis.split("orders", "shardId-000000000000")
    await query.trigger()  # the parent's end; its children aren't named yet
    world.put(10)
    await asyncio.sleep(2 * DAY)
    world.kinesis.apply_retention()
    query.restart()
    with pytest.raises(DataLossError):
        await query.drain()


@simulated
async def test_a_stream_made_anew_is_an_error_or_read_from_its_beginning(
    world: World,
) -> None:
    query = await after_a_pause(world, 0)
    await query.drain()
    await query.plan()
    world.kinesis.delete_stream("orders")
    await asyncio.sleep(5)
    world.kinesis.create_stream("orders", 2)
    rows = world.put(10)
    query.restart()
    with pytest.raises(DataLossError, match="recreated"):
        await query.trigger()
    allowed = world.query(starting=Start.LATEST, fail_on_data_loss=False)
    allowed.ends, allowed.batches = query.ends, query.batches
    await allowed.drain()
    assert sorted(allowed.rows[20:]) == sorted(rows)
    assert allowed.driver.report()["data_losses"] == 1


@simulated
async def test_a_batch_planned_before_a_pause_is_checked_when_computed_again(
    world: World,
) -> None:
    world.kinesis.create_stream("orders")
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    world.put(10)
    await query.plan()
    await asyncio.sleep(2 * DAY)
    world.kinesis.apply_retention()
    query.restart()
    with pytest.raises(DataLossError):
        await query.run_batch()

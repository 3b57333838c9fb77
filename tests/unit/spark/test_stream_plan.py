"""Test that records that expired or were deleted unread are errors, or are counted.

An old position, a quiet shard or a wrong clock doesn't count as a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Start, Stream
from tests.support.spark_query import Query, World, simulated

HOUR = 3600.0
DAY = 24 * HOUR
PARENT = "shardId-000000000000"


async def read_ten(world: World) -> Query:
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    return query


async def restart_later(world: World, query: Query) -> None:
    """Put ten records, and restart the query two days later."""
    world.put(10)
    await world.pass_time(2 * DAY)
    query.restart()


def with_losses(world: World, query: Query) -> Query:
    allowed = world.query(starting=Start.TRIM_HORIZON, fail_on_data_loss=False)
    allowed.ends, allowed.batches = query.ends, query.batches
    return allowed


@simulated(1)
async def test_expired_unread_records_are_an_error_or_counted_once(
    world: World,
) -> None:
    query = await read_ten(world)
    await restart_later(world, query)
    with pytest.raises(DataLossError, match=r"orders.*shardId.*failOnDataLoss=false"):
        await query.trigger()
    allowed = with_losses(world, query)
    left = world.put(5)
    for _ in range(2):
        await allowed.drain()
        assert allowed.rows[10:] == left
        assert allowed.driver.report()["data_losses"] == 1
        await asyncio.sleep(1)


@simulated(1)
async def test_an_old_position_is_whole_if_its_record_exists(world: World) -> None:
    query = await read_ten(world)
    stream = world.kinesis.stream("orders")
    stream.retention_hours = 48
    await asyncio.sleep(1.5 * DAY)
    query.restart()
    stream.retention_hours = 24  # Kinesis hasn't applied the new retention yet
    rows = world.put(3)
    await query.drain()
    assert query.rows[-3:] == rows


@pytest.mark.parametrize(
    ("parent_is_read", "reason"), [(False, "no longer knows"), (True, "passed them")]
)
@simulated(1)
async def test_what_expired_unread_after_a_split_is_an_error_or_counted(
    world: World, parent_is_read: bool, reason: str
) -> None:
    query = await read_ten(world)
    if not parent_is_read:
        world.put(10)
    world.kinesis.split("orders", PARENT)
    if parent_is_read:
        await query.trigger()  # reads the parent to its end, but no child yet
    await restart_later(world, query)
    with pytest.raises(DataLossError, match=reason):
        await query.drain()
    allowed = with_losses(world, query)
    left = world.put(5)
    await allowed.drain()
    assert sorted(allowed.rows[10:]) == sorted(left)
    assert allowed.driver.report()["data_losses"] >= 1


@simulated(1)
async def test_a_recreated_stream_is_an_error_or_read_anew(world: World) -> None:
    query = await read_ten(world)
    world.put(10)
    await query.drain()
    world.kinesis.delete_stream("orders")
    await asyncio.sleep(5)
    world.kinesis.create_stream("orders", 2)
    rows = world.put(10)
    query.restart()
    with pytest.raises(DataLossError, match="recreated"):
        await query.trigger()
    allowed = with_losses(world, query)
    await allowed.drain()
    assert sorted(allowed.rows[20:]) == sorted(rows)
    assert allowed.driver.report()["data_losses"] == 1


# --- where a query begins ------------------------------------------------------------


def two_days_ago(world: World) -> Start:
    return Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() - 2 * DAY)


@pytest.mark.parametrize("of_stream", [False, True])
@simulated(1)
async def test_a_start_before_the_retention_is_an_error_or_counted(
    world: World, of_stream: bool
) -> None:
    world.put(10)
    await world.pass_time(3 * DAY)
    left = world.put(5)
    start = two_days_ago(world)
    by_stream = {"streams": (Stream("orders", start=start),)}
    options: dict[str, Any] = by_stream if of_stream else {"starting": start}
    query = world.query(**options)
    with pytest.raises(
        DataLossError, match=r"start is 2\S*Z, but .* only records since 2\S*Z, .* 24"
    ):
        await query.trigger()
    with pytest.raises(DataLossError, match="only records since"):
        await query.driver.bounded()
    allowed = world.query(**options, fail_on_data_loss=False)
    await allowed.drain()
    assert allowed.rows == left
    assert allowed.driver.report()["data_losses"] == 1


@simulated(1)
async def test_a_start_before_the_stream_was_created_loses_nothing(
    world: World,
) -> None:
    rows = world.put(5)
    query = world.query(starting=two_days_ago(world))
    await query.drain()
    assert query.rows == rows


@pytest.mark.parametrize("is_recreated", [False, True])
@simulated(1)
async def test_a_stream_that_was_left_out_for_a_run_continues_where_it_was(
    world: World, is_recreated: bool
) -> None:
    world.kinesis.create_stream("payments")
    both = world.query(streams=(Stream("orders"), Stream("payments")))
    await both.drain()
    rows = world.put(10, "payments")
    await both.drain()
    one = world.query(streams=(Stream("orders"),))
    one.ends, one.batches = both.ends, both.batches
    rows += world.put(10, "payments") + world.put(3)
    await one.drain()
    assert len(one.rows) == 13
    both.restart()
    if not is_recreated:
        await both.drain()
        assert sorted(both.rows) == sorted(rows)
        return
    world.kinesis.delete_stream("payments")
    await asyncio.sleep(5)
    world.kinesis.create_stream("payments")
    with pytest.raises(DataLossError, match="recreated"):
        await both.drain()


# --- a logged batch that is computed later -------------------------------------------


async def log_batch(world: World, kind: str) -> Query:
    """Plan a batch of twelve hours, let 18 hours pass, and restart its query.

    The batch begins at a start position, with two children, or after the records of
    another batch.
    """
    world.kinesis.create_stream("orders", 1 if kind == "child" else 2)
    now = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    starts = {"AT_TIMESTAMP": now, "LATEST": Start.LATEST}
    query = world.query(starting=starts.get(kind, Start.TRIM_HORIZON))
    if kind in ("After", "child"):
        world.put(20)
    if kind == "child":
        world.kinesis.split("orders", PARENT)
    if kind in ("After", "LATEST", "child"):
        await query.trigger()
    await world.stream_in(240, seconds=12 * HOUR)
    while not await query.plan():
        await asyncio.sleep(1)
    await world.pass_time(18 * HOUR)
    query.restart()
    return query


@pytest.mark.parametrize(
    "kind", ["LATEST", "AT_TIMESTAMP", "TRIM_HORIZON", "After", "child"]
)
@simulated()
async def test_a_batch_that_lost_its_first_records_before_it_was_computed_fails(
    world: World, kind: str
) -> None:
    query = await log_batch(world, kind)
    with pytest.raises(DataLossError):
        await query.run_batch()
    allowed = with_losses(world, query)
    rows = await allowed.run_batch()
    assert 0 < len(rows) < 240
    assert allowed.driver.report()["data_losses"] == 2


# --- quiet shards --------------------------------------------------------------------


@pytest.mark.parametrize("records", [0, 5])
@pytest.mark.parametrize("run", [Query.drain, Query.available_now])
@simulated(2)
async def test_a_query_tells_silence_from_loss(
    world: World, run: Callable[[Query], Awaitable[None]], records: int
) -> None:
    query = world.query(starting=Start.LATEST)
    await query.trigger()
    rows = world.put(records)
    for _ in range(24 * 5):
        await world.pass_time(HOUR)
        await run(query)
    # In five idle days, each 24th of the retention has at most one empty batch.
    assert len(query.batches) <= 24 * 5 + 2
    rows += world.put(10)
    query.restart()
    await query.drain()
    assert sorted(query.rows) == sorted(rows)


@simulated(1)
async def test_a_record_after_the_target_stays_unread(world: World) -> None:
    """A quiet shard must not count as read up to now if a record is waiting."""
    rows = world.put(5)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.available_now()
    await world.pass_time(2 * HOUR)
    query.restart()
    await query.driver.fix_targets()
    world.put()
    await world.pass_time(2 * HOUR)
    await query.drain()
    await world.pass_time(23 * HOUR)
    query.restart()
    with pytest.raises(DataLossError):
        await query.drain()
    assert query.rows == rows


# --- clocks --------------------------------------------------------------------------


@simulated(1)
async def test_a_start_some_seconds_ahead_of_kinesis_is_awaited(world: World) -> None:
    world.put()
    start = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() + 20)
    query = world.query(starting=start)
    await query.trigger()
    await asyncio.sleep(30)
    rows = world.put()
    await query.drain()
    assert query.rows == rows


@pytest.mark.parametrize("ahead", [0.5, 5.0, 50.0])
@simulated(1)
async def test_records_after_latest_are_read_though_the_date_is_ahead(
    world: World, ahead: float
) -> None:
    world.source().date_ahead_seconds = ahead
    await asyncio.sleep(0.6)
    query = world.query(starting=Start.LATEST)
    planning = asyncio.create_task(query.plan())
    await asyncio.sleep(0.3)
    rows = world.put(5)
    await planning
    await asyncio.sleep(100)
    await query.drain()
    assert query.rows == rows

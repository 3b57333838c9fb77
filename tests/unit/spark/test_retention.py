"""What retention takes is an error; what is merely old, quiet or ahead is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Start, Stream
from tests.support.spark_query import AwsSource, in_a_world, simulated

if TYPE_CHECKING:
    from kinesumer.model.streams import StreamInfo
    from tests.support.spark_query import Query, World

HOUR = 3600.0
DAY = 24 * HOUR


def starting(kind: str, world: World) -> Start:
    """Return a start of a kind that begins with what comes from now on."""
    if kind == "AT_TIMESTAMP":
        return Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    return Start(type=kind)


# --- a logged batch that is computed later -------------------------------------------


async def log_a_batch(world: World, kind: str, *, fail: bool = True) -> Query:
    """Log a batch of twelve hours, and compute it 18 hours after its beginning."""
    world.kinesis.create_stream("orders", 2)
    query = world.query(starting=starting(kind, world), fail_on_data_loss=fail)
    if kind == "LATEST":
        await query.trigger()
    await world.stream_in(1_200, seconds=12 * HOUR)
    while not await query.plan():
        await asyncio.sleep(1)
    await world.pass_time(18 * HOUR)
    query.restart()
    return query


@pytest.mark.parametrize("kind", ["LATEST", "AT_TIMESTAMP", "TRIM_HORIZON"])
def test_a_batch_that_lost_its_first_records_before_it_was_computed_fails(
    kind: str,
) -> None:
    async def story(world: World) -> None:
        query = await log_a_batch(world, kind)
        with pytest.raises(DataLossError):
            await query.run_batch()

    in_a_world(story)


@pytest.mark.parametrize("kind", ["LATEST", "AT_TIMESTAMP", "TRIM_HORIZON"])
def test_with_losses_allowed_that_batch_counts_them(kind: str) -> None:
    async def story(world: World) -> None:
        query = await log_a_batch(world, kind, fail=False)
        rows = await query.run_batch()
        assert 0 < len(rows) < 1_200
        assert query.driver.report()["data_losses"] == 2

    in_a_world(story)


@simulated
async def test_the_first_batch_of_a_child_is_checked_as_well(world: World) -> None:
    world.kinesis.create_stream("orders")
    world.put(5)
    query = world.query(starting=Start.TRIM_HORIZON)
    world.kinesis.split("orders", "shardId-000000000000")
    await query.trigger()
    await world.stream_in(1_200, seconds=12 * HOUR)
    await query.plan()
    await world.pass_time(18 * HOUR)
    query.restart()
    with pytest.raises(DataLossError):
        await query.run_batch()


@simulated
async def test_a_first_record_that_goes_missing_early_is_a_loss_too(
    world: World,
) -> None:
    world.kinesis.create_stream("orders")
    world.put(10)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.plan()
    world.kinesis.stream("orders").shard("shardId-000000000000").trimmed = 5
    with pytest.raises(DataLossError):
        await query.run_batch()


# --- quiet shards --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LATEST", "TRIM_HORIZON"])
@pytest.mark.parametrize("records", [0, 5])
def test_a_shard_that_was_quiet_for_days_lost_nothing_to_hourly_runs(
    kind: str, records: int
) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders")
        query = world.query(starting=Start(type=kind))
        await query.available_now()
        wanted = world.put(records)
        for _ in range(30):
            await world.pass_time(HOUR)
            await query.available_now()
        wanted += world.put()
        for _ in range(3):
            await world.pass_time(HOUR)
            await query.available_now()
        assert query.rows == wanted
        assert len(query.batches) < 40

    in_a_world(story)


@pytest.mark.parametrize("split", [False, True])
def test_a_query_that_was_idle_may_stay_away_for_most_of_the_retention(
    split: bool,
) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders")
        wanted = world.put(5)
        query = world.query(starting=Start.TRIM_HORIZON)
        await query.drain()
        if split:
            world.kinesis.split("orders", "shardId-000000000000")
        for _ in range(11 * 6):
            await world.pass_time(600)
            await query.trigger()
        await world.pass_time(14 * HOUR)
        wanted += world.put()
        query.restart()
        await query.drain()
        assert query.rows == wanted

    in_a_world(story)


@simulated
async def test_a_record_that_came_behind_a_target_keeps_the_shard_unread(
    world: World,
) -> None:
    """A quiet shard may not be called read up to now if a record is waiting."""
    world.kinesis.create_stream("orders")
    wanted = world.put(5)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.available_now()
    await world.pass_time(2 * HOUR)
    query.restart()
    await query.driver.fix_targets()
    wanted += world.put()
    await world.pass_time(2 * HOUR)
    await query.drain()
    await world.pass_time(23 * HOUR)
    query.restart()
    with pytest.raises(DataLossError):
        await query.drain()
    assert query.rows == wanted[:5]


# --- clocks --------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-3600.0, -30.0, -0.4, 0.4, 1.9, 30.0, 3600.0])
def test_a_driver_clock_that_is_wrong_neither_fails_a_query_nor_delays_it(
    ahead: float,
) -> None:
    async def story(world: World) -> None:
        world.driver_ahead_seconds = ahead
        world.kinesis.create_stream("orders", 2)
        await asyncio.sleep(0.7)
        wanted = []
        query = world.query(starting=Start.LATEST)
        await query.trigger()
        for _ in range(20):
            wanted += await world.stream_in(300, seconds=3.3)
            await query.trigger()
        await asyncio.sleep(1.3)
        await query.drain()
        assert sorted(query.rows) == sorted(wanted)

    in_a_world(story)


@simulated
async def test_a_start_some_seconds_ahead_of_kinesis_is_awaited(world: World) -> None:
    world.kinesis.create_stream("orders")
    world.put()
    start = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() + 20)
    query = world.query(starting=start)
    await query.trigger()
    await asyncio.sleep(30)
    wanted = world.put()
    await query.drain()
    assert query.rows == wanted


@pytest.mark.parametrize("ahead", [0.5, 5.0, 50.0])
def test_what_comes_after_latest_is_read_though_the_date_is_ahead(
    ahead: float,
) -> None:
    class DateAhead(AwsSource):
        async def describe(self) -> StreamInfo:
            info = self.describe_now()
            return info._replace(now=(info.now + ahead) // 1)

    async def story(world: World) -> None:
        async def open_source(stream: Stream) -> DateAhead:
            return DateAhead(world.kinesis, stream.name)

        world.kinesis.create_stream("orders")
        world.open = open_source  # type: ignore[method-assign]
        await asyncio.sleep(0.6)
        query = world.query(starting=Start.LATEST)
        planning = asyncio.create_task(query.plan())
        await asyncio.sleep(0.3)
        wanted = world.put(5)
        await planning
        await asyncio.sleep(100)
        await query.drain()
        assert query.rows == wanted

    in_a_world(story)

"""Test that queries read batches by subscriptions where that is faster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer import Stream
from kinesumer.errors import (
    AccessDeniedError,
    DataLossError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import BEGINNING, After
from kinesumer.spark.planning.stream_state import (
    POLLED_BYTES,
    SUBSCRIPTION_SECONDS,
)
from kinesumer.spark.planning.tasks import Task
from tests.support.spark_query import Query, World, simulated
from tests.support.spark_reading import Bench

ONE = "shardId-000000000000"
ORDERS = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER = f"{ORDERS}/consumer/billing:1700000000"


# --- planning -------------------------------------------------------------------------


def consuming(world: World) -> tuple[Query, list[str]]:
    """Return a query, and the streams whose consumer it will have searched for."""
    query = world.query(streams=(Stream("orders", fan_out="billing"),))
    searched: list[str] = []

    async def find(stream: Stream) -> str:
        searched.append(stream.name)
        return CONSUMER

    query.driver.find_consumer = find
    return query, searched


async def planned(query: Query) -> list[Task]:
    assert await query.plan()
    return await query.tasks(len(query.ends) - 1)


@simulated(shards=1)
async def test_the_driver_finds_the_consumer_once_and_tells_the_tasks(
    world: World,
) -> None:
    query, searched = consuming(world)
    for _ in range(3):
        world.put(5)
        for task in await planned(query):
            assert [stream.fan_out for stream in task.streams] == [CONSUMER]
        await asyncio.sleep(60)
    assert searched == ["orders"]


@simulated(shards=1)
async def test_large_ranges_are_subscribed_to_and_small_ones_are_polled(
    world: World,
) -> None:
    query, _ = consuming(world)
    chosen = []
    for size in (10, POLLED_BYTES, POLLED_BYTES, 10):
        await asyncio.sleep(SUBSCRIPTION_SECONDS / 2)
        world.kinesis.put("orders", b"x" * size)
        await asyncio.sleep(SUBSCRIPTION_SECONDS / 2)
        world.kinesis.put("orders", b"x" * size)
        chosen += [p.subscribes for t in await planned(query) for p in t.ranges]
    assert chosen == [False, True, True, False]


@simulated(shards=1)
async def test_kinesis_permits_the_next_subscription_only_after_five_seconds(
    world: World,
) -> None:
    query = world.query(streams=(Stream("orders", fan_out="billing"),))
    [state] = await query.driver._refreshed()
    assert not state.subscribes(ONE, POLLED_BYTES)  # no consumer
    state.consumer_arn = CONSUMER
    assert not state.subscribes(ONE, POLLED_BYTES - 1)
    state.probe(ONE).pacing.share_among(2)
    assert state.subscribes(ONE, 1)
    await asyncio.sleep(5.9)
    assert not state.subscribes(ONE, POLLED_BYTES)
    await asyncio.sleep(0.2)
    assert state.subscribes(ONE, POLLED_BYTES)


# --- reading --------------------------------------------------------------------------


def whole(bench: Bench) -> Task:
    return bench.task((ONE, BEGINNING, bench.after(ONE, -1)), subscribes=True)


def test_a_subscription_gives_exactly_the_range_and_ends_with_it(bench: Bench) -> None:
    bench.put(8_000)
    first, last = bench.after(ONE, 10), bench.after(ONE, -10)
    task = bench.task((ONE, first, last), subscribes=True)
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][11:-9]}
    assert bench.source.calls == []
    assert bench.pushed.released == [ONE]


@pytest.mark.parametrize(
    "error",
    [
        SourceUnavailableError("broken"),
        SourceThrottledError("in use"),
        TrimmedPositionError("expired"),
        ShardMissingError("unknown"),
    ],
)
@pytest.mark.parametrize("failing", [1, 2])
def test_after_an_error_the_rest_is_polled(
    bench: Bench, error: Exception, failing: int
) -> None:
    bench.put(30_000)
    bench.pushed.fail(error, failing, call="records")
    assert bench.read_numbers(whole(bench)) == {ONE: bench.numbers[ONE]}
    assert bench.pushed.count("records") == failing
    assert bench.source.count("records") > 0
    assert bench.pushed.released == [ONE]


def test_a_consumer_that_may_not_subscribe_fails_the_task(bench: Bench) -> None:
    bench.put(10)
    bench.pushed.fail(AccessDeniedError("kinesis:SubscribeToShard", ORDERS))
    with pytest.raises(AccessDeniedError):
        bench.rows(whole(bench))


def test_missing_records_are_lost_as_with_polling(bench: Bench) -> None:
    bench.put(10)
    end = bench.after(ONE, -1)
    beyond = After(end.position._replace(sequence_number="9" * 56), end.seen)
    task = bench.task((ONE, BEGINNING, beyond), subscribes=True)
    with pytest.raises(DataLossError, match="the shard has no more records"):
        bench.rows(task)
    assert bench.pushed.count("records") == 2  # the records, and nothing


def test_a_task_that_is_stopped_ends_its_subscriptions(bench: Bench) -> None:
    bench.put(30_000)
    batches: Any = bench.batches(whole(bench))
    next(batches)
    batches.close()
    assert bench.pushed.released == [ONE]

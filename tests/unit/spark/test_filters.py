"""Test which filters of Spark choose what a bounded read reads."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kinesumer import Stream
from kinesumer.model.positions import (
    BEGINNING,
    SEEN_SLACK_SECONDS,
    After,
    Position,
    StreamOffset,
)
from kinesumer.model.streams import Start
from kinesumer.spark.filters import ANY_ROW, PushedFilters, push
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.readers import BatchReader
from tests.support.spark_query import World, simulated
from tests.support.spark_reading import schema

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARDS = ("shardId-000000000000", "shardId-000000000001")
TIME = datetime(2026, 1, 2, tzinfo=UTC)
AT = TIME.timestamp()


@pytest.mark.parametrize(
    ("given", "has_orders", "has_first"),
    [
        ([EqualTo(("stream",), "orders")], True, True),
        ([EqualTo(("stream",), "payments")], False, True),
        ([EqualNullSafe(("stream_arn",), ARN)], True, True),
        ([In(("stream_arn",), ("arn",))], False, True),
        ([In(("shard_id",), SHARDS)], True, True),
        ([IsNotNull(("shard_id",))], True, True),
        ([In(("shard_id",), SHARDS), EqualTo(("shard_id",), SHARDS[1])], True, False),
    ],
)
def test_streams_and_shards_are_chosen(
    given: list[Filter], has_orders: bool, has_first: bool
) -> None:
    pushed, rest = push(given)
    assert rest == []
    assert pushed.has_stream(ARN) is has_orders
    assert pushed.has_shard(SHARDS[0]) is has_first


@pytest.mark.parametrize(
    ("given", "since", "until"),
    [
        (EqualTo(("arrived_at",), TIME), AT, AT),
        (GreaterThan(("arrived_at",), TIME), AT, inf),
        (GreaterThanOrEqual(("arrived_at",), TIME), AT, inf),
        (LessThan(("arrived_at",), TIME), -inf, AT),
        (LessThanOrEqual(("arrived_at",), TIME), -inf, AT),
    ],
)
def test_spark_applies_filters_of_the_arrival_time_too(
    given: Filter, since: float, until: float
) -> None:
    assert push([given]) == (PushedFilters({}, since, until), [given])


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(("stream",), "orders")),
        IsNotNull(("partition_key",)),
        EqualTo(("data",), b"x"),
        EqualTo(("partition_key",), "key"),
        EqualTo(("stream",), None),
        In(("shard_id",), (SHARDS[0], None)),
        GreaterThan(("arrived_at",), "2026"),
        LessThan(("arrived_at",), TIME.replace(tzinfo=None)),
        EqualTo(("other",), TIME),
    ],
)
def test_other_filters_are_left_to_spark(given: Filter) -> None:
    assert push([given]) == (ANY_ROW, [given])


async def counts(world: World, *filters: Filter) -> Counter[str]:
    """Return how many records a bounded read has of each shard."""
    query = world.query(starting=Start.TRIM_HORIZON)
    tasks = await query.driver.bounded(push(filters)[0])
    return Counter(shard_id for shard_id, _ in query.read(tasks))


@simulated(2)
async def test_only_the_chosen_shards_and_times_are_read(world: World) -> None:
    rows = await world.stream_in(600, seconds=600)
    await asyncio.sleep(1)
    everything = Counter(shard_id for shard_id, _ in rows)
    assert await counts(world) == everything
    only = EqualTo(("shard_id",), SHARDS[1])
    assert await counts(world, only) == {SHARDS[1]: everything[SHARDS[1]]}
    assert await counts(world, EqualTo(("stream",), "payments")) == {}
    now = (await world.query().driver._refreshed())[0].info.now
    late = GreaterThan(("arrived_at",), datetime.fromtimestamp(now - 120, UTC))
    early = LessThan(("arrived_at",), datetime.fromtimestamp(now - 480, UTC))
    for chosen in (late, early):
        assert 170 < (await counts(world, chosen)).total() < 190
    assert await counts(world, late, early) == {}


def test_a_read_begins_and_ends_a_minute_away_from_the_times() -> None:
    info: Any = type("Info", (), {"now": 10_000.0, "retention_hours": 1})
    pushed = PushedFilters({}, since=8_000.0, until=9_000.0)
    begin = Start(type="AT_TIMESTAMP", timestamp=8_000.0 - SEEN_SLACK_SECONDS)
    end = Start(type="AT_TIMESTAMP", timestamp=9_000.0 + SEEN_SLACK_SECONDS)
    assert pushed.begin(BEGINNING, info) == begin
    assert pushed.end(None, info) == end
    earlier = Start(type="AT_TIMESTAMP", timestamp=8_500.0)
    assert (pushed.begin(earlier, info), pushed.end(earlier, info)) == (earlier,) * 2
    position = After(Position("1"), 0.0)
    positions = StreamOffset(0.0, {SHARDS[0]: position})
    assert pushed.begin(position, info) is position
    assert pushed.end(positions, info) is positions
    future = PushedFilters({}, since=20_000.0, until=20_000.0)
    assert future.begin(BEGINNING, info) == Start(
        type="AT_TIMESTAMP", timestamp=10_000.0
    )
    assert future.end(None, info) is None
    assert PushedFilters({}, since=5_000.0).begin(BEGINNING, info) is BEGINNING


def test_pyspark_does_not_see_the_method_while_its_setting_is_off() -> None:
    reader = BatchReader(ReadOptions(streams=(Stream("orders"),)), schema("data"))
    # So PySpark finds out whether a reader overrides the method.
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    taken, left = EqualTo(("stream",), "orders"), EqualTo(("data",), b"x")
    assert list(reader.pushFilters([taken, left])) == [left]
    assert pickle.loads(pickle.dumps(reader))._pushed == push([taken])[0]

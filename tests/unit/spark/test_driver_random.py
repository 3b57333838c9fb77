"""Test that each record is in one batch, whatever happens to stream and query.

A query that runs for days never loses a record silently, and never fails if no record
was lost, even if its driver's clock is wrong. This isn't true if the query is stopped
for longer than the retention allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Start
from tests.support.spark_query import (
    Query,
    Row,
    World,
    arrivals,
    assert_each_once,
    late_seconds,
    reshard,
    simulated,
)

pytestmark = pytest.mark.slow

Step = tuple[str, Any]
Test = Callable[..., None]

HOUR = 3600.0
# Each example simulates hours, so there are half as many as for other properties.
FEWER = settings(max_examples=settings().max_examples // 2)
RETENTION_HOURS = 24
SKEW_SECONDS = 60.0  # the option's default
SAFE_HOURS = 22
"""A stop that is safe even for quiet shards: less than 23/24 of the retention."""


def step(name: str, *values: float) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.sampled_from(values))


RESHARDS = (
    st.tuples(st.just("split"), st.integers(0, 50)),
    st.tuples(st.just("merge"), st.integers(0, 50)),
)
STEPS = st.one_of(
    *RESHARDS,
    st.tuples(st.just("put"), st.integers(1, 200)),
    st.tuples(st.just("put_one_key"), st.integers(1, 300)),
    *[step("stream_in", 5, 60, 1_000, 4_000)] * 2,
    step("sleep", 0.1, 1.0, 90.0, 600.0, 7200.0),
    step("trigger", 1),
    step("odd_pages", 1, 2, 5),
    step("expired", 1, 2, 5),
    step("crash_before_batch", 0),
    step("crash_after_batch", 0),
    step("available_now", 0),
)
DAYS = st.one_of(
    *RESHARDS,
    st.tuples(st.just("put"), st.integers(1, 30)),
    step("run", 1, 5, 11, 30),
    step("hourly", 2, 30),
    step("stop", 0.1, 8, 14, SAFE_HOURS),
    step("crash", 0.1, 8, 18, SAFE_HOURS),
)
TOO_LONG = step("stop", 25, 40)
AHEAD = st.sampled_from([-3600.0, -0.4, 0.0, 0.4, 1.9, 30.0, 3600.0])
STARTS = st.sampled_from(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
LIMITS = st.one_of(
    st.just({}),
    st.builds(lambda n: {"max_rows_per_batch": n}, st.sampled_from([50, 150])),
    st.builds(lambda n: {"max_bytes_per_batch": n}, st.sampled_from([500, 5000])),
)


def starting_now(world: World, kind: str) -> Start:
    since = world.clock.wall() if kind == "AT_TIMESTAMP" else None
    return Start(type=kind, timestamp=since)


def backlog(
    *steps: Step, shards: int = 2, start: str = "TRIM_HORIZON"
) -> Callable[[Test], Test]:
    """Return an example of a query that reads records of an hour after these steps."""
    steps = (("stream_in", 600), *steps, ("stream_in", 3_600))
    given = {"shards": shards, "per_second": 1.0, "start": start, "limits": {}}
    return example(**given, steps=[*steps, ("available_now", 0)])


TWO_SPLITS: tuple[Step, ...] = (("split", 0), ("stream_in", 7_200), ("split", 3))


@FEWER
@given(
    shards=st.integers(1, 4),
    per_second=st.sampled_from([0.01, 0.2, 2.0]),
    start=STARTS,
    limits=LIMITS,
    steps=st.lists(STEPS, max_size=25),
)
@backlog(*TWO_SPLITS, shards=4)
@backlog(*TWO_SPLITS, shards=4, start="LATEST")
# Children without records, which are skipped.
@backlog(("split", 0), ("split", 1), ("split", 2))
# A parent whose last record arrives together with the first one of its grandchild.
@backlog(
    ("put", 20), ("sleep", 10), ("put", 1), ("merge", 0), ("split", 0), ("put", 20)
)
@simulated()
async def test_each_record_is_in_exactly_one_batch_parents_first_and_none_is_late(
    world: World,
    shards: int,
    per_second: float,
    start: str,
    limits: dict[str, Any],
    steps: list[Step],
) -> None:
    world.kinesis.create_stream("orders", shards, retention_hours=8760)
    world.put(20)
    await asyncio.sleep(10)
    since = world.clock.wall()
    query = world.query(starting=starting_now(world, start), **limits)
    if start == "LATEST":
        await query.trigger()
    for name, value in steps:
        match name:
            case "put":
                world.put(value)
            case "put_one_key":
                world.put(value, key="one")
            case "stream_in":
                await world.stream_in(int(value * per_second), seconds=value)
            case "sleep":
                await asyncio.sleep(value)
            case "split" | "merge":
                reshard(world.kinesis, name, value)
            case "odd_pages":
                world.source().without_iterator = value
            case "expired":
                world.source().expired = value
            case "trigger":
                await query.trigger()
            case "available_now":
                await available_now(world, query)
            case "crash_before_batch":
                await crash_before_batch(query)
            case "crash_after_batch":
                if await query.trigger() is not None:
                    query.restart()
                    await query.run_batch()
    await query.drain(most=3000)
    expected = [
        row
        for row, arrived_at in arrivals(world).items()
        if start == "TRIM_HORIZON" or arrived_at >= since
    ]
    assert_each_once(world, query, expected)
    assert max(late_seconds(world, query)) <= SKEW_SECONDS


async def crash_before_batch(query: Query) -> None:
    planned = await query.plan()
    query.restart()
    if planned:
        await query.run_batch()


async def available_now(world: World, query: Query) -> None:
    """Run a query to its end. It reads only the records that exist at its beginning."""
    existing = arrivals(world).keys()
    query.restart()
    await query.driver.fix_targets()
    late = set(world.put(3)) if not query.ends else set[tuple[str, str]]()
    await query.drain(most=3000)
    assert not late & set(query.rows)
    if query.options.starting == Start.TRIM_HORIZON:
        assert existing <= set(query.rows)
    query.restart()


class Days:
    """A stream, a query, and the records that expired unread."""

    def __init__(self, world: World, start: str, shards: int) -> None:
        self.world = world
        world.kinesis.create_stream("orders", shards, retention_hours=RETENTION_HOURS)
        self.query = world.query(starting=starting_now(world, start))
        self.put_rows: list[Row] = []
        self.lost: set[Row] = set()

    async def pass_hours(self, hours: float) -> None:
        """Let hours pass while the query does nothing."""
        await self.world.pass_time(hours * HOUR)
        read, stream = set(self.query.rows), self.world.kinesis.stream("orders")
        for shard_id, number in self.put_rows:
            shard = stream.shards.get(shard_id)
            gone = shard is None or shard.place_at(number) < shard.trimmed
            if gone and (shard_id, number) not in read:
                self.lost.add((shard_id, number))

    async def take(self, name: str, value: Any) -> None:
        query = self.query
        match name:
            case "put":
                self.put_rows += self.world.put(value)
            case "run":
                for _ in range(2 * value):
                    await self.pass_hours(0.5)
                    await query.trigger()
            case "hourly":
                for _ in range(value):
                    await self.pass_hours(1)
                    await query.available_now()
                query.restart()
            case "stop":
                await query.drain()
                await self.pass_hours(value)
                query.restart()
                await query.drain()
            case "crash":
                planned = await query.plan()
                await self.pass_hours(value)
                query.restart()
                if planned:
                    await query.run_batch()
            case "split" | "merge":
                reshard(self.world.kinesis, name, value)
                await query.drain()  # reads the parent's end before any child


def quiet(start: str, *steps: Step) -> Callable[[Test], Test]:
    """Return an example of a shard that has few records."""
    return example(start=start, shards=1, ahead=0.0, steps=[*steps])


@FEWER
@given(
    start=STARTS,
    shards=st.integers(1, 3),
    ahead=AHEAD,
    steps=st.lists(DAYS, max_size=12),
)
@quiet("TRIM_HORIZON", ("hourly", 33))
@quiet("LATEST", ("hourly", 30), ("put", 1), ("hourly", 3))
@quiet("LATEST", ("put", 5), ("hourly", 30), ("put", 1), ("hourly", 3))
# A stop of most of the retention.
@quiet("TRIM_HORIZON", ("put", 10), ("run", 11), ("stop", 14), ("put", 1))
@quiet("TRIM_HORIZON", ("put", 9), ("split", 0), ("run", 11), ("stop", 14), ("put", 1))
@simulated()
async def test_each_record_is_read_once_through_quiet_days(
    world: World, start: str, shards: int, ahead: float, steps: list[Step]
) -> None:
    world.driver_clock.seconds = ahead
    days = Days(world, start, shards)
    await days.query.trigger()
    for name, value in steps:
        await days.take(name, value)
        await days.query.drain()
    assert not days.lost
    await days.pass_hours(0.01)
    await days.query.drain()
    assert_each_once(world, days.query, days.put_rows)


@FEWER
@given(
    start=STARTS,
    ahead=AHEAD,
    before=st.lists(DAYS, max_size=6),
    pause=TOO_LONG,
    after=st.lists(DAYS),
)
@simulated()
async def test_records_that_expired_unread_are_never_skipped_in_silence(
    world: World,
    start: str,
    ahead: float,
    before: list[Step],
    pause: Step,
    after: list[Step],
) -> None:
    world.driver_clock.seconds = ahead
    days = Days(world, start, 2)
    await days.query.trigger()
    try:
        for name, value in (
            *before,
            ("put", 3),
            ("crash", 0.1),
            ("put", 3),
            pause,
            *after,
        ):
            await days.take(name, value)
        await days.query.drain()
    except DataLossError:
        return
    assert not days.lost
    assert sorted(days.query.rows) == sorted(days.put_rows)

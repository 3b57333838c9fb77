"""Queries over days: quiet shards, retention, pauses, and clocks that are wrong.

A query never loses a record in silence, and never fails without a loss, whatever its
driver's clock shows, unless it stays away for longer than the retention allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Start
from tests.support.spark_query import in_a_world
from tests.unit.spark.test_every_record_once import assert_order, reshard

if TYPE_CHECKING:
    from tests.support.spark_query import Query, Row, World

HOUR = 3600.0
RETENTION_HOURS = 24
SAFE_HOURS = 22
"""A pause that no quiet shard makes unsafe: less than 23/24 of the retention."""
STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 30)),
    st.tuples(st.just("run"), st.sampled_from([1, 5, 11, 30])),
    st.tuples(st.just("hourly"), st.sampled_from([2, 30])),
    st.tuples(st.just("away"), st.sampled_from([0.1, 8, 14, SAFE_HOURS])),
    st.tuples(st.just("die"), st.sampled_from([0.1, 8, 18, SAFE_HOURS])),
    st.tuples(st.just("split"), st.integers(0, 50)),
    st.tuples(st.just("merge"), st.integers(0, 50)),
)
TOO_LONG = st.tuples(st.just("away"), st.sampled_from([25, 40]))
AHEAD = st.sampled_from([-3600.0, -0.4, 0.0, 0.4, 1.9, 30.0])
STARTS = st.sampled_from(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])


class Days:
    """A stream, a query, and what retention took from it."""

    def __init__(self, world: World, start: str, shards: int) -> None:
        self.world = world
        world.kinesis.create_stream("orders", shards, retention_hours=RETENTION_HOURS)
        since = world.clock.wall() if start == "AT_TIMESTAMP" else None
        self.query: Query = world.query(starting=Start(type=start, timestamp=since))
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

    async def take(self, step: str, value: Any) -> None:
        """Let something happen."""
        query = self.query
        match step:
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
            case "away":
                await query.drain()
                await self.pass_hours(value)
                query.restart()
                await query.drain()
            case "die":
                planned = await query.plan()
                await self.pass_hours(value)
                query.restart()
                if planned:
                    await query.run_batch()
            case "split" | "merge":
                reshard(self.world.kinesis, step, value)
                await query.drain()  # a child is not named before its parent's end


@given(STARTS, st.integers(1, 3), AHEAD, st.lists(STEPS, max_size=12))
def test_every_record_is_read_once_through_quiet_days(
    start: str, shards: int, ahead: float, steps: list[tuple[str, Any]]
) -> None:
    async def story(world: World) -> None:
        world.driver_ahead_seconds = ahead
        days = Days(world, start, shards)
        await days.query.trigger()
        for step in steps:
            await days.take(*step)
            await days.query.drain()
        assert not days.lost
        await days.pass_hours(0.01)
        await days.query.drain()
        assert sorted(days.query.rows) == sorted(days.put_rows)
        assert_order(world.kinesis, days.query)

    in_a_world(story)


@given(STARTS, AHEAD, st.lists(STEPS, max_size=6), TOO_LONG, st.lists(STEPS))
def test_what_retention_took_is_never_passed_over_in_silence(
    start: str,
    ahead: float,
    steps: list[tuple[str, Any]],
    pause: tuple[str, Any],
    more: list[tuple[str, Any]],
) -> None:
    async def story(world: World) -> None:
        world.driver_ahead_seconds = ahead
        days = Days(world, start, 2)
        await days.query.trigger()
        try:
            for step in (*steps, ("put", 3), ("die", 0.1), ("put", 3), pause, *more):
                await days.take(*step)
            await days.query.drain()
        except DataLossError:
            return
        assert not days.lost
        assert sorted(days.query.rows) == sorted(days.put_rows)

    in_a_world(story)

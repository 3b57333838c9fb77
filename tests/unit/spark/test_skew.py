"""A backlog is read by all shards together: no row falls behind a watermark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, Stream
from kinesumer.spark.offsets.model import After, StreamOffset
from tests.support.spark_query import AwsSource, in_a_world, simulated
from tests.unit.spark.test_every_record_once import assert_order, reshard

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesumer.model.records import Page
    from tests.support.spark_query import Query, Row, World

    Story = Callable[[World], Coroutine[Any, Any, None]]

HOUR = 3_600.0
SKEW_SECONDS = 60.0
"""The option's default."""
WATERMARK_SECONDS = 600.0
"""That of the example pipeline."""


def arrivals(world: World) -> dict[Row, float]:
    """Return when each record that was ever put arrived."""
    return {
        (shard.shard.shard_id, stored.sequence_number): stored.arrived_at
        for shard in world.kinesis.stream("orders").shards.values()
        for stored in shard.log
    }


def late_seconds(world: World, query: Query) -> list[float]:
    """Return how far each row is behind the newest row of the batches before it."""
    arrived = arrivals(world)
    newest, late = 0.0, []
    for batch in query.batches:
        late += [max(0.0, newest - arrived[row]) for row in batch]
        newest = max([newest, *(arrived[row] for row in batch)])
    return late


def assert_together(
    world: World, query: Query, wanted: list[Row], most: float = SKEW_SECONDS
) -> None:
    """All is read once, in order, and nothing is later than the option allows."""
    assert sorted(query.rows) == sorted(wanted)
    assert_order(world.kinesis, query)
    assert max(late_seconds(world, query), default=0.0) <= most


async def stream_in(world: World, seconds: float, per_second: float = 4) -> list[Row]:
    """Put records evenly over a time."""
    return await world.stream_in(int(seconds * per_second), seconds)


async def two_splits(world: World, hours: float, per_second: float = 4) -> list[Row]:
    """Let a time pass in which a shard splits, and then one of its children."""
    third = hours * HOUR / 3
    wanted = await stream_in(world, third, per_second)
    [child, _] = world.kinesis.split("orders", "shardId-000000000000")
    wanted += await stream_in(world, third, per_second)
    world.kinesis.split("orders", child)
    return wanted + await stream_in(world, third, per_second)


@pytest.mark.parametrize("hours", [1, 6])
def test_no_row_is_late_after_two_splits_during_a_backlog(hours: int) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", 4)
        query = world.query(starting=Start.LATEST)
        await query.trigger()
        wanted = await two_splits(world, hours)
        query.restart()
        await query.drain()
        late = [s for s in late_seconds(world, query) if s > WATERMARK_SECONDS]
        assert not late, f"{len(late)} of {len(wanted)} rows are late"
        assert_together(world, query, wanted)
        assert len(query.batches) < 8

    in_a_world(story)


@simulated
async def test_available_now_reads_both_halves_of_a_split_in_time(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    wanted = await two_splits(world, 6, per_second=1)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.available_now()
    assert_together(world, query, wanted)
    assert len(query.batches) < 8


@simulated
async def test_a_split_seconds_ago_is_read_in_order_of_arrival(world: World) -> None:
    """Events that are put faster than they happened are late by what they say."""
    world.kinesis.create_stream("orders", 4)
    wanted = await two_splits(world, 6 / HOUR, per_second=100)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.available_now()
    assert_together(world, query, wanted, most=0.1)


@simulated
async def test_what_arrives_while_a_child_begins_is_read_with_it(world: World) -> None:
    """Records of one request have one time of arrival, whenever they happened."""
    world.kinesis.create_stream("orders", 4)
    wanted = world.put(100)
    world.kinesis.split("orders", "shardId-000000000000")
    wanted += world.put(100)
    await asyncio.sleep(5)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.available_now()
    assert_together(world, query, wanted)
    assert {row[0] for row in query.batches[0]} == {"shardId-000000000000"}


@simulated
async def test_times_of_arrival_need_not_be_in_order(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    wanted = await stream_in(world, 600)
    parent = world.kinesis.stream("orders").shard("shardId-000000000000")
    world.kinesis.split("orders", parent.shard.shard_id)
    wanted += await stream_in(world, 600)
    for place in range(-20, 0):
        later = parent.log[place].arrived_at + 30
        parent.log[place] = parent.log[place]._replace(arrived_at=later)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert_together(world, query, wanted)
    assert len(query.batches) == 2


@simulated
async def test_trigger_once_reads_all_that_parents_first_allows(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    await two_splits(world, 1)
    query = world.query(starting=Start.TRIM_HORIZON)
    end = await query.driver.all_there_is({})
    assert end is not None
    rows = query.read(await query.driver.partitions({}, end))
    roots = ("shardId-000000000000", "shardId-000000000001")
    assert len(rows) == sum(row[0] in roots for row in arrivals(world))


@simulated
async def test_a_query_that_restarts_after_each_batch_goes_on_evenly(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 3)
    wanted = await two_splits(world, 2)
    query = world.query(starting=Start.TRIM_HORIZON)
    for _ in range(12):
        if await query.plan():
            query.restart()
            await query.run_batch()
            query.restart()
            await query.run_batch()
    assert_together(world, query, wanted)


@simulated
async def test_a_merge_in_a_backlog_holds_the_other_shards_back(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    wanted = await stream_in(world, HOUR)
    world.kinesis.merge("orders", "shardId-000000000001", "shardId-000000000002")
    wanted += await stream_in(world, HOUR)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert_together(world, query, wanted)
    assert len(query.batches) < 6


@simulated
async def test_quiet_and_slow_shards_neither_wait_nor_hold_back(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    quiet, slow, old, busy = world.kinesis.stream("orders").open
    wanted: list[Row] = []

    def put(shard: Any, count: int = 1) -> None:
        for _ in range(count):
            first_hash = shard.shard.first_hash
            wanted.append(world.kinesis.put("orders", b"x", "", first_hash))

    put(quiet)
    put(old, 500)
    for minute in range(8 * 60):
        put(busy, 20)
        if minute % 90 == 50:
            put(slow)
        if minute == 120:
            world.kinesis.split("orders", busy.shard.shard_id)
            [*_, busy] = world.kinesis.stream("orders").open
        if minute == 300:
            world.kinesis.split("orders", slow.shard.shard_id)
            slow = world.kinesis.stream("orders").open[1]
        await asyncio.sleep(60)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert_together(world, query, wanted)
    assert len(query.batches) < 8


@pytest.mark.parametrize("limit", [{"max_rows_per_batch": 700}, {}])
def test_a_shard_far_behind_the_others_is_read_with_them(limit: dict[str, int]) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", 4)
        wanted = await two_splits(world, 3, per_second=1)
        behind = [row for row in wanted if row[0] == "shardId-000000000001"]
        others = [row for row in wanted if row[0] != "shardId-000000000001"]
        done = {}
        for shard_id, number in others[:-40]:
            done[shard_id] = After(Position(number), 0.0)
        given = {"orders": StreamOffset(0.0, done)}
        query = world.query(starting_positions=given, **limit)
        await query.drain()
        read = {(shard_id, place.position[0]) for shard_id, place in done.items()}
        assert set(behind) <= set(query.rows)
        assert not read & set(query.rows)
        assert max(late_seconds(world, query)) <= SKEW_SECONDS

    in_a_world(story)


@simulated
async def test_limits_do_not_let_a_childs_rows_fall_behind(world: World) -> None:
    world.kinesis.create_stream("orders", 3)
    wanted = await two_splits(world, 3, per_second=1)
    query = world.query(starting=Start.TRIM_HORIZON, max_rows_per_batch=4_000)
    await query.drain()
    assert_together(world, query, wanted)
    assert len(query.batches) < 9
    assert max(map(len, query.batches)) < 6_000


@simulated
async def test_children_without_records_are_passed_over(world: World) -> None:
    """The records that wait for a parent's end may be those of a grandchild."""
    world.kinesis.create_stream("orders", 2)
    wanted = await stream_in(world, 600)
    shard_id = "shardId-000000000000"
    for _ in range(3):
        [shard_id, _] = world.kinesis.split("orders", shard_id)
    wanted += await stream_in(world, HOUR)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.drain()
    assert_together(world, query, wanted)


@simulated
async def test_a_wider_skew_takes_fewer_batches(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    wanted: list[Row] = []
    for number in range(8):
        world.kinesis.split("orders", f"shardId-{number:012}")
        wanted += await stream_in(world, 300)
    wanted += await stream_in(world, HOUR)
    counts = []
    for skew in (60.0, 900.0, 1e6):
        query = world.query(starting=Start.TRIM_HORIZON, max_skew_per_batch=skew)
        await query.drain()
        assert_together(world, query, wanted, skew)
        counts.append(len(query.batches))
    assert counts[0] == 9
    assert max(counts[1:]) < 5


@simulated
async def test_a_skew_longer_than_the_retention_lets_each_shard_go_to_its_tip(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    await two_splits(world, 1)
    there = arrivals(world)
    query = world.query(starting=Start.TRIM_HORIZON, max_skew_per_batch=25 * HOUR)
    first = await query.trigger()
    assert first is not None
    newest = max(there[row] for row in first)
    assert newest > world.clock.wall() - 10
    assert max(late_seconds(world, query)) == 0
    await query.drain()
    assert max(late_seconds(world, query)) > HOUR / 3


@simulated
async def test_streams_of_one_query_advance_together(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    world.kinesis.create_stream("payments").next_number += 10**6
    paid: dict[Row, float] = {}
    wanted: list[Row] = []
    for minute in range(120):
        wanted += world.put(10)
        for row in world.put(5, name="payments"):
            paid[row] = world.clock.wall()
        if minute == 60:
            world.kinesis.split("orders", "shardId-000000000001")
        await asyncio.sleep(60)
    query = world.query(
        streams=(Stream("orders"), Stream("payments")), starting=Start.TRIM_HORIZON
    )
    await query.drain()
    assert sorted(query.rows) == sorted([*wanted, *paid])
    newest = max(paid[row] for row in query.batches[0] if row in paid)
    assert newest <= world.clock.wall() - HOUR + 60


class RefusingSource(AwsSource):
    """Refuses some shards' reads for a time, and counts all of them."""

    refused: tuple[str, ...] = ()
    until = 0.0
    reads = 0

    async def get_records(self, iterator: str, limit: int, room: Any = None) -> Page:
        """Return the next page."""
        kind = type(self)
        kind.reads += 1
        shard_id = iterator.split("|")[1]
        if shard_id in kind.refused and self.kinesis.clock.now() < kind.until:
            raise SourceUnavailableError(f"{shard_id} does not answer")
        return await super().get_records(iterator, limit, room)


def refusing(world: World) -> type[RefusingSource]:
    """Let queries from now on read through a source of a kind that is returned."""

    class Source(RefusingSource):
        pass

    async def open_source(stream: Stream) -> Source:
        return Source(world.kinesis, stream.name)

    world.open = open_source  # type: ignore[method-assign]
    return Source


@pytest.mark.parametrize("shard", range(4))
def test_a_shard_that_is_refused_in_a_backlog_holds_the_others_back(shard: int) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", 2)
        query = world.query(starting=Start.TRIM_HORIZON)
        wanted = await stream_in(world, 60)
        await query.drain()
        wanted += await stream_in(world, HOUR)
        world.kinesis.split("orders", "shardId-000000000001")
        wanted += await stream_in(world, HOUR)
        source = refusing(world)
        source.refused = (f"shardId-{shard:012}",)
        source.until = world.clock.now() + 90
        query.restart()
        for _ in range(120):
            await query.trigger()
            await asyncio.sleep(1)
        await query.drain()
        assert_together(world, query, wanted)

    in_a_world(story)


@simulated
async def test_available_now_fails_if_a_shard_does_not_answer(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    await stream_in(world, HOUR)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.driver.fix_targets()
    source = refusing(world)
    source.refused, source.until = ("shardId-000000000001",), 1e9
    query.driver._open_source = world.open
    query.driver._streams.clear()
    with pytest.raises(SourceUnavailableError):
        await query.drain()


@simulated
async def test_a_backlog_costs_few_looks_at_a_shard(world: World) -> None:
    world.kinesis.create_stream("orders", 100)
    source = refusing(world)
    query = world.query(starting=Start.TRIM_HORIZON)
    wanted = await stream_in(world, 2 * HOUR, per_second=5)
    await query.drain()
    assert sorted(query.rows) == sorted(wanted)
    assert source.reads <= 6 * 100
    source.reads = 0
    wanted += await stream_in(world, 1, per_second=50)
    await query.trigger()
    assert source.reads == 100


STEPS = st.one_of(
    st.tuples(st.just("stream_in"), st.sampled_from([5, 100, 1_000, 4_000])),
    st.tuples(st.just("stream_in"), st.sampled_from([5, 100, 1_000, 4_000])),
    st.tuples(st.just("quiet"), st.sampled_from([1, 90, 7_000])),
    st.tuples(st.just("split"), st.integers(0, 50)),
    st.tuples(st.just("merge"), st.integers(0, 50)),
    st.tuples(st.just("trigger"), st.integers(1, 4)),
    st.tuples(st.just("die"), st.just(0)),
    st.tuples(st.just("available_now"), st.just(0)),
)
OPTIONS = st.sampled_from(
    [{}, {}, {"max_rows_per_batch": 150}, {"max_bytes_per_batch": 5_000}]
)


@given(
    st.integers(1, 4),
    st.sampled_from([0.01, 0.2, 2.0]),
    st.sampled_from(["TRIM_HORIZON", "LATEST"]),
    OPTIONS,
    st.lists(STEPS, max_size=20),
)
def test_no_row_is_far_behind_rows_of_earlier_batches(
    shards: int,
    per_second: float,
    start: str,
    options: dict[str, Any],
    steps: list[tuple[str, Any]],
) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", shards, retention_hours=8760)
        wanted: list[Row] = []
        query = world.query(starting=Start(type=start), **options)
        await query.trigger()
        for step, value in steps:
            match step:
                case "stream_in":
                    wanted += await stream_in(world, value, per_second)
                case "quiet":
                    await asyncio.sleep(value)
                case "split" | "merge":
                    reshard(world.kinesis, step, value)
                case "trigger":
                    for _ in range(value):
                        await query.trigger()
                case "die":
                    planned = await query.plan()
                    query.restart()
                    if planned:
                        await query.run_batch()
                case "available_now":
                    await query.available_now(most=3_000)
                    query.restart()
        await query.drain(most=3_000)
        assert_together(world, query, wanted)

    in_a_world(story)

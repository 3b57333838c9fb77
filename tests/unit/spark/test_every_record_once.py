"""Whatever happens to a stream and a query, every record is in exactly one batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.streams import Start
from tests.support.spark_query import in_a_world

if TYPE_CHECKING:
    from kinesumer.testing.memory import MemoryKinesis
    from tests.support.spark_query import Query, Row, World

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 200)),
    st.tuples(st.just("put_one_key"), st.integers(1, 300)),
    st.tuples(st.just("stream_in"), st.integers(1, 60)),
    st.tuples(st.just("sleep"), st.sampled_from([0.1, 1.0, 30.0, 600.0, 7200.0])),
    st.tuples(st.just("split"), st.integers(0, 50)),
    st.tuples(st.just("merge"), st.integers(0, 50)),
    st.tuples(st.just("trigger"), st.just(0)),
    st.tuples(st.just("crash_before_batch"), st.just(0)),
    st.tuples(st.just("crash_after_batch"), st.just(0)),
    st.tuples(st.just("available_now"), st.just(0)),
)
LIMITS = st.one_of(
    st.none(),
    st.tuples(st.just("max_rows_per_batch"), st.sampled_from([1, 20, 150])),
    st.tuples(st.just("max_bytes_per_batch"), st.sampled_from([1, 1000])),
)


@given(
    st.integers(1, 4),
    st.sampled_from(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]),
    LIMITS,
    st.lists(STEPS, max_size=25),
)
def test_every_record_is_in_exactly_one_batch_parents_first(
    shards: int, start: str, limit: Any, steps: list[tuple[str, Any]]
) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", shards, retention_hours=8760)
        world.put(20)
        await asyncio.sleep(10)
        since = world.clock.wall()
        starting = Start(
            type=start, timestamp=since if start == "AT_TIMESTAMP" else None
        )
        query = world.query(starting=starting, **dict([limit] if limit else []))
        if start == "LATEST":
            await query.trigger()
        for step in steps:
            await take(world, query, *step)
        await query.drain(most=3000)
        stream = world.kinesis.stream("orders")
        expected = sorted(
            (shard.shard.shard_id, stored.sequence_number)
            for shard in stream.shards.values()
            for stored in shard.log
            if start == "TRIM_HORIZON" or stored.arrived_at >= since
        )
        assert sorted(query.rows) == expected
        assert_order(world.kinesis, query)

    in_a_world(story)


async def take(world: World, query: Query, step: str, value: Any) -> None:
    """Let something happen."""
    match step:
        case "put":
            world.put(value)
        case "put_one_key":
            world.put(value, key="one")
        case "stream_in":
            await world.stream_in(value, seconds=value)
        case "sleep":
            await asyncio.sleep(value)
        case "split" | "merge":
            reshard(world.kinesis, step, value)
        case "trigger":
            await query.trigger()
        case "crash_before_batch":
            planned = await query.plan()
            query.restart()
            if planned:
                await query.run_batch()
        case "crash_after_batch":
            if await query.trigger() is not None:
                query.restart()
                await query.run_batch()
        case "available_now":
            await available_now(world, query)


async def available_now(world: World, query: Query) -> None:
    """Run to the end; all that was there at the beginning has been read then."""
    there = {
        (shard.shard.shard_id, stored.sequence_number)
        for shard in world.kinesis.stream("orders").shards.values()
        for stored in shard.log
    }
    query.restart()
    await query.driver.fix_targets()
    late = set(world.put(3)) if not query.ends else set[tuple[str, str]]()
    await query.drain(most=3000)
    assert not late & set(query.rows)
    if query.options.starting.type == "TRIM_HORIZON":  # type: ignore[union-attr]
        assert there <= set(query.rows)
    query.restart()


def reshard(kinesis: MemoryKinesis, kind: str, place: int) -> None:
    """Split an open shard, or merge two neighbours."""
    shards = kinesis.stream("orders").open
    if kind == "split":
        kinesis.split("orders", shards[place % len(shards)].shard.shard_id)
    elif len(shards) > 1:
        low = place % (len(shards) - 1)
        pair = (shards[low], shards[low + 1])
        kinesis.merge("orders", *(shard.shard.shard_id for shard in pair))


def assert_order(kinesis: MemoryKinesis, query: Query) -> None:
    """Rows of a shard are in order; a child's come in batches after its parents'."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    by_shard: dict[str, list[Row]] = {}
    for number, batch in enumerate(query.batches):
        for row in batch:
            first.setdefault(row[0], number)
            last[row[0]] = number
            by_shard.setdefault(row[0], []).append(row)
    for rows in by_shard.values():
        assert rows == sorted(rows, key=lambda row: (len(row[1]), row[1]))
    for shard in kinesis.stream("orders").shards.values():
        for parent in shard.shard.parents:
            if parent in last and shard.shard.shard_id in first:
                assert last[parent] < first[shard.shard.shard_id]

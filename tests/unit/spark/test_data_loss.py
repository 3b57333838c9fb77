"""Test starts from positions that expired while their shards were quiet."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from kinesumer.core.batch_ranges import Limits
from kinesumer.errors import ConfigurationError, DataLossError, SourceUnavailableError
from kinesumer.model.positions import After, Position, ShardPosition
from kinesumer.model.records import Page
from kinesumer.model.streams import ShardKey, Start, Stream
from kinesumer.spark.options.parser import FromCheckpoint, ReadOptions
from kinesumer.spark.options.streams import parse_position
from kinesumer.spark.planning.data_loss import holds_all_after
from kinesumer.spark.planning.driver import Driver
from kinesumer.testing import record
from kinesumer.wire.rows import timestamp_text
from tests.support.mirrored_query import Query as MirroredQuery
from tests.support.spark_query import AwsSource, Query, Row, World, simulated
from tests.support.world import World as Group
from tests.support.world import in_virtual_time

HOUR = 3600.0
SHARD = "shardId-000000000000"


class Pages:
    """A source whose reads of a shard return the given pages."""

    def __init__(self, *pages: Page) -> None:
        self._pages = list(pages)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        return "oldest"

    async def get_records(self, iterator: str, limit: int) -> Page:
        return self._pages.pop(0)


async def test_an_answer_that_only_looks_like_an_end_proves_no_loss() -> None:
    odd = Page([], "oldest", 0, is_unconfirmed=True)
    old = Page([record(b"a", sequence_number="1")], "next", 1)
    key = ShardKey("orders", SHARD)
    source: Any = Pages(odd, Page([], "next", 1), old)
    with pytest.raises(SourceUnavailableError, match="is open"):
        await holds_all_after(source, key, After(Position("2"), 0.0))
    assert await holds_all_after(source, key, After(Position("2"), 0.0))


# --- startingPosition=checkpoint -----------------------------------------------------


async def leave_to_clients(group: Group, seconds: float) -> MirroredQuery:
    """Have a client read a record, be idle for a while and stop. Register a query.

    To keep the test short, the stream keeps its records for an hour only.
    """
    group.kinesis.stream("orders").retention_hours = 1
    group.put("a")
    client = group.client("c1", Stream("orders", min_read_interval_seconds=10))
    await group.until(lambda: client.texts == ["a"])
    await asyncio.sleep(seconds)
    await client.stop()
    group.kinesis.apply_retention()
    return await MirroredQuery(group).start()


async def start_where_the_group_is(group: Group, query: MirroredQuery) -> ShardPosition:
    """Plan a first batch from the group's position, and return the batch's end."""

    async def open_source(stream: Stream) -> AwsSource:
        return AwsSource(group.kinesis.source(stream.name))

    options = ReadOptions(streams=(Stream("orders"),), starting=FromCheckpoint())
    driver = Driver(options, open_source, group.clock)
    driver.stored = query.mirror.stored
    end = await driver.latest({}, Limits())
    assert end is not None
    (stream,) = end.values()
    return stream.shards[SHARD]


@pytest.mark.slow
@in_virtual_time
async def test_a_query_begins_after_a_client_that_was_long_idle(world: Group) -> None:
    query = await leave_to_clients(world, 1.2 * HOUR)
    await asyncio.sleep(0.5 * HOUR)
    world.put("b")
    place = await start_where_the_group_is(world, query)
    assert isinstance(place, After)
    newest = world.kinesis.stream("orders").shard(SHARD).log[-1].sequence_number
    assert place.position == Position(newest)


@in_virtual_time
async def test_a_query_does_not_begin_where_records_expired(world: Group) -> None:
    query = await leave_to_clients(world, 0.2 * HOUR)
    world.put("lost")
    await asyncio.sleep(1.2 * HOUR)
    world.kinesis.apply_retention()
    with pytest.raises(DataLossError):
        await start_where_the_group_is(world, query)


@in_virtual_time
async def test_a_query_stores_the_tips_of_quiet_shards(world: Group) -> None:
    world.put("a")
    query = await MirroredQuery(world).start()
    await query.batch()
    await world.until(lambda: SHARD in (rows := world.shard_rows()) and rows[SHARD].tip)
    [(arn, offset)] = query.log.offset.items()
    place = offset.shards[SHARD]
    assert isinstance(place, After)
    for hours in (0.5, 2.0, 2.5):
        renewed = After(place.position, place.seen + hours * HOUR)
        query.log.offset = {arn: replace(offset, shards={SHARD: renewed})}
        await query.tell()
        await asyncio.sleep(10)
    tip = world.shard_rows()[SHARD].tip
    assert tip is not None
    assert tip.position == place.position
    assert tip.at == pytest.approx(place.seen + 2 * HOUR, abs=0.002)
    assert len(query.store.writes("tip")) == 2


# --- JSON of positions ---------------------------------------------------------------


async def expired_position(world: World, records: int = 0) -> Row:
    """Return an expired record that ``records`` others followed, half a day later."""
    world.kinesis.create_stream("orders")
    row = world.put()[0]
    await world.pass_time(12 * HOUR)
    world.put(records)
    await world.pass_time(28 * HOUR)
    return row


def starting_at(world: World, place: object, *, fail: bool = True) -> Query:
    text = json.dumps({"orders": {SHARD: place}})
    positions = parse_position("startingPosition", text)
    assert not isinstance(positions, Start)
    return world.query(starting_positions=positions, fail_on_data_loss=fail)


@pytest.mark.parametrize("as_text", [True, False])
@simulated()
async def test_a_time_proves_that_nothing_was_lost(world: World, as_text: bool) -> None:
    _, number = await expired_position(world)
    seen = world.clock.wall() - 20 * HOUR
    rows = world.put(3)
    time = timestamp_text(seen) if as_text else seen
    query = starting_at(world, {"after": number, "seen": time})
    await query.drain()
    assert query.rows == rows


@pytest.mark.parametrize(
    ("records", "ago", "error", "message"),
    [
        (0, None, DataLossError, r'not known.*"seen": TIME'),
        (5, None, DataLossError, r'not known.*"seen": TIME'),
        (5, 25 * HOUR, DataLossError, "or may have"),
        (0, -90.0, ConfigurationError, "time in the future"),
    ],
)
@simulated()
async def test_an_expired_position_needs_a_time_that_proves_it(
    world: World, records: int, ago: float | None, error: type[Exception], message: str
) -> None:
    _, number = await expired_position(world, records)
    seen = None if ago is None else world.clock.wall() - ago
    place = number if seen is None else {"after": number, "seen": seen}
    with pytest.raises(error, match=message):
        await starting_at(world, place).drain()
    if error is DataLossError:
        rows = world.put(3)
        query = starting_at(world, place, fail=False)
        await query.drain()
        assert query.rows == rows
        assert query.driver.report()["data_losses"] == 1

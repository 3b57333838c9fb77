"""Test that what clients report with heartbeats costs no further write units."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.consuming.streams import OpenStream, ReadFailure
from kinesumer.coordination.member_reports import MemberReports, Reachability
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import MemberRow, Row
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Reservation
from kinesumer.wire.reports import (
    LEAST_ENTRIES,
    REPORTS,
    WRITE_UNIT_BYTES,
    read_loads,
    row_bytes,
)
from tests.support.clients import counts, numbers, settled, spread
from tests.support.faulty import FaultySource
from tests.support.world import SHARD, Client, World, hold

ARN_LETTERS = 66


async def consume(world: World, count: int, assignor: str) -> Client:
    """Return a client that has measured the load of streams with usual names."""
    prefix = world.kinesis.stream("orders").arn.removesuffix("orders")
    letters = ARN_LETTERS - len(prefix)
    names = [f"orders-{number:02}".ljust(letters, "x") for number in range(count)]
    for name in names:
        world.kinesis.create_stream(name, 2)
    client = world.client("c1", *names, assignor=assignor)
    await world.until(lambda: len(client.held) == 2 * count)
    for _ in range(30):
        for name in names:
            world.put("a", stream=name)
        await asyncio.sleep(1)
    return client


def row(world: World) -> Row:
    [found] = world.table.rows("member#app")
    return found


def units(stored: Row) -> int:
    return -(-row_bytes(stored) // WRITE_UNIT_BYTES)


@pytest.mark.parametrize(("streams", "expected"), [(1, 1), (10, 1), (20, 2), (50, 4)])
async def test_a_heartbeat_costs_the_units_that_the_streams_take(
    world: World, streams: int, expected: int
) -> None:
    client = await consume(world, streams, "range")
    assert units(row(world)) == expected
    for number, arn in enumerate(client.group.streams):
        client.group.context.incidents.note(
            IncidentKind.KMS, stream_arn=arn, error=f"error {number}" + 200 * "x"
        )
    await asyncio.sleep(10)
    stored = row(world)
    rest = {name: value for name, value in stored.items() if name not in REPORTS}
    assert stored["incidents"]
    assert units(stored) == units(rest) or streams == 10
    await client.stop()


@pytest.mark.parametrize("streams", [1, 5, 20])
async def test_the_load_is_written_if_there_is_room(world: World, streams: int) -> None:
    client = await consume(world, streams, "range")
    member = world.members()["c1"]
    found = read_loads(member.load, member.streams)
    assert {report.stream_arn for report in found} == member.streams
    await client.stop()


async def test_skipped_records_are_logged_as_one_count_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    owned, member = hold(), MemberRow("c", "s")
    reports = MemberReports(world.context(), lambda: [owned])
    for second in range(130):
        if second < 100:
            for _ in range(20):
                owned.outcomes.skip(Position("1"))
        reports(member, 500)
        await asyncio.sleep(1)
    text = "records that can't be decoded were skipped within a minute"
    counts = [1220, 780]
    assert caplog.messages == [f"stream orders: {count} {text}" for count in counts]


async def test_plans_by_load_get_a_load_even_without_room(world: World) -> None:
    client = await consume(world, 10, "load")
    member = world.members()["c1"]
    assert len(read_loads(member.load, member.streams)) >= LEAST_ENTRIES
    await client.stop()


class Watcher:
    """Watches whether streams can be read. The test makes some reads fail."""

    def __init__(self, world: World, *names: str) -> None:
        self.world = world
        self.sources: list[FaultySource] = []
        self.reading: list[OpenStream] = []
        self.waiting: list[OpenStream] = []
        self.states: list[str] = []
        for name in names:
            world.kinesis.create_stream(name)
            self.sources.append(FaultySource(world.kinesis.source(name)))
            self.reading.append(world.open(self.sources[-1]))
        context = world.context()
        self.incidents = context.incidents
        watch = Reachability(context, self.streams_by_use, self.states.append)
        self.task = world.loop.create_task(watch.run())

    def streams_by_use(self) -> tuple[list[OpenStream], list[OpenStream]]:
        return [*self.reading], [*self.waiting]

    async def fail(self, stream: OpenStream, seconds: int) -> None:
        """Have reads of a stream fail for some seconds."""
        for _ in range(seconds):
            now = self.world.clock.now()
            await asyncio.sleep(1)
            read = ReadFailure(now, self.world.clock.now(), SHARD, Start.TRIM_HORIZON)
            stream.read_failed(read)


async def test_reads_that_fail_for_30_seconds_degrade_the_client(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = Watcher(world, "orders", "payments")
    await watcher.fail(watcher.reading[0], 29)
    await asyncio.sleep(60)
    assert watcher.states == []
    await watcher.fail(watcher.reading[0], 40)
    assert watcher.states == ["degraded"]
    assert "can't read stream orders: the shards move to other clients" in caplog.text
    [incident] = watcher.incidents.current()
    assert incident.kind is IncidentKind.UNREACHABLE
    assert incident.stream_arn == watcher.reading[0].arn
    watcher.reading[0].failing = None  # as after one successful read
    await asyncio.sleep(6)
    assert watcher.states == ["degraded", "up"]
    assert watcher.incidents.current() == []


async def test_streams_whose_shards_are_gone_are_probed(world: World) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 40)
    watcher.reading, watcher.waiting = [], watcher.reading
    watcher.sources[0].down = True
    await asyncio.sleep(300)
    assert watcher.states == ["degraded"]
    watcher.sources[0].down = False
    await asyncio.sleep(6)
    assert watcher.states == ["degraded", "up"]


@pytest.mark.parametrize(
    "answer",
    [
        ExpiredIteratorError,
        InvalidPositionError,
        ShardMissingError,
        TrimmedPositionError,
    ],
)
async def test_any_answer_of_kinesis_ends_the_degradation(
    world: World, answer: type[Exception]
) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 40)
    watcher.reading, watcher.waiting = [], watcher.reading
    watcher.sources[0].errors.append(answer("gone"))
    watcher.sources[0].listing = []  # a listed shard would not count as missing
    await asyncio.sleep(6)
    assert watcher.states == ["degraded", "up"]


async def test_failures_of_a_stream_no_longer_read_are_forgotten(world: World) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 20)
    watcher.reading, watcher.waiting = [], watcher.reading
    await asyncio.sleep(60)
    watcher.reading, watcher.waiting = watcher.waiting, []
    await watcher.fail(watcher.reading[0], 20)
    await asyncio.sleep(6)
    assert watcher.states == []


class BadRoute(FaultySource):
    """A source that answers all calls except GetRecords."""

    works = True
    hangs = False

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        """Return a page, or fail after 5 seconds, or hang."""
        if not self.works:
            await asyncio.sleep(1e9 if self.hangs else 5)
            raise SourceUnavailableError("timed out")
        return await super().get_records(iterator, limit, room)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_client_gets_no_shards_until_its_reads_succeed(
    world: World, *, hangs: bool
) -> None:
    world.kinesis.create_stream("orders", 2)
    orders = Stream("orders", min_read_interval_seconds=2)
    route = BadRoute(world.kinesis.source("orders"))
    cut_off = world.client(
        "c1", orders, source=lambda _: route, max_processing_seconds=60
    )
    other = world.client("c2", orders)
    await settled(world, cut_off, other, shards=2)
    route.works, route.hangs = False, hangs
    await world.until(lambda: len(other.held) == 2, seconds=90)
    for minute in range(5):
        await asyncio.sleep(50)
        spread(world, *numbers(8 * minute, 8 * minute + 8))
        await asyncio.sleep(10)
        assert len(counts(other)) == 8 * minute + 8
    assert world.members()["c1"].state == "degraded"
    route.works = True
    await settled(world, cut_off, other, shards=2)


async def test_time_in_which_user_code_held_the_loop_is_no_evidence(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = BadRoute(world.kinesis.source("orders"))
    client = world.client("c1", source=lambda _: source)
    await world.until(lambda: client.held)
    source.works = False
    await asyncio.sleep(1)  # a read is under way
    client.machine.block(40)
    await asyncio.sleep(48)  # reads fail in the 8 s after the block too
    source.works = True
    await asyncio.sleep(20)
    assert "can't read" not in caplog.text
    source.works = False
    await asyncio.sleep(45)
    assert "can't read stream orders" in caplog.text

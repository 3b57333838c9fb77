"""A client that can't read Kinesis says so, and says when it can again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.consuming.streams import ReadFailure
from kinesumer.coordination.reachability import Reachability
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.streams import Start, Stream
from tests.support.clients import counts, numbers, settled, spread
from tests.support.world import FaultySource, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.records import Page
    from kinesumer.ports import Reservation

SHARD = "shardId-000000000000"


class Watcher:
    """Reachability over streams that the test lets fail."""

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
        watch = Reachability(world.context(), self)
        self.task = world.loop.create_task(watch.run())

    def streams_with_shards(self) -> list[OpenStream]:
        return [*self.reading]

    def streams_without_shards(self) -> list[OpenStream]:
        return [*self.waiting]

    def set_state(self, state: str) -> None:
        self.states.append(state)

    async def fail(self, stream: OpenStream, seconds: int) -> None:
        """Let reads of a stream fail for a time."""
        for _ in range(seconds):
            now = self.world.clock.now()
            await asyncio.sleep(1)
            read = ReadFailure(now, self.world.clock.now(), SHARD, Start.TRIM_HORIZON)
            stream.read_failed(read)


@in_virtual_time
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


@in_virtual_time
async def test_one_read_that_works_makes_it_whole_again(world: World) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 40)
    watcher.reading[0].failing = None
    await asyncio.sleep(6)
    assert watcher.states == ["degraded", "up"]


@in_virtual_time
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
@in_virtual_time
async def test_an_answer_that_there_is_nothing_to_read_is_an_answer(
    world: World, answer: type[Exception]
) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 40)
    watcher.reading, watcher.waiting = [], watcher.reading
    watcher.sources[0].errors.append(answer("gone"))
    await asyncio.sleep(6)
    assert watcher.states == ["degraded", "up"]


@in_virtual_time
async def test_a_failure_is_forgotten_when_the_stream_isnt_read_any_more(
    world: World,
) -> None:
    watcher = Watcher(world, "orders")
    await watcher.fail(watcher.reading[0], 20)
    watcher.reading, watcher.waiting = [], watcher.reading
    await asyncio.sleep(60)
    watcher.reading, watcher.waiting = watcher.waiting, []
    await watcher.fail(watcher.reading[0], 20)
    await asyncio.sleep(6)
    assert watcher.states == []


class BadRoute(FaultySource):
    """A way on which records never arrive, though all else is answered."""

    works = True
    hangs = False

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        """Return a page; or nothing, at once or ever."""
        if not self.works:
            await asyncio.sleep(1e9 if self.hangs else 5)
            raise SourceUnavailableError("timed out")
        return await super().get_records(iterator, limit, room)


@pytest.mark.parametrize("hangs", [False, True])
@in_virtual_time
async def test_who_never_gets_records_is_given_no_shards_until_it_does(
    world: World, *, hangs: bool
) -> None:
    world.kinesis.create_stream("orders", 2)
    orders = Stream("orders", min_read_interval_seconds=2)
    routes: list[BadRoute] = []

    def badly(name: str) -> BadRoute:
        routes.append(BadRoute(world.kinesis.source(name)))
        return routes[-1]

    cut_off = world.client("c1", orders, source=badly, max_processing_seconds=60)
    other = world.client("c2", orders)
    await settled(world, cut_off, other, shards=2)
    for route in routes:
        route.works, route.hangs = False, hangs
    await world.until(lambda: len(other.held) == 2, seconds=90)
    for minute in range(5):
        await asyncio.sleep(50)
        spread(world, *numbers(8 * minute, 8 * minute + 8))
        await asyncio.sleep(10)
        assert len(counts(other)) == 8 * minute + 8
    assert world.members()["c1"].state == "degraded"
    for route in routes:
        route.works = True
    await settled(world, cut_off, other, shards=2)


@in_virtual_time
async def test_time_in_which_user_code_held_the_loop_is_no_evidence(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = BadRoute(world.kinesis.source("orders"))
    client = world.client("c1", source=lambda _: source)
    await world.until(lambda: client.held)
    source.works = False
    await asyncio.sleep(1)  # a read is under way
    client.machine.block(40)
    await asyncio.sleep(48)  # reads fail for some seconds more
    source.works = True
    await asyncio.sleep(20)
    assert "can't read" not in caplog.text
    source.works = False
    await asyncio.sleep(45)
    assert "can't read stream orders" in caplog.text

"""A client that can't read Kinesis says so, and says when it can again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.reachability import Reachability
from tests.engine import FaultySource, World, in_virtual_time

if TYPE_CHECKING:
    import pytest

    from kinesumer.streams import OpenStream


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
        watch = Reachability(
            world.context(),
            lambda: [*self.reading],
            lambda: [*self.waiting],
            self.states.append,
        )
        self.task = world.loop.create_task(watch.run())

    async def fail(self, stream: OpenStream, seconds: int) -> None:
        """Let reads of a stream fail for a time."""
        for _ in range(seconds):
            now = self.world.clock.now()
            await asyncio.sleep(1)
            stream.read_failed(now, self.world.clock.now())


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
    assert "can't read stream orders: other clients are given" in caplog.text


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

"""Test the rates of streams, which are counted, or estimated from a few shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import ShardKey
from kinesumer.ops.dashboard.throughput import (
    Throughput,
    advances,
    choose_shards,
    count_until,
)
from kinesumer.ops.group import shard_reads
from kinesumer.testing.simulation.memory_kinesis import MemoryKinesis
from tests.support.toy_fleet import Clock

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import Stream
    from kinesumer.testing.simulation.memory_kinesis import MemorySource


class Kinesis:
    """A stream in memory, and the dashboard's measurement of its throughput."""

    def __init__(self, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.memory = MemoryKinesis(self.clock)
        self.memory.create_stream("orders", shards)
        self.arn = self.memory.stream("orders").arn
        self.throughput = Throughput(cast("ClientFactory", None))

        async def open_source(_: ClientFactory, stream: Stream) -> MemorySource:
            return self.memory.source(stream.name)

        monkeypatch.setattr(shard_reads, "open_source", open_source)

    async def positions(self) -> dict[ShardKey, Position]:
        """Return the position of the last record of each shard."""
        return {
            ShardKey(self.arn, shard_id): Position(shard.log[-1].sequence_number)
            for shard_id, shard in self.memory.stream("orders").shards.items()
            if shard.log
        }

    def put(self, count: int, seconds: float) -> None:
        """Put records evenly over some seconds."""
        for number in range(count):
            self.clock.time += seconds / count
            self.memory.put("orders", b"x" * 100, f"key {number}")

    async def measure(self) -> dict[str, float]:
        positions = await self.positions()
        return await self.throughput.measure(positions, self.clock.now())


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Kinesis:
    """Return a stream with one shard, or as many as the test's parameter says."""
    shards = getattr(request, "param", 1)
    kinesis = Kinesis(shards, monkeypatch)
    kinesis.put(5 * shards, 1)
    return kinesis


async def test_the_first_measurement_is_empty(kinesis: Kinesis) -> None:
    assert await kinesis.measure() == {}


async def test_few_records_are_counted(kinesis: Kinesis) -> None:
    await kinesis.measure()
    kinesis.put(8, 4)
    assert await kinesis.measure() == {kinesis.arn: 2}


@pytest.mark.parametrize("kinesis", [4], indirect=True)
async def test_many_records_are_estimated_from_some(kinesis: Kinesis) -> None:
    await kinesis.measure()
    kinesis.put(20_000, 20)
    rates = await kinesis.measure()
    assert rates[kinesis.arn] == pytest.approx(1000, rel=0.35)


async def test_an_idle_stream_has_the_rate_0(kinesis: Kinesis) -> None:
    await kinesis.measure()
    kinesis.clock.time += 10
    assert await kinesis.measure() == {kinesis.arn: 0}


async def test_an_unreadable_stream_is_left_out(kinesis: Kinesis) -> None:
    await kinesis.measure()
    kinesis.put(5, 5)
    positions = await kinesis.positions()
    kinesis.memory.delete_stream("orders")
    assert await kinesis.throughput.measure(positions, kinesis.clock.now()) == {}


def test_advanced_shards_are_sampled_in_turns() -> None:
    keys = [ShardKey("arn", f"shard-{i}") for i in range(40)]
    old = {key: Position("10") for key in keys}
    new = {key: Position("11" if i else "10") for i, key in enumerate(keys)}
    (moved,) = advances(old, new).values()
    assert len(moved) == 39
    first, second = choose_shards(moved, 0), choose_shards(moved, 1)
    assert len(first) == len(second) == 12
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    ("millis_behind", "end", "count"),
    [(5000, "12", None), (5000, "10", 1), (0, "12", 1)],
)
def test_a_page_that_does_not_reach_the_end_is_not_counted(
    millis_behind: int, end: str, count: int | None
) -> None:
    page = Page([Record("10", b"")], "next", millis_behind)
    assert count_until(page, Position(end)) == count

"""Test the counts of records that a seek skips and re-reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.config import STATE_STORE
from kinesumer.core.lineage import Origin, first_rows
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start, Stream
from kinesumer.ops.group.connect import NO_ROLES, connect, operator_context
from kinesumer.ops.group.seek import plan_seeks
from kinesumer.ops.group.seek_counts import (
    Count,
    count_seek,
    describe_count,
    describe_seek,
    total,
)
from kinesumer.ops.group.shard_reads import PacedReader
from kinesumer.ports import StateStore
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire import shard_writes, writes

SHARD = "shardId-000000000000"
OLDEST, LATEST = Start.TRIM_HORIZON, Start.LATEST
NOW = 1_769_861_600.0  # 2026-01-31T12:13:20Z


class Orders:
    """A stream of one shard, of which an app has read some records."""

    def __init__(
        self, aws: EmbeddedAws, name: str, clients: ClientFactory, store: StateStore
    ) -> None:
        self.aws, self.name = aws, name
        self.clients, self.store = clients, store
        self.numbers: list[str] = []
        aws.create_stream(name, 1)

    def put(self, count: int, every_seconds: float = 0.0) -> None:
        """Put records, and advance the time after each of them."""
        for _ in range(count):
            self.numbers.append(self.aws.put(self.name, b"order", "key")[1])
            if every_seconds:
                self.aws.advance(every_seconds)
        self.aws.advance(2)  # LATEST is a time in whole seconds

    async def read(self, count: int | None, *, ended: bool = False) -> None:
        """Store the position after some records, or no position if None."""
        source = await open_source(self.clients, Stream(self.name))
        info = await source.describe()
        stream, write = StreamRow(info.arn, info.created_at, OLDEST), self.store.write
        await write(writes.create_group(self.name, "made by hand"))
        await write(writes.create_stream(self.name, stream))
        for row in first_rows(Origin(stream), await source.list_shards()):
            if row.key.shard_id == SHARD and count is not None:
                position = Position(self.numbers[count - 1])
                row = row._replace(position=position, ended=ended)
            await write(shard_writes.create_shard(self.name, row))
        await write(writes.baseline(self.name, stream))

    async def count(self, to: Position | Start, shard: str | None = None) -> Count:
        """Return the number of records that a seek would skip or repeat, no times."""
        count = await self.preview(to, shard)
        return count._replace(seconds_behind=None, repeated_since=None)

    async def preview(self, to: Position | Start, shard: str | None = None) -> Count:
        """Return the whole count of a seek."""
        context = operator_context(self.name, self.store)
        [plan] = await plan_seeks(context, self.clients, NO_ROLES, to, self.name, shard)
        # No other client reads this shard, so reads needn't keep an interval.
        counts = await count_seek(plan, PacedReader())
        assert all(id_ in "\n".join(describe_seek(plan, counts)) for id_ in counts)
        return total(list(counts.values()))


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    with background(EmbeddedAws()) as aws, pytest.MonkeyPatch.context() as patch:
        for name, value in aws.environment().items():
            patch.setenv(name, value)
        aws.create_table()
        yield aws


@pytest.fixture
async def orders(
    aws: EmbeddedAws, request: pytest.FixtureRequest
) -> AsyncIterator[Orders]:
    """Create a stream for this test, and name the app like the stream."""
    async with connect(STATE_STORE, None) as (clients, store):
        yield Orders(aws, request.node.name, clients, store)


async def test_records_between_the_position_and_the_target_are_counted(
    orders: Orders,
) -> None:
    orders.put(10)
    orders.aws.advance(3600)
    orders.put(5)
    await orders.read(10)
    assert await orders.count(LATEST) == Count(skipped=5)
    assert await orders.count(OLDEST) == Count(repeated=10)
    third = Position(orders.numbers[2])
    assert await orders.count(third, SHARD) == Count(repeated=7)
    assert await orders.count(Position(orders.numbers[12]), SHARD) == Count(skipped=3)
    assert await orders.count(Position(orders.numbers[9]), SHARD) == Count()


async def test_records_of_an_unread_shard_are_only_skipped(orders: Orders) -> None:
    orders.put(4)
    await orders.read(None)
    assert await orders.count(OLDEST) == Count()
    assert await orders.count(LATEST) == Count(skipped=4)


async def test_all_of_an_ended_shard_is_repeated(orders: Orders) -> None:
    orders.put(3)
    orders.aws.split(orders.name, SHARD)
    await orders.read(3, ended=True)
    assert await orders.count(OLDEST) == Count(repeated=3)


async def test_several_pages_are_counted(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.group.shard_reads.SAMPLE_RECORDS", 100)
    orders.put(250)
    await orders.read(240)
    assert await orders.count(OLDEST) == Count(repeated=240)


async def test_many_records_are_estimated(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.ops.group.seek_counts.MAX_READS", 3)
    monkeypatch.setattr("kinesumer.ops.group.shard_reads.SAMPLE_RECORDS", 100)
    orders.put(1_250, every_seconds=0.5)
    await orders.read(1_250)
    orders.put(1_500, every_seconds=0.5)
    forward, back = await orders.count(LATEST), await orders.count(OLDEST)
    assert (forward.exact, back.exact) == (False, False)
    assert 1_400 <= forward.skipped <= 1_600
    assert 1_150 <= back.repeated <= 1_350


async def test_an_unreadable_shard_is_reported(orders: Orders) -> None:
    orders.put(3)
    await orders.read(1)
    orders.aws.deny("kinesis:GetRecords", f"*/{orders.name}")
    count = await orders.count(LATEST)
    assert "access denied: kinesis:GetRecords" in count.problem
    text = describe_count(count, NOW)
    assert text.startswith("not all could be counted: access denied")


async def test_a_preview_knows_the_lag_and_the_time_of_the_first_repeated_record(
    orders: Orders,
) -> None:
    orders.put(10)
    orders.aws.advance(3600)
    orders.put(10)
    await orders.read(20)
    back = await orders.preview(OLDEST)
    later = await orders.preview(Position(orders.numbers[9]), SHARD)
    assert back.seconds_behind == later.seconds_behind == 0
    assert back.repeated_since and later.repeated_since
    assert later.repeated_since - back.repeated_since == pytest.approx(3602, abs=20)
    orders.put(1)
    orders.aws.advance(40)
    forward = await orders.preview(LATEST)
    assert forward.seconds_behind == pytest.approx(42, abs=20)
    assert forward.repeated_since is None

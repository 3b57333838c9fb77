"""What a seek skips and repeats is counted before it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.admin.arguments import describe_count, describe_seek
from kinesumer.admin.connect import NO_ROLES, connect
from kinesumer.admin.context import operator_context
from kinesumer.admin.seek import SeekTarget, plan_seeks
from kinesumer.admin.seek_counts import Count, count_seek, total
from kinesumer.aws.kinesis import open_source
from kinesumer.core.lineage import Origin, first_rows
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start, Stream
from kinesumer.wire import writes

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

TABLE = "kinesumer-state-store"
SHARD = "shardId-000000000000"
OLDEST, LATEST = Start.TRIM_HORIZON, Start.LATEST


class Orders:
    """A stream of one shard; app a has read some of its records."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.numbers: list[str] = []
        aws.create_stream("orders", 1)

    def put(self, count: int, every_seconds: float = 0.0) -> None:
        """Put records, and let time pass between them."""
        for _ in range(count):
            self.numbers.append(self.aws.put("orders", b"order", "key")[1])
            if every_seconds:
                self.aws.advance(every_seconds)
        self.aws.advance(2)  # LATEST is a whole second

    async def read(self, count: int | None, *, ended: bool = False) -> None:
        """Store the position after so many records; None: no position."""
        async with connect(TABLE, None) as (clients, store):
            source = await open_source(clients, Stream("orders"))
            info = await source.describe()
            stream = StreamRow(info.arn, info.created_at, OLDEST)
            await store.write(writes.create_group("a", "made by hand"))
            await store.write(writes.create_stream("a", stream))
            for row in first_rows(Origin(stream), await source.list_shards()):
                if row.key.shard_id == SHARD and count is not None:
                    position = Position(self.numbers[count - 1])
                    row = row._replace(position=position, ended=ended)
                await store.write(writes.create_shard("a", row))
            await store.write(writes.baseline("a", stream))

    async def count(self, to: Position | Start, shard: str | None = None) -> Count:
        """Return what a seek would do."""
        async with connect(TABLE, None) as (clients, store):
            place = SeekTarget(to, "orders", shard)
            context = operator_context("a", store)
            [plan] = await plan_seeks(context, clients, place, NO_ROLES)
            counts = await count_seek(plan)
            assert all(id_ in "\n".join(describe_seek(plan, counts)) for id_ in counts)
            return total(list(counts.values()))


@pytest.fixture
def orders(kinesumer_aws: EmbeddedAws) -> Orders:
    return Orders(kinesumer_aws)


async def test_what_lies_between_the_position_and_the_place_is_counted(
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


async def test_of_a_shard_that_was_never_read_nothing_is_repeated(
    orders: Orders,
) -> None:
    orders.put(4)
    await orders.read(None)
    assert await orders.count(OLDEST) == Count()
    assert await orders.count(LATEST) == Count(skipped=4)


async def test_all_of_an_ended_shard_is_repeated(orders: Orders) -> None:
    orders.put(3)
    orders.aws.split("orders", SHARD)
    await orders.read(3, ended=True)
    assert await orders.count(OLDEST) == Count(repeated=3)


async def test_several_pages_are_counted(orders: Orders) -> None:
    orders.put(2500)
    await orders.read(2400)
    assert await orders.count(OLDEST) == Count(repeated=2400)


async def test_many_records_are_estimated(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.admin.seek_counts.READ_INTERVAL_SECONDS", 0.0)
    orders.put(12_500, every_seconds=0.5)
    await orders.read(12_500)
    orders.put(15_000, every_seconds=0.5)
    forth, back = await orders.count(LATEST), await orders.count(OLDEST)
    assert (forth.exact, back.exact) == (False, False)
    assert 14_000 <= forth.skipped <= 16_000
    assert 11_500 <= back.repeated <= 13_500


async def test_a_shard_that_cannot_be_read_is_told(orders: Orders) -> None:
    orders.put(3)
    await orders.read(1)
    orders.aws.deny("kinesis:GetRecords")
    found = await orders.count(LATEST)
    assert "access denied: kinesis:GetRecords" in found.problem
    assert describe_count(found).startswith("not all could be counted: access denied")


def test_counts_in_words() -> None:
    assert describe_count(Count()) == "skips and repeats nothing"
    assert describe_count(Count(1)) == "skips 1 record"
    assert describe_count(Count(1234, 1, exact=False)) == (
        "skips about 1,234 records, repeats about 1 record"
    )
    unknown = Count(problem="no answer")
    assert describe_count(total([Count(3), unknown])) == (
        "skips 3 records; not all could be counted: no answer"
    )

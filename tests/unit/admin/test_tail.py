"""The tail of a stream in memory."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from kinesumer.admin.tail import ParentFirstOrder, Tail
from kinesumer.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.runtime.clock import SystemClock
from kinesumer.simulation.memory_kinesis import MemoryKinesis, MemorySource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.ports import Reservation


class EnoughError(Exception):
    """Raised after the expected number of records."""


class Flaky(MemorySource):
    """A source whose calls fail as configured."""

    def __init__(self, kinesis: MemoryKinesis) -> None:
        super().__init__(kinesis, "orders")
        self.reads: list[KinesumerError] = []
        self.iterators: list[KinesumerError] = []
        self.listings: list[KinesumerError | None] = []
        self.names_children = True

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        if self.iterators:
            raise self.iterators.pop(0)
        return await super().get_iterator(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        if self.reads:
            raise self.reads.pop(0)
        page = await super().get_records(iterator, limit, room)
        return page if self.names_children else page._replace(children=())

    async def list_shards(self) -> Sequence[Shard]:
        if self.listings and (error := self.listings.pop(0)) is not None:
            raise error
        return await super().list_shards()


class Reading:
    """A stream with one shard, and its tail."""

    def __init__(self) -> None:
        self.kinesis = MemoryKinesis(SystemClock(), reads_per_second=0)
        self.kinesis.create_stream("orders")
        self.source = Flaky(self.kinesis)
        self.seen: list[tuple[str, bytes]] = []
        self.said: list[str] = []

    def put(self, *texts: bytes) -> None:
        for text in texts:
            self.kinesis.put("orders", text, text.decode())

    async def tail(self, count: int, start: Start = Start.TRIM_HORIZON) -> list[bytes]:
        """Read a number of records."""

        async def take(records: Sequence[Record]) -> None:
            self.seen += [(record.shard_id, record.data) for record in records]
            if len(self.seen) >= count:
                raise EnoughError

        tail = Tail(
            self.source,
            await self.source.describe(),
            take,
            report=self.said.append,
            clock=SystemClock(),
            chance=random.Random(1),
        )
        async with asyncio.timeout(20):
            with pytest.raises(EnoughError):
                await tail.run(start)
        return [data for _, data in self.seen]


@pytest.fixture
def orders() -> Reading:
    return Reading()


async def test_children_come_after_their_parents(orders: Reading) -> None:
    orders.put(b"a", b"b", b"c")
    left, right = orders.kinesis.split("orders", "shardId-000000000000")
    orders.put(b"d", b"e")
    orders.kinesis.merge("orders", left, right)
    orders.put(b"f")
    data = await orders.tail(6)
    assert data[:3] == [b"a", b"b", b"c"]
    assert sorted(data[3:5]) == [b"d", b"e"]
    assert data[5] == b"f"


async def test_children_that_no_page_names_are_looked_up(orders: Reading) -> None:
    orders.source.names_children = False
    orders.put(b"a")
    orders.kinesis.split("orders", "shardId-000000000000")
    orders.put(b"b")
    orders.source.listings = [None, SourceUnavailableError("503")]
    assert await orders.tail(2) == [b"a", b"b"]
    assert orders.said == ["503; trying again"]


async def test_a_split_while_it_reads_the_latest_is_followed(orders: Reading) -> None:
    orders.put(b"before")
    reading = asyncio.create_task(orders.tail(3, Start.LATEST))
    await asyncio.sleep(0.1)
    orders.put(b"a")
    orders.kinesis.split("orders", "shardId-000000000000")
    orders.put(b"b", b"c")
    data = await reading
    assert data[0] == b"a"
    assert sorted(data) == [b"a", b"b", b"c"]


async def test_transient_errors_lose_nothing_and_are_reported_once(
    orders: Reading,
) -> None:
    orders.put(b"a", b"b")
    orders.source.reads = [
        ShardThrottledError("five reads a second"),
        SourceThrottledError("slow down"),
        SourceUnavailableError("503"),
        SourceUnavailableError("503"),
        ExpiredIteratorError("too old"),
    ]
    assert await orders.tail(2) == [b"a", b"b"]
    assert orders.said == ["503; trying again"]


async def test_an_expired_iterator_continues_after_the_last_record(
    orders: Reading,
) -> None:
    orders.put(b"a")
    reading = asyncio.create_task(orders.tail(2))
    while not orders.seen:
        await asyncio.sleep(0.01)
    orders.source.reads = [ExpiredIteratorError("too old")]
    orders.put(b"b")
    assert await reading == [b"a", b"b"]


async def test_the_latest_is_resolved_once(orders: Reading) -> None:
    reading = asyncio.create_task(orders.tail(1, Start.LATEST))
    await asyncio.sleep(0.1)
    orders.source.reads = [ExpiredIteratorError("too old")]
    orders.put(b"a")
    assert await reading == [b"a"]


async def test_expired_records_are_reported(orders: Reading) -> None:
    orders.put(b"a")
    orders.source.iterators = [TrimmedPositionError("gone")]
    start = Start(type="AT_TIMESTAMP", timestamp=1.0)
    assert await orders.tail(1, start) == [b"a"]
    assert orders.said == ["records older than the retention were lost: gone"]


async def test_a_shard_that_is_gone_ends_and_its_children_follow(
    orders: Reading,
) -> None:
    orders.kinesis.split("orders", "shardId-000000000000")
    orders.put(b"a")
    orders.source.iterators = [ShardMissingError("no such shard")]
    assert await orders.tail(1) == [b"a"]
    assert orders.said == ["no such shard"]


async def test_a_permanent_error_ends_it(orders: Reading) -> None:
    orders.source.iterators = [AccessDeniedError("kinesis:GetShardIterator", "orders")]
    with pytest.raises(AccessDeniedError):
        await orders.tail(1)


HALF = HASH_KEYS // 2
ALL = HASH_KEYS - 1
TIME = Start(type="AT_TIMESTAMP", timestamp=1.0)
PARENT = Shard("0", 0, ALL, (), True)
LEFT, RIGHT = Shard("1", 0, HALF - 1, ("0",)), Shard("2", HALF, ALL, ("0",))
MERGED = Shard("3", 0, ALL, ("1", "2"))


def begun(descent: ParentFirstOrder) -> dict[str, Start]:
    return {shard.shard_id: start for shard, start in descent.ready()}


def test_a_split_waits_for_its_parent_and_a_merge_for_both() -> None:
    descent = ParentFirstOrder([PARENT, LEFT, RIGHT, MERGED], TIME)
    assert begun(descent) == {"0": TIME}
    assert begun(descent) == {}
    descent.end("0", [LEFT, RIGHT])
    assert begun(descent) == {"1": TIME, "2": TIME}
    descent.end("1", [MERGED])
    assert begun(descent) == {}
    descent.end("2", [MERGED])
    assert begun(descent) == {"3": TIME}


def test_unlisted_parents_arent_awaited() -> None:
    assert begun(ParentFirstOrder([LEFT, RIGHT], Start.TRIM_HORIZON)) == {
        "1": Start.TRIM_HORIZON,
        "2": Start.TRIM_HORIZON,
    }


def test_from_the_latest_on_only_open_shards_count() -> None:
    assert begun(ParentFirstOrder([PARENT, LEFT, RIGHT], Start.LATEST)) == {
        "1": Start.LATEST,
        "2": Start.LATEST,
    }


def test_shards_created_later_are_read_from_their_beginning() -> None:
    descent = ParentFirstOrder([LEFT, RIGHT], Start.LATEST)
    assert set(begun(descent)) == {"1", "2"}
    descent.end("1", [MERGED])
    descent.end("2", [MERGED])
    assert begun(descent) == {"3": Start.TRIM_HORIZON}

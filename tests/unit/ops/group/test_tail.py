"""Test the tail of a stream in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.ops.group.records import ParentFirstOrder, Tail
from kinesumer.ports import Reservation
from kinesumer.testing.memory import MemorySource
from tests.support.faulty import FaultySource
from tests.support.world import World


class EnoughError(Exception):
    """Stops a tail after the expected number of records."""


class Flaky(FaultySource):
    """A source whose calls raise the errors that a test has queued."""

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source)
        self.iterator_errors: list[KinesumerError] = []
        self.listing_errors: list[KinesumerError | None] = []
        self.names_children = True

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        if self.iterator_errors:
            raise self.iterator_errors.pop(0)
        return await super().get_iterator(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        page = await super().get_records(iterator, limit, room)
        return page if self.names_children else page._replace(children=())

    async def list_shards(self) -> Sequence[Shard]:
        errors = self.listing_errors
        if errors and (error := errors.pop(0)) is not None:
            raise error
        return await super().list_shards()


class Orders:
    """A stream with one shard, and the records that a tail has read from it."""

    def __init__(self, world: World) -> None:
        self.kinesis, self.clock = world.kinesis, world.clock
        self.source = Flaky(world.kinesis.source("orders"))
        self.records: list[bytes] = []
        self.messages: list[str] = []

    def put(self, *texts: bytes) -> None:
        for text in texts:
            self.kinesis.put("orders", text, text.decode())

    def split(self) -> list[str]:
        return self.kinesis.split("orders", "shardId-000000000000")

    async def tail(self, count: int, start: Start = Start.TRIM_HORIZON) -> list[bytes]:
        """Tail the stream until ``count`` records were read; return them."""

        async def handle(records: Sequence[Record]) -> None:
            self.records += [record.data for record in records]
            if len(self.records) >= count:
                raise EnoughError

        tail = Tail(
            self.source,
            await self.source.describe(),
            handle,
            report=self.messages.append,
            clock=self.clock,
            chance=random.Random(1),
        )
        async with asyncio.timeout(20):
            with pytest.raises(EnoughError):
                await tail.run(start)
        return self.records


async def test_children_come_after_their_parents(world: World) -> None:
    orders = Orders(world)
    orders.put(b"a", b"b", b"c")
    left, right = orders.split()
    orders.put(b"d", b"e")
    orders.kinesis.merge("orders", left, right)
    orders.put(b"f")
    data = await orders.tail(6)
    assert data[:3] == [b"a", b"b", b"c"]
    assert sorted(data[3:5]) == [b"d", b"e"]
    assert data[5] == b"f"


async def test_pages_without_an_iterator_do_not_end_an_open_shard(world: World) -> None:
    orders = Orders(world)
    orders.source.without_iterator = 3
    orders.put(b"a")
    reading = asyncio.ensure_future(orders.tail(2))
    await asyncio.sleep(8)
    assert orders.source.without_iterator == 0
    orders.put(b"b")
    assert await reading == [b"a", b"b"]
    [message] = orders.messages
    assert message.startswith("shard shardId-000000000000 is open, but GetRecords")


async def test_children_that_no_page_names_are_listed(world: World) -> None:
    orders = Orders(world)
    orders.source.names_children = False
    orders.put(b"a")
    orders.split()
    orders.put(b"b")
    orders.source.listing_errors = [None, SourceUnavailableError("503")]
    assert await orders.tail(2) == [b"a", b"b"]
    assert orders.messages == ["503; trying again"]


async def test_a_split_while_it_reads_the_latest_is_followed(world: World) -> None:
    orders = Orders(world)
    orders.put(b"before")
    reading = asyncio.create_task(orders.tail(3, Start.LATEST))
    await asyncio.sleep(0.1)
    orders.put(b"a")
    orders.split()
    orders.put(b"b", b"c")
    data = await reading
    assert data[0] == b"a"
    assert sorted(data) == [b"a", b"b", b"c"]


async def test_transient_errors_lose_nothing_and_are_reported_once(
    world: World,
) -> None:
    orders = Orders(world)
    orders.put(b"a", b"b")
    orders.source.errors += [
        ShardThrottledError("five reads a second"),
        SourceThrottledError("slow down"),
        SourceUnavailableError("503"),
        SourceUnavailableError("503"),
        ExpiredIteratorError("too old"),
    ]
    assert await orders.tail(2) == [b"a", b"b"]
    assert orders.messages == ["503; trying again"]


async def test_an_expired_iterator_continues_after_the_last_record(
    world: World,
) -> None:
    orders = Orders(world)
    orders.put(b"a")
    reading = asyncio.create_task(orders.tail(2))
    await world.until(lambda: orders.records)
    orders.source.errors.append(ExpiredIteratorError("too old"))
    orders.put(b"b")
    assert await reading == [b"a", b"b"]


async def test_latest_is_resolved_once(world: World) -> None:
    orders = Orders(world)
    reading = asyncio.create_task(orders.tail(1, Start.LATEST))
    await asyncio.sleep(0.1)
    orders.source.errors.append(ExpiredIteratorError("too old"))
    orders.put(b"a")
    assert await reading == [b"a"]


@pytest.mark.parametrize(
    ("error", "message", "left"),
    [
        (
            TrimmedPositionError("x"),
            "records older than the retention were lost: x",
            [b"a", b"b"],
        ),
        (ShardMissingError("no such shard"), "no such shard", [b"b"]),
    ],
)
async def test_what_is_lost_is_reported_and_reading_goes_on(
    world: World, error: KinesumerError, message: str, left: list[bytes]
) -> None:
    orders = Orders(world)
    orders.put(b"a")
    orders.split()
    orders.put(b"b")
    orders.source.iterator_errors = [error]
    assert await orders.tail(len(left), TIME) == left
    assert orders.messages == [message]


HALF = HASH_KEYS // 2
ALL = HASH_KEYS - 1
TIME = Start(type="AT_TIMESTAMP", timestamp=1.0)
PARENT = Shard("0", 0, ALL, (), "9")
LEFT, RIGHT = Shard("1", 0, HALF - 1, ("0",)), Shard("2", HALF, ALL, ("0",))
MERGED = Shard("3", 0, ALL, ("1", "2"))


def begun(order: ParentFirstOrder) -> dict[str, Start]:
    return {shard.shard_id: start for shard, start in order.ready()}


def test_a_split_waits_for_its_parent_and_a_merge_for_both() -> None:
    order = ParentFirstOrder([PARENT, LEFT, RIGHT, MERGED], TIME)
    assert begun(order) == {"0": TIME}
    assert begun(order) == {}
    order.end("0", [LEFT, RIGHT])
    assert begun(order) == {"1": TIME, "2": TIME}
    order.end("1", [MERGED])
    assert begun(order) == {}
    order.end("2", [MERGED])
    assert begun(order) == {"3": TIME}


def test_unlisted_parents_arent_awaited() -> None:
    order = ParentFirstOrder([LEFT, RIGHT], Start.TRIM_HORIZON)
    assert begun(order) == dict.fromkeys("12", Start.TRIM_HORIZON)


def test_with_latest_only_open_shards_are_read() -> None:
    order = ParentFirstOrder([PARENT, LEFT, RIGHT], Start.LATEST)
    assert begun(order) == dict.fromkeys("12", Start.LATEST)

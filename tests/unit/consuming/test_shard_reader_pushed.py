"""Test that a shard is read by events as they come, and that its end releases it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kinesumer.consuming.shard_reader import PUSHED_SLACK_SECONDS
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.ports import Reservation
from tests.support.delivery import BUDGET, ReaderDesk
from tests.support.faulty import FaultySource
from tests.support.world import SHARD, World

DELIVERY_SECONDS = 0.07


class PushingSource(FaultySource):
    """A source whose reads wait for an event, as those of a subscription do."""

    def __init__(self, world: World) -> None:
        super().__init__(world.kinesis.source("orders"))
        world.kinesis.reads_per_second = 0  # subscriptions are not limited by reads
        self.released: list[str] = []
        self.event_records = 1000

    def is_pushed(self, iterator: str) -> bool:
        """Return True."""
        return True

    def release(self, shard_id: str) -> None:
        """Note that the reader needs no subscription any more."""
        self.released.append(shard_id)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Wait for records or the shard's end, and then for memory."""
        following: str | None = iterator
        while following is not None:
            page = await super().get_records(following, self.event_records)
            if page.records or page.next_iterator is None:
                break
            following = page.next_iterator
            await asyncio.sleep(DELIVERY_SECONDS)
        if reservation is not None and not reservation.covers(page.wire_bytes):
            await reservation.grow(page.wire_bytes)
        return page


def subscribe(world: World, **options: Any) -> ReaderDesk:
    """Return a running reader of a subscription."""
    desk = ReaderDesk(world, source=PushingSource(world), **options)
    desk.start()
    return desk


def released(desk: ReaderDesk) -> Sequence[str]:
    assert isinstance(desk.source, PushingSource)
    return desk.source.released


async def test_events_are_taken_as_fast_as_they_come(world: World) -> None:
    # Polling would take each page one second, and be throttled after five of them.
    world.put(*map(str, range(200)))
    desk = subscribe(world, pace=1.0)
    assert isinstance(desk.source, PushingSource)
    desk.source.event_records = 1
    began = world.clock.now()
    assert await desk.read(200) == [str(number) for number in range(200)]
    assert world.clock.now() - began < 1.0
    moment = world.clock.now()
    world.put("later")
    await desk.read(201)
    assert world.clock.now() - moment < 2 * DELIVERY_SECONDS


async def test_a_subscription_without_events_holds_no_memory(world: World) -> None:
    desks = [subscribe(world) for _ in range(2)]
    for seconds in (0.01, 10, 100):
        await asyncio.sleep(seconds)
        assert [desk.buffer.used for desk in desks] == [0, 0]
    world.put("a" * 1000)
    await desks[0].read(1)
    assert desks[0].buffer.used == desks[0].batches[0].size


async def test_an_event_waits_until_the_buffer_has_room(world: World) -> None:
    desk = subscribe(world)
    await desk.buffer.reserve(BUDGET)
    world.put("a" * 100_000, "b")
    await asyncio.sleep(300)
    assert desk.texts == []
    assert desk.buffer.used == BUDGET
    assert desk.stream.failing is None
    desk.buffer.release(BUDGET)
    assert [text[:1] for text in await desk.read(2)] == ["a", "b"]
    assert desk.buffer.used == sum(batch.size for batch in desk.batches)


async def test_slow_user_code_stops_the_reading_of_events(world: World) -> None:
    world.put(*map(str, range(100)))
    desk = subscribe(world, max_uncommitted_records=10)
    assert isinstance(desk.source, PushingSource)
    desk.source.event_records = 5
    await asyncio.sleep(100)
    assert len(desk.records) == 10
    assert len(desk.source.reads) <= 4
    for done in range(5, 101, 5):
        desk.commit(done)
        await asyncio.sleep(0.1)
    assert desk.texts == [str(number) for number in range(100)]


async def test_a_broken_subscription_begins_after_the_last_record(world: World) -> None:
    desk = subscribe(world)
    world.put("a", "b")
    await desk.read(2)
    last = desk.records[-1].sequence_number
    desk.source.errors.append(SourceUnavailableError("reset"))
    world.put("c")
    assert await desk.read(3) == ["a", "b", "c"]
    assert desk.source.iterators[-1] == (SHARD, Position(last))


async def test_renewals_that_fail_are_tried_more_and_more_slowly(world: World) -> None:
    desk = subscribe(world)
    desk.source.errors.extend(SourceUnavailableError("refused") for _ in range(8))
    world.put("a")
    assert await desk.read(1) == ["a"]
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert sum(gaps[4:8]) > sum(gaps[:4])


# --- the end of a reader ---


async def test_a_reader_that_loses_its_shard_ends_the_subscription(
    world: World,
) -> None:
    # Otherwise it would go on for minutes, and AWS would count what it sends.
    desk = subscribe(world)
    world.put("a")
    await desk.read(1)
    assert released(desk) == []
    desk.owned.lose()
    await asyncio.wait([desk.task])
    assert released(desk) == [SHARD]
    world.put("b")
    await asyncio.sleep(60)
    assert desk.texts == ["a"]


async def test_a_reader_that_ends_its_shard_ends_the_subscription(
    world: World,
) -> None:
    world.put("a")
    low, high = world.kinesis.split("orders", SHARD)
    desk = subscribe(world)
    await desk.task
    assert desk.texts == ["a"]
    assert desk.owned.children is not None
    assert [child.shard_id for child in desk.owned.children] == [low, high]
    assert released(desk) == [SHARD]


async def test_an_event_may_have_waited_as_long_as_a_subscription_lasts(
    world: World,
) -> None:
    # What arrived after it was sent must not count as read.
    desk = subscribe(world)
    desk.stream.service_time.observe_date(world.clock.wall(), world.clock.now())
    world.put("a")
    await desk.read(1)
    read_until = desk.owned.read_until
    assert 0 < read_until <= world.clock.wall() - PUSHED_SLACK_SECONDS + 1

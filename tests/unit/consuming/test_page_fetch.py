"""Test that all shards progress in bounded memory on networks of any speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from kinesumer.aws.polling import ANSWER_SECONDS
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.pacing import CALL_SECONDS, FEWEST_READS_PER_SECOND
from kinesumer.errors import (
    ChildrenUnknownError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.delivery import BUDGET, ReaderDesk, read_shard, refuse_memory
from tests.support.links import Crowd
from tests.support.world import World

MB = 1_000_000
PAGE = 10 * MB  # bytes of records


async def test_after_an_outage_no_answer_is_dropped(world: World) -> None:
    crowd = Crowd(world, 14, rate=4 * MB)
    crowd.put(1000, 1)
    await crowd.until(1, 60)
    await asyncio.sleep(10)  # all shards are caught up, so readers expect small pages
    crowd.source.down = True
    await asyncio.sleep(20)
    crowd.put(MB, 10)
    crowd.source.down = False
    began = world.clock.now()
    await crowd.until(11, 70)
    ideal = 14 * PAGE * 4 / 3 / (4 * MB)
    assert world.clock.now() - began < ideal + 15
    assert crowd.source.late == 0
    assert crowd.failed_seconds < 30


async def test_many_shards_are_first_read_at_the_same_time(world: World) -> None:
    crowd = Crowd(world, 400, rate=1000 * MB)
    crowd.put(100, 1)
    await crowd.until(1, 1)


@pytest.mark.parametrize("size", [2_000, 100_000, MB])
async def test_a_link_that_carries_no_page_in_time_is_asked_for_fewer_records(
    world: World, size: int
) -> None:
    crowd = Crowd(world, 3, rate=0.2 * MB)
    crowd.put(size, 6 * MB // size)
    began = world.clock.now()
    await crowd.until(6 * MB // size, 600)
    ideal = 3 * 6 * MB * 4 / 3 / (0.2 * MB)
    assert world.clock.now() - began < ideal + 7 * ANSWER_SECONDS
    assert min(crowd.source.limits) < 10_000
    assert crowd.failed_seconds == 0


async def test_an_answer_that_waits_for_memory_is_not_a_failure(world: World) -> None:
    crowd = Crowd(world, 1, rate=4 * MB)
    [owned] = crowd.owned_shards
    await asyncio.sleep(10)
    await crowd.buffer.reserve(crowd.budget - 100_000)
    crowd.put(MB, 10)
    await asyncio.sleep(5)
    assert crowd.received.total() == crowd.link.bytes_in_flight == 0
    assert owned.request_since is None
    await asyncio.sleep(100)  # the page needs more memory than is free
    assert len(crowd.source.limits) < 60
    assert crowd.received.total() == 0
    assert owned.request_since is None
    crowd.buffer.release(crowd.budget - 100_000)
    await crowd.until(10, 30)
    assert crowd.source.late == 0
    assert crowd.stream.failing is None


async def test_a_link_that_is_too_slow_counts_as_failing(world: World) -> None:
    crowd = Crowd(world, 1, rate=1000)
    crowd.put(MB, 10)
    with pytest.raises(TimeoutError):
        await crowd.until(1, 900)
    assert crowd.failed_seconds > 30


async def test_aggregates_are_opened_as_memory_allows(world: World) -> None:
    crowd = Crowd(world, 4, rate=1000 * MB)
    frame = aggregate([Entry(b"x" * 20, "key", None)] * 35_000)
    for shard in world.kinesis.stream(crowd.name).open:
        for _ in range(4):
            first = shard.shard.first_hash
            world.kinesis.put(crowd.name, frame, explicit_hash_key=first)
    await crowd.until(140_000, 600)
    assert crowd.most_used > crowd.budget // 4
    await asyncio.sleep(1)
    assert crowd.buffer.used <= FULL_PAGE_BYTES
    assert crowd.buffer.opened == crowd.buffer.delivered == 0


async def test_records_for_which_there_is_no_memory_are_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    assert await desk.read(2) == ["a", "b"]
    refuse_memory(monkeypatch, times=3)
    world.put("c", "d")
    assert await desk.read(4) == ["a", "b", "c", "d"]


async def test_throttled_reads_back_off_and_lose_nothing(world: World) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    desk.source.errors.extend(SourceThrottledError("slow down") for _ in range(12))
    desk.start()
    assert await desk.read(1) == ["a"]
    reads = desk.source.reads
    gaps = [after - before for before, after in pairwise(reads)]
    assert min(gaps) >= 0.199
    assert sum(gaps[8:12]) > sum(gaps[:4])


async def test_an_end_whose_children_are_unknown_is_read_again_without_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    desk = read_shard(world)
    await asyncio.sleep(1)
    desk.source.errors.extend(ChildrenUnknownError("not yet") for _ in range(3))
    await asyncio.sleep(20)
    assert not desk.source.errors
    world.put("a")
    assert await desk.read(1) == ["a"]
    assert desk.stream.failing is None
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


async def test_an_iterator_that_is_refused_is_not_requested_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, asked = ReaderDesk(world), []

    async def refuse(_shard_id: str, _after: Position | Start) -> str:
        asked.append(world.clock.now())
        raise SourceThrottledError("slow down")

    monkeypatch.setattr(desk.source, "get_iterator", refuse)
    desk.start()
    await asyncio.sleep(10)
    gaps = [after - before for before, after in pairwise(asked)]
    assert min(gaps) >= 0.199


async def test_a_read_that_a_used_up_shard_refuses_is_soon_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    desk = read_shard(world)
    await asyncio.sleep(1)
    for _ in range(5):
        desk.source.errors.append(ShardThrottledError("five reads a second"))
        await asyncio.sleep(20)
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert max(gaps) <= 1 / FEWEST_READS_PER_SECOND + 0.001
    assert desk.stream.failing is None
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 1
    assert (
        "Kinesis throttles 'orders' "
        "(five reads per second and shard, shared by all apps)"
    ) in warnings[0]


async def test_a_page_is_limited_to_a_shards_second(world: World) -> None:
    world.put(*["x" * 10_000] * 2000)
    desk = read_shard(world)
    limits = desk.source.limits
    await desk.read(2000)
    assert limits[0] == 10_000
    assert len(limits) > 6
    assert all(150 <= limit <= 300 for limit in limits[1:])


async def test_a_reader_takes_its_part_of_a_shard_that_four_apps_read(
    world: World,
) -> None:
    desk = ReaderDesk(world)
    desk.stream.apps = 4
    desk.start()
    await asyncio.sleep(20)
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert min(gaps) == pytest.approx(4 * CALL_SECONDS)


async def test_a_throttled_read_makes_the_client_count_the_apps(world: World) -> None:
    desk = ReaderDesk(world)
    desk.source.errors.append(ShardThrottledError("too many reads"))
    desk.start()
    await asyncio.sleep(1)
    assert desk.stream.throttled_at == desk.source.reads[0]


async def test_an_unreachable_kinesis_is_awaited(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    desk = ReaderDesk(world)

    def failing() -> tuple[object, ...]:
        return (desk.stream.failing or ())[:2]

    desk.source.down = True
    desk.start()
    await asyncio.sleep(600)
    assert failing() == pytest.approx((0, 600), abs=6)
    desk.source.down = False
    assert await desk.read(1, seconds=6) == ["a"]
    assert failing() == ()
    world.put("b")
    await desk.read(2)
    await asyncio.sleep(10)
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert [text[:19] for text in warnings] == [
        "stream orders fails",
        "stream orders works",
    ]


async def test_a_wait_for_a_connection_is_not_held_against_kinesis(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, slow = ReaderDesk(world), True

    @asynccontextmanager
    async def connection() -> AsyncIterator[None]:
        await asyncio.sleep(400 if slow else 0)
        yield

    monkeypatch.setattr(desk.source, "connection", connection)
    desk.source.down = True
    desk.start()
    for _ in range(30):
        await asyncio.sleep(13)
        assert desk.owned.request_since is None  # so the watchdog reports nothing
    await asyncio.sleep(20)
    assert (desk.stream.failing or ())[:2] == pytest.approx((400, 400), abs=1)
    desk.source.down = slow = False
    world.put("a")
    await asyncio.sleep(400)
    assert desk.texts == ["a"]
    assert desk.stream.failing is None


async def test_a_kinesis_that_does_not_answer_holds_no_room_in_the_buffer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = ReaderDesk(world)
    desk.source.errors.append(SourceUnavailableError("timed out"))
    hanging = asyncio.Event()
    find = desk.source.get_iterator

    async def hang(shard_id: str, after: Position | Start) -> str:
        await hanging.wait()
        return await find(shard_id, after)

    monkeypatch.setattr(desk.source, "get_iterator", hang)
    desk.start()
    for _ in range(2):
        await asyncio.sleep(10)
        assert desk.buffer.used == 0
        hanging.set()
        await asyncio.sleep(0.01)
        hanging.clear()
    hanging.set()
    world.put("a")
    assert await desk.read(1) == ["a"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_was_reserved_and_not_needed_is_given_back(
    world: World, *, is_cancelled: bool
) -> None:
    world.put(*"abcdefg")
    desk = read_shard(world, max_uncommitted_records=4 if is_cancelled else 100)
    await asyncio.sleep(10)
    if is_cancelled:
        desk.owned.revoke()
        await asyncio.wait([desk.task])
    assert len(desk.texts) == (4 if is_cancelled else 7)
    assert desk.buffer.used == sum(batch.size for batch in desk.batches)


async def test_without_room_nothing_is_fetched(world: World) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    await desk.buffer.reserve(BUDGET)
    desk.start()
    await asyncio.sleep(60)
    assert desk.source.reads == []
    desk.buffer.release(BUDGET)
    assert await desk.read(1) == ["a"]


async def test_a_request_that_user_code_held_up_is_no_failure_of_kinesis(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_iterator: str, _limit: int, _room: object) -> None:
        await asyncio.sleep(1e9)

    desk = ReaderDesk(world)
    monkeypatch.setattr(desk.source, "get_records", wait)
    desk.start()
    # No watchdog ends the request here, as if the watchdog had seen that other code
    # blocks the event loop.
    await asyncio.sleep(1000)
    desk.task.cancel()
    await asyncio.wait([desk.task])
    assert desk.stream.failing is None

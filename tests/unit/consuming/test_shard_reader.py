"""Test that a shard is read without gaps or repeats, whatever fails in between."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import StreamInfo
from tests.support.delivery import ReaderDesk, block, read_shard
from tests.support.world import APP, SHARD, World


async def test_a_shard_is_read_from_its_beginning_and_followed(world: World) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    assert await desk.read(2) == ["a", "b"]
    world.put("c")
    assert await desk.read(3, seconds=0.5) == ["a", "b", "c"]
    owner = desk.owned.key, 1, APP
    assert {record.fence[:3] for record in desk.records} == {owner}
    assert desk.owned.millis_behind == 0


@pytest.mark.parametrize("held_seconds", [0.0, 30.0])
async def test_a_shard_is_read_five_times_a_second(
    world: World, held_seconds: float
) -> None:
    world.put(*map(str, range(50)))
    desk = ReaderDesk(world, max_records_per_read=1)
    measuring = world.loop.create_task(desk.context.loop_clock.run())
    await asyncio.sleep(1)
    # The loop's clock counts time as if user code had blocked the event loop.
    block(world, held_seconds)
    await asyncio.sleep(5)
    began = world.clock.now()
    desk.start()
    await desk.read(50)
    assert len(desk.source.reads) / (world.clock.now() - began) <= 5.2
    measuring.cancel()


async def test_a_stream_with_a_pace_of_its_own_is_read_at_that(world: World) -> None:
    desk = read_shard(world, pace=2.0)
    await asyncio.sleep(20)
    assert len(desk.source.reads) == 10


# --- what is gone ---


async def test_a_shard_that_has_expired_counts_as_ended(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.split("orders", SHARD)
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    desk = read_shard(world)
    await desk.task
    assert desk.owned.children == ()
    assert "retention has passed a whole shard: records may be lost" in caplog.text


async def test_a_shard_expires_only_for_a_session_with_a_lease(world: World) -> None:
    world.kinesis.split("orders", SHARD)
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    desk = ReaderDesk(world)
    desk.owned.lease.deadline = -math.inf
    desk.start()
    await asyncio.sleep(10)
    assert desk.owned.children is None
    desk.owned.lease.deadline = math.inf
    await desk.task
    assert desk.owned.children == ()


async def test_a_position_expires_only_for_a_session_with_a_lease(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    # Without one, another client may own the shard, and have read on.
    caplog.set_level("INFO")
    world.put("a")
    desk = ReaderDesk(world)
    desk.owned.lease.deadline = 5.0
    desk.start()
    await desk.read(1)
    await asyncio.sleep(10)
    desk.source.errors.append(TrimmedPositionError("gone"))
    await asyncio.sleep(10)
    assert "has expired" not in caplog.text
    desk.owned.lease.deadline = math.inf
    desk.source.errors.append(TrimmedPositionError("gone"))
    await asyncio.sleep(10)
    assert "has expired" in caplog.text


async def test_a_shard_of_a_recreated_stream_is_fatal(world: World) -> None:
    world.kinesis.split("orders", SHARD)
    desk = ReaderDesk(world, shard_id="shardId-000000000002")
    await asyncio.sleep(1)
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")
    desk.start()
    with pytest.raises(StreamRecreatedError, match=r"orders .* created again"):
        await desk.task


@pytest.mark.parametrize(
    "error", [ExpiredIteratorError("too old"), SourceUnavailableError("timed out")]
)
async def test_no_record_of_a_recreated_stream_is_read(
    world: World, error: Exception
) -> None:
    desk = read_shard(world)
    await asyncio.sleep(10)
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")
    world.put("of the new stream")
    desk.source.errors.append(error)
    with pytest.raises(StreamRecreatedError, match=r"orders .* created again"):
        await desk.task
    assert desk.texts == []


async def test_readers_confirm_a_stream_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = ReaderDesk(world)
    asked: list[float] = []
    describe = desk.source.describe

    async def count() -> StreamInfo:
        asked.append(world.clock.now())
        return await describe()

    monkeypatch.setattr(desk.source, "describe", count)
    for _ in range(3):
        now = world.clock.now()
        await asyncio.gather(*(desk.stream.confirm(now) for _ in range(100)))
        await asyncio.sleep(0.1)
    assert [later - first for first, later in pairwise(asked)] == pytest.approx([1, 1])


async def test_a_shard_with_a_position_is_read_without_a_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = world.kinesis.put("orders", b"a")
    world.put("b")
    desk = ReaderDesk(world, position=Position(first))
    await asyncio.sleep(10)

    async def describe() -> StreamInfo:
        raise SourceThrottledError("described too often")

    monkeypatch.setattr(desk.source, "describe", describe)
    desk.start()
    assert await desk.read(1) == ["b"]


async def test_a_position_in_a_recreated_stream_is_fatal(world: World) -> None:
    _, first = world.kinesis.put("orders", b"a")
    desk = ReaderDesk(world, position=Position(first))
    world.kinesis.delete_stream("orders")
    await asyncio.sleep(1)
    world.kinesis.create_stream("orders")
    world.put("of the new stream")
    desk.start()
    with pytest.raises(StreamRecreatedError, match=r"orders .* created again"):
        await desk.task
    assert desk.texts == []


async def test_a_stream_deleted_while_it_is_read_is_fatal(world: World) -> None:
    desk = read_shard(world)
    await asyncio.sleep(1)
    world.kinesis.delete_stream("orders")
    with pytest.raises(StreamMissingError, match="orders"):
        await desk.task


# --- memory ---


@pytest.mark.parametrize(("limit", "step"), [(1, 1), (4, 2)])
async def test_a_page_is_cut_at_half_of_max_uncommitted(
    world: World, limit: int, step: int
) -> None:
    world.put(*"abcdefg")
    desk = read_shard(world, max_uncommitted_records=limit)
    await asyncio.sleep(60)
    assert [len(batch) for batch in desk.batches] == [step] * (limit // step)
    for count in range(step, 7, step):
        desk.commit(count)
        await asyncio.sleep(1)
        assert len(desk.texts) == min(7, count + limit)
    assert "".join(desk.texts) == "abcdefg"


# --- open shards ---


async def test_answers_that_never_have_an_iterator_lose_nothing(world: World) -> None:
    desk = read_shard(world, max_records_per_read=2)
    desk.source.without_iterator = float("inf")
    texts = [str(number) for number in range(9)]
    for text in texts:
        world.put(text)
        await asyncio.sleep(1)
    assert await desk.read(9, seconds=10) == texts
    assert desk.stream.failing is None


async def test_reads_without_an_iterator_back_off(world: World) -> None:
    desk = read_shard(world)
    desk.source.without_iterator = float("inf")
    await asyncio.sleep(60)
    assert 15 <= len(desk.source.reads) <= 40


# --- closed shards ---


async def test_a_closed_shard_whose_children_are_not_named_ends_by_its_listing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    world.kinesis.split("orders", SHARD)
    desk = read_shard(world)
    desk.source.without_iterator = float("inf")
    await desk.task
    assert desk.texts == ["a"]
    assert desk.owned.children == ()
    assert desk.source.listings == 1
    assert not caplog.records


async def test_records_that_arrive_before_a_shard_closes_are_read(world: World) -> None:
    desk = read_shard(world)
    await asyncio.sleep(1)
    listed = desk.source.list_shards

    async def list_after_a_split() -> object:
        world.put("a", "b")
        world.kinesis.split("orders", SHARD)
        return await listed()

    desk.source.list_shards = list_after_a_split  # type: ignore[assignment, method-assign]
    desk.source.without_iterator = 1
    await desk.task
    assert desk.texts == ["a", "b"]


async def test_a_refused_position_waits_for_a_listing_with_its_shard(
    world: World,
) -> None:
    world.put("a")
    low, high = world.kinesis.split("orders", SHARD)
    number = world.kinesis.stream("orders").shard(SHARD).shard.ending_sequence_number
    assert number is not None
    desk = read_shard(world, position=Position(number))
    desk.source.listing = desk.source.list_shards_now()[1:]
    await asyncio.sleep(10)
    assert not desk.task.done()
    desk.source.listing = None
    await desk.task
    assert desk.texts == []
    assert desk.owned.children is not None
    assert [child.shard_id for child in desk.owned.children] == [low, high]


async def test_a_shard_that_is_listed_is_not_missing(world: World) -> None:
    world.put("a")
    desk = read_shard(world)
    desk.source.errors.extend(ShardMissingError("no such shard") for _ in range(3))
    assert await desk.read(1, seconds=10) == ["a"]
    assert not desk.task.done()

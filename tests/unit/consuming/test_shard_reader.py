"""Test that a shard is read without gaps or repeats, whatever fails in between."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kinesumer.core.fair_share import CALL_SECONDS, FEWEST_READS_PER_SECOND
from kinesumer.errors import (
    ExpiredIteratorError,
    KeyThrottledError,
    KeyUnavailableError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.testing.memory import MemorySource
from tests.support.delivery import BUDGET, ReaderDesk, read_shard, refuse_memory
from tests.support.world import APP, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.model.streams import StreamInfo

SHARD = "shardId-000000000000"


async def test_a_shard_is_read_from_its_beginning_and_followed(world: World) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    assert await desk.read(2) == ["a", "b"]
    world.put("c")
    assert await desk.read(3, seconds=0.5) == ["a", "b", "c"]
    owner = desk.owned.key, 1, APP
    assert {record.fence[:3] for record in desk.records} == {owner}
    assert desk.owned.millis_behind == 0


async def test_it_goes_on_after_the_checkpoint(world: World) -> None:
    world.put("a")
    _, number = world.kinesis.put("orders", b"b", explicit_hash_key=0)
    world.put("c")
    desk = read_shard(world, position=Position(number))
    assert await desk.read(1) == ["c"]
    assert desk.source.iterators == [(SHARD, Position(number))]


async def test_a_closed_shard_ends_with_its_children(world: World) -> None:
    world.put("a")
    low, high = world.kinesis.split("orders", SHARD)
    desk = read_shard(world)
    await desk.task
    assert desk.texts == ["a"]
    assert desk.owned.children is not None
    assert [child.shard_id for child in desk.owned.children] == [low, high]


async def test_an_expired_iterator_is_renewed_where_it_was(world: World) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    await desk.read(2)
    last = desk.records[-1].sequence_number
    desk.source.errors.append(ExpiredIteratorError("too old"))
    world.put("c", "d")
    assert await desk.read(4) == ["a", "b", "c", "d"]
    assert desk.source.iterators[1:] == [(SHARD, Position(last))]


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


async def test_reads_without_a_usable_key_become_slow_and_are_an_incident(
    world: World,
) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    disabled = KeyUnavailableError("KMSDisabledException")
    desk.source.errors.extend(disabled for _ in range(20))
    desk.start()
    await asyncio.sleep(200)
    [incident] = desk.incidents.current()
    assert (incident.kind, incident.shard_id) == (IncidentKind.KMS, "")
    assert incident.error == "KMSDisabledException"
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert gaps[0] <= 1.0
    assert 15.0 <= min(gaps[6:]) and max(gaps) <= 30.0
    assert desk.stream.failing is None  # so the client isn't degraded
    assert await desk.read(1, seconds=400) == ["a"]
    assert desk.incidents.current() == []


async def test_one_throttled_use_of_a_key_is_no_incident(world: World) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    desk.source.errors.append(KeyThrottledError("KMSThrottlingException"))
    desk.start()
    await asyncio.sleep(0.4)
    assert desk.incidents.current() == []
    assert await desk.read(1, seconds=2) == ["a"]


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


@pytest.mark.parametrize("held_seconds", [0.0, 30.0])
async def test_a_shard_is_read_five_times_a_second(
    world: World, held_seconds: float
) -> None:
    world.put(*map(str, range(50)))
    desk = ReaderDesk(world, max_records_per_read=1)
    # The loop's clock counts time as if user code had blocked the event loop.
    desk.context.loop_clock._due_and_held = math.inf, held_seconds
    desk.start()
    await desk.read(50)
    assert len(desk.source.reads) / world.clock.now() <= 5.2


async def test_a_stream_with_a_pace_of_its_own_is_read_at_that(world: World) -> None:
    desk = read_shard(world, pace=2.0)
    await asyncio.sleep(20)
    assert len(desk.source.reads) == 10


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


# --- starts ---


async def test_a_start_in_the_future_is_awaited(world: World) -> None:
    moment = world.clock.wall() + 0.9
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    world.put("too early")
    await asyncio.sleep(1)
    world.put("a")
    assert await desk.read(1, seconds=5) == ["a"]
    assert desk.stream.failing is None


async def test_after_a_start_by_time_late_arrivals_are_delivered(world: World) -> None:
    moment = world.clock.wall()
    world.put("on time")
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    await desk.read(1)
    world.put("put later, arrived on a host whose clock is behind")
    log = world.kinesis.stream("orders").shards[SHARD].log
    log[-1].arrived_at = moment - 1
    assert len(await desk.read(2)) == 2


async def test_a_start_by_time_skips_pages_of_early_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = MemorySource.get_iterator_now

    def to_the_second(
        source: MemorySource, shard_id: str, after: Start, **options: float
    ) -> str:
        assert after.timestamp is not None
        early = Start(type=after.type, timestamp=after.timestamp // 1)
        return exact(source, shard_id, early, **options)

    monkeypatch.setattr(MemorySource, "get_iterator_now", to_the_second)
    await asyncio.sleep(10.2)
    world.put("early", "also early", "still early, but in the same second")
    await asyncio.sleep(0.3)
    moment = world.clock.wall()
    world.put("on time", "later")
    start = Start(type="AT_TIMESTAMP", timestamp=moment)
    desk = read_shard(world, max_records_per_read=1, start=start)
    assert await desk.read(2) == ["on time", "later"]


# --- what is gone ---


async def test_a_trimmed_position_goes_on_with_the_oldest_record_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, number = world.kinesis.put("orders", b"old", explicit_hash_key=0)
    world.put("lost")
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall() - 5)
    world.put("kept")
    desk = read_shard(world, position=Position(number))
    assert await desk.read(1) == ["kept"]
    assert "records may be lost to retention" in caplog.text
    [incident] = desk.incidents.current()
    assert incident.kind is IncidentKind.TRIMMED_POSITION
    assert incident[1:3] == desk.owned.key


async def test_of_a_shard_read_to_its_tip_nothing_is_called_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.put("a")
    desk = read_shard(world)
    await desk.read(1)
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    desk.source.errors.append(SourceUnavailableError("timed out"))
    world.put("b")
    assert await desk.read(2) == ["a", "b"]
    assert "has expired, and nothing came after it" in caplog.text
    assert "lost" not in caplog.text
    assert desk.incidents.current() == []


async def test_what_may_have_come_while_a_shard_was_not_read_may_be_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.stream("orders").retention_hours = 1
    world.put("a")
    desk = read_shard(world)
    await desk.read(1)
    desk.source.down = True
    await asyncio.sleep(10)
    world.put("b")
    await asyncio.sleep(1.1 * 3600)
    world.kinesis.expire("orders", world.clock.wall())
    world.put("c")
    desk.source.down = False
    assert await desk.read(2) == ["a", "c"]
    assert "records may be lost to retention" in caplog.text


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
        await asyncio.gather(
            *(desk.stream.confirm(world.clock, now) for _ in range(100))
        )
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

"""Test that ``run()`` calls handlers with records or batches, and how it ends."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from unittest.mock import Mock

import pytest

from kinesumer import Record
from kinesumer.core.work_queue import WorkQueue
from kinesumer.errors import HandlerFailedError, StreamMissingError
from tests.support.faulty import FaultyStore
from tests.support.handler_client import ONCE, Runner, committed, ignore
from tests.support.world import SHARD, World


class Seen:
    """A handler that keeps its records."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.texts: list[str] = []
        self.begun: list[str] = []
        self.is_at = 0
        self.most = 0

    async def __call__(self, record: Record) -> None:
        text = record.data.decode()
        self.begun.append(text)
        self.is_at += 1
        self.most = max(self.most, self.is_at)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.is_at -= 1
        self.texts.append(text)


async def test_shards_do_not_wait_for_each_other(world: World) -> None:
    world.kinesis.create_stream("slow", 2)
    seen: list[str] = []

    async def handle(record: Record) -> None:
        if record.data == b"stuck":
            await asyncio.Event().wait()
        seen.append(record.data.decode())

    world.put("stuck", stream="slow")
    world.put("b", "c", stream="slow", hash_key=2**127)
    Runner(world, handle, "c1", "slow")
    await world.until(lambda: seen == ["b", "c"])


async def test_slow_shards_leave_room_in_the_buffer_for_the_others(
    world: World,
) -> None:
    world.kinesis.create_stream("large", 4)
    seen: list[bytes] = []

    async def handle(record: Record) -> None:
        if len(record.data) > 10:
            await asyncio.sleep(1000)
        seen.append(record.data)

    large = "x" * 500_000
    for slow in range(4):
        world.put(*[large] * 40, stream="large", hash_key=slow * 2**126)
    options = {"max_processing_seconds": 10_000, "buffer_bytes": 64 << 20}
    runner = Runner(world, handle, "c1", "large", **options)
    await world.until(lambda: runner.held and runner.group.buffer.used > 30 << 20)
    await asyncio.sleep(10)
    world.put("a", "b", "c")
    await runner.run(runner.group.refresh(["large", "orders"]))
    await world.until(lambda: seen == [b"a", b"b", b"c"])


async def test_leaving_lets_the_record_in_hand_finish_and_begins_no_other(
    world: World,
) -> None:
    seen = Seen(seconds=5)
    world.put("a", "b", "c")
    runner = Runner(world, seen)
    await world.until(lambda: seen.begun == ["a"])
    await runner.leave()
    assert seen.begun == seen.texts == ["a"]
    assert committed(world) == 1
    assert not world.shard_rows()[SHARD].owner


async def test_leaving_the_block_beside_run_waits_for_the_record_in_hand(
    world: World,
) -> None:
    seen = Seen(seconds=5)
    world.put("a", "b")
    runner = Runner(world, seen)
    await world.until(lambda: seen.begun == ["a"])
    await runner.close()
    await runner.task
    assert seen.begun == seen.texts == ["a"]
    assert committed(world) == 1


async def test_cancelling_run_cancels_the_handler_and_leaves_its_record_undone(
    world: World,
) -> None:
    seen = Seen(seconds=5)
    world.put("a", "b", "c")
    runner = Runner(world, seen)
    await world.until(lambda: seen.begun == ["a", "b"])
    runner.task.cancel()
    await asyncio.wait([runner.task])
    assert runner.task.cancelled()
    await runner.run(runner.group.stop(wait_for_user=False))
    assert seen.texts == ["a"]
    assert committed(world) == 1


async def test_a_hand_over_waits_for_the_record_in_hand(world: World) -> None:
    world.kinesis.create_stream("two", 2)
    arn = world.kinesis.stream("two").arn
    first, second = Seen(seconds=4), Seen(seconds=4)
    for hash_key in (0, 2**127):
        world.put(*"abcdefgh", stream="two", hash_key=hash_key)
    Runner(world, first, "c1", "two")
    await world.until(lambda: first.begun)
    other = Runner(world, second, "c2", "two")
    await world.until(lambda: len(first.texts) + len(second.texts) == 16, 120)
    assert sorted(first.texts + second.texts) == sorted("abcdefgh" * 2)
    assert other.held and arn


async def test_a_lapsed_lease_pauses_between_records(world: World) -> None:
    seen = Seen(seconds=1)
    world.put(*"abcdefghijklmnopqrst")
    store = FaultyStore(world.table)
    runner = Runner(world, seen, store=store)
    await world.until(lambda: seen.begun == ["a", "b"])
    store.down = True
    await world.until(lambda: not runner.owned.lease.permits(world.clock.now()))
    begun = list(seen.begun)
    await asyncio.sleep(1.5)
    assert seen.begun == seen.texts == begun
    store.down = False
    await world.until(lambda: len(set(seen.texts)) == 20)
    assert sorted(set(seen.begun)) == sorted("abcdefghijklmnopqrst")


async def test_not_even_quick_handlers_go_on_when_the_lease_lapses(
    world: World,
) -> None:
    begun: dict[bytes, float] = {}

    async def handle(record: Record) -> None:
        begun[record.data] = world.clock.now()
        if record.data == b"b":
            runner.owned.lease.deadline = 0.0

    world.put("a", "b", "c")
    runner = Runner(world, handle)
    await world.until(lambda: len(begun) == 3)
    assert begun[b"b"] == begun[b"a"]
    assert begun[b"c"] > begun[b"b"]


async def test_not_even_quick_handlers_go_on_when_the_shard_is_lost(
    world: World,
) -> None:
    begun: list[bytes] = []

    async def handle(record: Record) -> None:
        begun.append(record.data)
        if record.data == b"b":
            runner.group.session.coordinator.shards.drop(runner.owned)  # type: ignore[union-attr]

    world.put("a", "b", "c")
    runner = Runner(world, handle)
    await world.until(lambda: len(begun) == 2)
    await asyncio.sleep(0.2)
    assert begun == [b"a", b"b"]


async def test_an_end_is_stored_when_the_last_record_is_done(world: World) -> None:
    seen = Seen()
    world.put("a", "b")
    runner = Runner(world, seen, listing_interval_seconds=1.0)
    await world.until(lambda: seen.texts == ["a", "b"])
    world.kinesis.split("orders", "shardId-000000000000")
    world.put("c")
    await world.until(lambda: seen.texts == ["a", "b", "c"])
    assert world.shard_rows()[SHARD].ended
    await runner.leave()


async def test_a_handler_that_fails_for_good_ends_run_with_what_it_failed_at(
    world: World,
) -> None:
    async def handle(record: Record) -> None:
        if record.data == b"c":
            raise ValueError("no such\norder")

    world.put("a", "b", "c", "d")
    runner = Runner(world, handle, retries=ONCE)
    with pytest.raises(HandlerFailedError) as caught:
        await runner.task
    number = world.kinesis.stream("orders").shards[SHARD].log[2].sequence_number
    assert str(caught.value) == (
        f"the handler failed once at record {number} of stream orders, "
        "shardId-000000000000: ValueError: no such\\norder; the checkpoint stays "
        "before it. Correct the handler, or give run() dead_letters= to go on without "
        "such records"
    )
    assert isinstance(caught.value.__cause__, ValueError)
    await runner.run(runner.group.stop(wait_for_user=False))
    assert committed(world) == 2


async def test_an_error_of_the_library_itself_ends_run_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkQueue, "finish", Mock(side_effect=ZeroDivisionError))
    world.put("a")
    runner = Runner(world, ignore)
    with pytest.raises(ZeroDivisionError):
        await runner.task


async def test_a_fatal_fault_ends_run_with_its_reason(world: World) -> None:
    runner = Runner(world, ignore)
    await world.until(lambda: runner.held)
    world.kinesis.delete_stream("orders")
    with pytest.raises(StreamMissingError):
        await runner.task


async def test_what_a_handler_awaits_may_be_cancelled_without_stopping_its_shard(
    world: World,
) -> None:
    calls: list[str] = []

    async def handle(record: Record) -> None:
        calls.append(record.data.decode())
        if len(calls) == 1:
            raise asyncio.CancelledError

    world.put("a", "b")
    Runner(world, handle)
    await world.until(lambda: calls == ["a", "a", "b"])


async def test_records_go_on_after_a_session_died_under_a_slow_handler(
    world: World,
) -> None:
    seen = Seen(seconds=100)
    world.put("a")
    Runner(world, seen, max_processing_seconds=60)
    await world.until(lambda: seen.texts == ["a", "a"] or len(seen.begun) > 1, 400)
    assert world.members()["c1"].incarnation == 1


async def test_handlers_that_never_await_let_the_engine_run(world: World) -> None:
    world.kinesis.create_stream("many", 4)
    count = 0

    async def handle(_: Record) -> None:
        nonlocal count
        count += 1
        asyncio.get_running_loop().machine_of(None).block(0.02)  # type: ignore[attr-defined]

    for shard in range(4):
        texts = map(str, range(100))
        world.put(*texts, stream="many", hash_key=shard * 2**126)
    runner = Runner(world, handle, "c1", "many")
    await world.until(lambda: count == 400, seconds=60)
    await runner.leave()


async def test_the_engine_has_a_slice_of_time_after_each_handler_that_blocks_for_long(
    world: World,
) -> None:
    called: list[float] = []

    async def handle(_: Record) -> None:
        called.append(world.clock.now())
        asyncio.get_running_loop().machine_of(None).block(6)  # type: ignore[attr-defined]
        await asyncio.sleep(0)  # the loop blocks here, after this callback

    world.kinesis.create_stream("two", 2)
    for hash_key in (0, 2**127):
        world.put(*map(str, range(3)), stream="two", hash_key=hash_key)
    runner = Runner(world, handle, "c1", "two")
    await world.until(lambda: len(called) == 6, seconds=120)
    gaps = [after - before for before, after in pairwise(called)]
    # At first, the two shards' handlers may run without a pause between them.
    assert min(gaps[1:]) >= 6.25 - 1e-6
    await asyncio.sleep(10)
    await runner.leave()


async def test_handlers_that_wait_for_long_are_no_reason_for_a_pause(
    world: World,
) -> None:
    called: list[float] = []

    async def handle(_: Record) -> None:
        called.append(world.clock.now())
        await asyncio.sleep(6)

    world.put("a", "b", "c")
    runner = Runner(world, handle)
    await world.until(lambda: len(called) == 3, seconds=60)
    gaps = [after - before for before, after in pairwise(called)]
    assert max(gaps) < 6.1
    await runner.leave()

"""Test how tasks share a delivery, how shards take turns, and when the loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from tests.support.delivery import Desk, block, numbers
from tests.support.delivery_machine import shards
from tests.support.world import World, hold, shard_row

EACH_BYTES = 426  # the memory of one test record in the buffer


class Worker:
    """A task that takes a batch, and works until the test calls a method."""

    def __init__(self, desk: Desk, *, marks: bool = True) -> None:
        self.desk = desk
        self.marks = marks
        self.seen: list[list[int]] = []
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        self._go_on = asyncio.Event()
        self.task = desk.world.loop.create_task(self._work())

    async def go_on(self) -> None:
        """Let the task finish its batch, and mark it as done if ``marks`` is set."""
        self._go_on.set()
        await asyncio.sleep(0.1)

    async def fail(self, error: BaseException) -> None:
        """Let the task raise an error while it works at its batch."""
        self.error = error
        await self.go_on()

    async def _work(self) -> None:
        async for batch in self.desk.records.batches():
            self.batch = batch
            self.seen.append(numbers(batch))
            await self._go_on.wait()
            self._go_on.clear()
            if self.error is not None:
                raise self.error
            self.batch = None
            if self.marks:
                for record in batch.records:
                    self.desk.owned[record.source].ack(record)


async def two_with_a_batch_each(
    world: World, one: OwnedShard, other: OwnedShard
) -> tuple[Desk, Worker, Worker]:
    """Start two tasks that wait for batches, and give each of them one."""
    desk = Desk(world, auto=False)
    a, b = Worker(desk), Worker(desk)
    await asyncio.sleep(1)
    desk.put(one, 1, 2)
    desk.put(other, 3, 4, 5)
    await asyncio.sleep(1)
    assert a.seen + b.seen == [[1, 2], [3, 4, 5]]
    return desk, a, b


async def test_the_watchdog_sees_the_oldest_batch(world: World) -> None:
    desk = Desk(world, auto=False)
    a, b = Worker(desk), Worker(desk)
    other = hold(shard_row("shardId-000000000001"))
    await asyncio.sleep(1)
    desk.put(hold(), 1)
    await asyncio.sleep(7)
    desk.put(other, 2)
    await asyncio.sleep(1)
    work = desk.delivery.oldest_work()
    assert work is not None
    assert (work.what, work.since) == ("user code at orders shardId-000000000000", 1)
    assert "_go_on.wait()" in work.stack()
    await a.go_on()
    work = desk.delivery.oldest_work()
    assert work is not None
    assert (work.what, work.since) == ("user code at orders shardId-000000000001", 8)
    await b.go_on()
    assert desk.delivery.oldest_work() is None


async def test_a_failed_tasks_batch_goes_to_the_next(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    owned = hold()
    desk, a, b = await two_with_a_batch_each(world, owned, owned)
    assert a.batch is not None
    owned.ack(a.batch.records[0])
    await a.fail(ValueError("broken"))
    assert "ValueError('broken')) with 1 records in hand" in caplog.text
    await b.go_on()
    assert b.seen[1:] == [[2]]
    assert desk.buffer.used == EACH_BYTES
    waiting = Worker(desk)
    b.task.cancel()
    await asyncio.sleep(1)
    assert waiting.seen == [[2]]
    await waiting.go_on()
    assert desk.done(owned) == Position("5")
    assert desk.buffer.used == 0


@pytest.mark.parametrize("asks", ["records", "batches"])
async def test_with_automatic_commits_a_second_task_is_refused(
    world: World, asks: str
) -> None:
    desk = Desk(world)

    async def ask() -> None:
        loop = desk.records if asks == "records" else desk.records.batches()
        async for _ in loop:
            raise AssertionError

    first = world.loop.create_task(ask())
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match=f"two tasks iterate over {asks}"):
        await ask()
    first.cancel()


async def test_the_watchdog_names_the_task_that_has_the_batch(world: World) -> None:
    desk, one, other = await two_with_a_batch_each(world, hold(), hold())
    tasks = [each.loop and each.loop.holder for each in desk.delivery.machine.handouts]
    assert tasks == [one.task, other.task]
    assert desk.delivery.is_in_use_beside(one.task)
    await other.fail(ValueError())
    await asyncio.sleep(0.1)
    assert not desk.delivery.is_in_use_beside(one.task)


# The longest time of a turn whose records take no time.
TURN_SECONDS = 0.05


def letter(record: Record) -> str:
    """Return a letter for the record's shard: "a" for the first one."""
    return chr(ord("a") + int(record.shard_id[-3:]))


async def each(desk: Desk, what: str) -> AsyncIterator[str]:
    """Yield the letter of each record's or batch's shard."""
    if what == "records":
        async for record in desk.records:
            yield letter(record)
    else:
        async for batch in desk.records.batches():
            yield letter(batch.records[0])


async def order_of(
    desk: Desk, what: str, count: int, *, held: float = 0.0, awaited: float = 0.0
) -> str:
    """Return the shards of the first records or batches, which take some time each."""
    seen = ""
    async for shard in each(desk, what):
        seen += shard
        if len(seen) == count:
            break
        block(desk.world, held)
        await asyncio.sleep(awaited)
    return seen


async def decode(record: Record) -> bytes:
    return record.data


@pytest.mark.parametrize("decoder", [None, decode])
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("time", ["held", "awaited"])
async def test_a_slow_loop_gets_a_record_of_each_shard_in_turn(
    world: World, time: str, decoder: object, *, auto: bool
) -> None:
    desk = Desk(world, auto=auto, decode=decoder)
    for owned in shards(3):
        desk.put(owned, *range(1000))
    times: Any = {time: 1.0}
    assert await order_of(desk, "records", 9, **times) == "abcabcabc"


async def test_a_turn_at_quick_records_is_bounded_by_time(world: World) -> None:
    desk = Desk(world)
    for owned in shards(2):
        desk.put(owned, *range(1000))
    assert await order_of(desk, "records", 12, held=0.02) == "aaabbbaaabbb"


def loop_over(desk: Desk, what: str) -> AsyncIterator[object]:
    return aiter(desk.records if what == "records" else desk.records.batches())


async def times_of(
    world: World, what: str, *, held: float = 0.0, awaited: float = 0.0
) -> list[float]:
    """Return when user code gets each of three records; it waits and blocks between."""
    desk, times = Desk(world), list[float]()
    for number in range(3):
        desk.put(hold(), number)
    async for _ in loop_over(desk, what):
        times.append(world.clock.now())
        if len(times) == 3:
            break
        await asyncio.sleep(awaited)
        block(world, held)
    return times


@pytest.mark.parametrize("what", ["records", "batches"])
async def test_other_tasks_run_between_two_batches_of_user_code_that_never_awaits(
    world: World, what: str
) -> None:
    async def take_in() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    desk, owned = Desk(world), hold()
    for number in range(40):
        desk.put(owned, number)
    answers: list[asyncio.Task[None]] = []
    async for _ in loop_over(desk, what):
        assert all(answer.done() for answer in answers)
        block(world, 0.1)
        answers.append(world.loop.create_task(take_in()))
        if len(answers) == 40:
            break


@pytest.mark.parametrize("what", ["records", "batches"])
@pytest.mark.parametrize(
    ("held", "awaited", "seconds"), [(4, 0, 4.2), (0.2, 0, 0.2), (0, 100, 100)]
)
async def test_the_loop_runs_for_a_share_of_a_long_hold_only(
    world: World, what: str, held: float, awaited: float, seconds: float
) -> None:
    first, second, third = await times_of(world, what, held=held, awaited=awaited)
    assert second - first == pytest.approx(seconds, abs=0.01)
    assert third - second == pytest.approx(seconds, abs=0.02)


async def test_the_loop_runs_after_a_hold_that_follows_an_await(world: World) -> None:
    first, second, _ = await times_of(world, "batches", held=4, awaited=3)
    assert 0.15 < second - first - 7 < 0.21


async def test_no_timer_goes_on_while_user_code_waits(world: World) -> None:
    desk = Desk(world)
    desk.put(hold(), 1)
    assert await desk.next() == "1"
    assert await desk.nothing_for(10)
    assert desk.delivery._lag.seconds() == 0
    assert desk.delivery._lag._due is None

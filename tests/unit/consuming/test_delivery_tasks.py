"""Test several tasks that each work at a batch of their own, with manual commits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from tests.support.delivery import Desk, deliver
from tests.support.world import World, hold, shard_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.records import Batches
    from kinesumer.model.records import Batch

EACH_BYTES = 426  # the memory of one test record in the buffer


def numbers(batch: Batch) -> list[int]:
    return [int(record.sequence_number) for record in batch.records]


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

    def _iterate(self) -> AsyncIterator[Batch]:
        return self.desk.records.batches()

    async def _work(self) -> None:
        async for batch in self._iterate():
            self.batch = batch
            self.seen.append(numbers(batch))
            await self._go_on.wait()
            self._go_on.clear()
            if self.error is not None:
                raise self.error
            self.batch = None
            if self.marks:
                for record in batch.records:
                    self.desk.owned[record.source].ack(record.position)


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
    owned.ack(a.batch.records[0].position)
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


async def test_a_task_may_replace_one_that_it_cancelled(world: World) -> None:
    desk = Desk(world)
    waiting = world.loop.create_task(anext(desk.records))
    await asyncio.sleep(1)
    waiting.cancel()
    desk.put(hold(), 1)
    async for record in desk.records:
        assert record.sequence_number == "1"
        break


async def test_a_task_that_fails_with_a_record_in_hand_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    desk, owned = deliver(world, 1, 2)

    async def fail() -> None:
        async for _ in desk.records:
            raise ValueError("broken")

    await asyncio.wait([world.loop.create_task(fail())])
    await asyncio.sleep(0.1)
    assert "marks them as done" in caplog.text
    desk.delivery.sync_progress()
    assert owned.is_idle  # so a move of the shard needn't wait
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")


async def test_an_iterator_of_batches_outlives_a_timeout(world: World) -> None:
    desk = Desk(world)
    batches = desk.records.batches()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(batches), 1)
    desk.put(hold(), 1)
    assert numbers(await anext(batches)) == [1]
    await batches.aclose()


# --- one batches() object for several tasks ---


class Sharer(Worker):
    """A worker that asks an iterator, which it shares with others."""

    def __init__(self, desk: Desk, batches: Batches) -> None:
        self.batches = batches
        super().__init__(desk)

    def _iterate(self) -> AsyncIterator[Batch]:
        return self.batches


async def sharers(world: World, count: int) -> tuple[Desk, list[Sharer]]:
    """Start tasks that share one iterator, and give each of them a batch."""
    desk = Desk(world, auto=False)
    batches = desk.records.batches()
    workers = [Sharer(desk, batches) for _ in range(count)]
    await asyncio.sleep(1)
    for number in range(count):
        desk.put(hold(shard_row(f"shardId-00000000000{number}")), number)
    await asyncio.sleep(1)
    assert [worker.seen for worker in workers] == [[[n]] for n in range(count)]
    return desk, workers


async def test_the_watchdog_names_the_task_that_has_the_batch(world: World) -> None:
    desk, (one, other) = await sharers(world, 2)
    for batch in desk.delivery.machine.handouts:
        assert batch.loop is not None
    tasks = [each.loop and each.loop.holder for each in desk.delivery.machine.handouts]
    assert tasks == [one.task, other.task]
    assert desk.delivery.is_in_use_beside(one.task)
    await other.fail(ValueError())
    await asyncio.sleep(0.1)
    assert not desk.delivery.is_in_use_beside(one.task)


async def test_a_task_with_a_timeout_keeps_its_own_loop(world: World) -> None:
    desk = Desk(world, auto=False)
    batches, seen = desk.records.batches(), list[list[int]]()

    async def work() -> None:
        while True:
            with suppress(TimeoutError):
                seen.append(numbers(await asyncio.wait_for(anext(batches), 2)))

    tasks = [world.loop.create_task(work()) for _ in range(2)]
    await asyncio.sleep(5)
    for number in range(4):
        desk.put(hold(), number)
        await asyncio.sleep(3)
    assert seen == [[0], [1], [2], [3]]
    assert desk.buffer.used == 0
    for task in tasks:
        task.cancel()


async def test_closing_a_shared_iterator_releases_the_batches_of_all_tasks(
    world: World,
) -> None:
    desk, (one, other) = await sharers(world, 2)
    await one.batches.aclose()
    assert desk.buffer.used == 0
    desk.put(hold(), 2)
    await other.go_on()
    assert other.seen == [[1], [2]]

"""Test several tasks that each work at a batch of their own, with manual commits."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.records import Batch
from tests.support.delivery import Desk, numbers
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


async def test_the_watchdog_names_the_task_that_has_the_batch(world: World) -> None:
    desk, one, other = await two_with_a_batch_each(world, hold(), hold())
    tasks = [each.loop and each.loop.holder for each in desk.delivery.machine.handouts]
    assert tasks == [one.task, other.task]
    assert desk.delivery.is_in_use_beside(one.task)
    await other.fail(ValueError())
    await asyncio.sleep(0.1)
    assert not desk.delivery.is_in_use_beside(one.task)

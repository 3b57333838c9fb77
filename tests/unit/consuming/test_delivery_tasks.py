"""Several tasks that ask for batches (manual commits): what each has in hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from tests.support.delivery import Desk
from tests.support.world import World, hold, in_virtual_time, shard_row

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.batch import Batch

EACH_BYTES = 426
"""What a record of the tests takes in the buffer."""


def numbers(batch: Batch) -> list[int]:
    return [int(record.sequence_number) for record in batch.records]


class Worker:
    """A task that takes batches and works at each until it is let go on."""

    def __init__(self, desk: Desk, *, marks: bool = True) -> None:
        self.desk = desk
        self.marks = marks
        self.seen: list[list[int]] = []
        self.batch: Batch | None = None
        self.error: BaseException | None = None
        self._go_on = asyncio.Event()
        self.task = desk.world.loop.create_task(self._work())

    async def go_on(self) -> None:
        """Let it end its work, mark it and ask for the next batch."""
        self._go_on.set()
        await asyncio.sleep(0.1)

    async def fail(self, error: BaseException) -> None:
        """Let it raise an error with its batch in hand."""
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
    """Let two tasks wait, and put a batch for each."""
    desk = Desk(world, auto=False)
    a, b = Worker(desk), Worker(desk)
    await asyncio.sleep(1)
    desk.put(one, 1, 2)
    desk.put(other, 3, 4, 5)
    await asyncio.sleep(1)
    assert a.seen + b.seen == [[1, 2], [3, 4, 5]]
    return desk, a, b


@in_virtual_time
async def test_the_bytes_of_each_batch_are_given_back_when_its_task_asks_again(
    world: World,
) -> None:
    desk, a, b = await two_with_a_batch_each(world, hold(), hold())
    assert desk.buffer.used == 5 * EACH_BYTES
    await b.go_on()
    assert desk.buffer.used == 2 * EACH_BYTES
    await a.go_on()
    assert desk.buffer.used == 0
    assert desk.delivery.records == 5


@pytest.mark.parametrize("shards", [1, 2])
@in_virtual_time
async def test_a_planned_move_waits_for_every_task_that_has_some_of_the_shard(
    world: World, shards: int
) -> None:
    one = hold()
    other = one if shards == 1 else hold()
    desk, a, b = await two_with_a_batch_each(world, one, other)
    desk.delivery.sync_progress()
    one.revoke()
    other.revoke()
    if shards == 1:
        await b.go_on()
    assert not await one.drained(5)
    await a.go_on()
    assert await one.drained(1)
    await b.go_on()
    assert await other.drained(1)
    assert desk.done(other) == Position("5")


@in_virtual_time
async def test_the_watchdog_is_told_of_the_batch_that_was_taken_first(
    world: World,
) -> None:
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


@in_virtual_time
async def test_what_a_failed_task_had_in_hand_goes_to_the_next_that_asks(
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
    await b.go_on()
    assert desk.done(owned) == Position("5")
    assert desk.buffer.used == 0


@in_virtual_time
async def test_a_task_that_waits_is_given_what_a_cancelled_one_had(
    world: World,
) -> None:
    _, a, b = await two_with_a_batch_each(world, hold(), hold())
    await b.go_on()
    a.task.cancel()
    await asyncio.sleep(1)
    assert b.seen[1:] == [[1, 2]]


@in_virtual_time
async def test_a_planned_move_waits_for_no_task_that_has_failed(world: World) -> None:
    owned = hold()
    desk, a, b = await two_with_a_batch_each(world, owned, owned)
    await a.fail(ValueError())
    desk.delivery.sync_progress()
    owned.revoke()
    assert not await owned.drained(1)  # the other one is still at it
    await b.go_on()
    assert await owned.drained(1)
    assert desk.done(owned) is None
    assert desk.buffer.used == 0


@in_virtual_time
async def test_a_move_under_way_ends_when_the_last_task_with_some_fails(
    world: World,
) -> None:
    owned = hold()
    desk, a, b = await two_with_a_batch_each(world, owned, owned)
    desk.delivery.sync_progress()
    owned.revoke()
    await b.go_on()
    draining = world.loop.create_task(owned.drained(30))
    await asyncio.sleep(1)
    assert not draining.done()
    a.task.cancel()
    await asyncio.sleep(0.1)
    assert draining.done()


@in_virtual_time
async def test_what_a_task_handed_on_is_neither_repeated_nor_counted(
    world: World,
) -> None:
    desk, owned = Desk(world, auto=False), hold()
    desk.put(owned, 1, 2)
    desk.put(owned, 3)

    async def first() -> Batch:
        async for batch in desk.records.batches():
            return batch
        raise AssertionError

    handed_on = await world.loop.create_task(first())
    await asyncio.sleep(1)
    assert desk.buffer.used == EACH_BYTES
    assert not owned.is_idle
    assert numbers(await world.loop.create_task(first())) == [3]
    for record in handed_on.records:
        owned.ack(record.position)
    assert desk.done(owned) == Position("2")


@in_virtual_time
async def test_what_is_left_of_a_loop_over_records_goes_to_the_next_that_asks(
    world: World,
) -> None:
    desk, owned = Desk(world, auto=False), hold()
    desk.put(owned, 1, 2, 3)
    async for _ in desk.records:
        break
    await asyncio.sleep(0.1)
    assert desk.buffer.used == 2 * EACH_BYTES
    worker = Worker(desk)
    await asyncio.sleep(1)
    assert worker.seen == [[2, 3]]


@in_virtual_time
async def test_several_tasks_may_loop_over_records(world: World) -> None:
    desk, seen = Desk(world, auto=False), list[str]()

    async def work() -> None:
        async for record in desk.records:
            seen.append(record.sequence_number)
            await asyncio.sleep(1)

    both = [world.loop.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0.1)
    desk.put(hold(), 1, 2)
    desk.put(hold(), 3, 4)
    await asyncio.sleep(0.5)
    assert sorted(seen) == ["1", "3"]
    await asyncio.sleep(10)
    assert sorted(seen) == ["1", "2", "3", "4"]
    assert desk.buffer.used == 0
    for task in both:
        task.cancel()


@in_virtual_time
async def test_several_tasks_may_ask_by_anext(world: World) -> None:
    desk = Desk(world, auto=False)
    asked = [world.loop.create_task(anext(desk.records)) for _ in range(2)]
    batches = desk.records.batches()
    asked_batches = [world.loop.create_task(anext(batches)) for _ in range(2)]
    await asyncio.sleep(0.1)
    for number in range(4):
        desk.put(hold(), number)
    found = [record.sequence_number for record in await asyncio.gather(*asked)]
    for batch in await asyncio.gather(*asked_batches):
        found += map(str, numbers(batch))
    assert sorted(found) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("asks", ["records", "batches"])
@in_virtual_time
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


@in_virtual_time
async def test_a_task_may_ask_at_once_when_it_has_cancelled_the_one_that_waits(
    world: World,
) -> None:
    desk = Desk(world)
    waiting = world.loop.create_task(anext(desk.records))
    await asyncio.sleep(1)
    waiting.cancel()
    desk.put(hold(), 1)
    async for record in desk.records:
        assert record.sequence_number == "1"
        break


@in_virtual_time
async def test_a_task_that_fails_with_a_record_in_hand_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2)

    async def fail() -> None:
        async for _ in desk.records:
            raise ValueError("broken")

    await asyncio.wait([world.loop.create_task(fail())])
    await asyncio.sleep(0.1)
    assert "marks them as done" in caplog.text
    desk.delivery.sync_progress()
    assert owned.is_idle  # no move waits for it
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_a_timeout_within_a_loop_over_records_does_not_end_it(
    world: World,
) -> None:
    desk, owned, seen = Desk(world), hold(), list[str]()
    desk.put(owned, 1)
    world.loop.call_later(5, desk.put, owned, 2, 3)
    async for record in desk.records:
        seen.append(record.sequence_number)
        assert await desk.nothing_for(1) == (len(seen) == 1)
        if len(seen) == 2:
            break
    assert seen == ["1", "2"]
    assert desk.done(owned) == Position("2")


@in_virtual_time
async def test_an_iterator_of_batches_outlives_a_timeout(world: World) -> None:
    desk = Desk(world)
    batches = desk.records.batches()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(batches), 1)
    desk.put(hold(), 1)
    assert numbers(await anext(batches)) == [1]
    await batches.aclose()

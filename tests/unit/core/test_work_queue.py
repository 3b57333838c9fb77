"""Test which records handlers get, and which are done, in any order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.core.delivery import Free, Processed, Signal
from kinesumer.core.work_queue import (
    MAX_AT_ONCE,
    SLICE_SECONDS,
    KeyedWork,
    OrderedWork,
    UnmarkedWork,
    Work,
    WorkQueue,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Record, data_size, memory_size
from tests.support.world import World, batch_of, hold

SomeWork = Work[OwnedShard]
MAX_UNCOMMITTED = 20


class Workers:
    """Workers at one shard's queue, and what the queue has decided.

    One worker gets the records in order. Several get them in the order of each key.
    """

    def __init__(self, workers: int, *, whole: bool = False):
        self.owned = hold(max_uncommitted_records=MAX_UNCOMMITTED)
        self.queue: WorkQueue[OwnedShard, SomeWork] = (
            OrderedWork(self.owned, Work)
            if workers == 1
            else KeyedWork(self.owned, Work, workers=workers, whole=whole)
        )
        self.workers = workers
        self.records: list[Record] = []  # all that were put
        self.end: Position | None = None  # of the last batch
        self.processed = self.processed_bytes = self.held_bytes = self.commits = 0
        self._numbers = map(str, count(1))

    def put(self, keys: Sequence[int]) -> None:
        """Queue a batch of records with these keys; 0 stands for none."""
        first = len(self.records)
        self.records += [
            Record(next(self._numbers), b"x" * offset, str(key) if key else None)
            for offset, key in enumerate(keys, first)
        ]
        # Nothing that is delivered comes between the last record and the end.
        self.end = Position(next(self._numbers))
        records = self.records[first:]
        size = memory_size(records)
        self.held_bytes += size
        self.owned.queued_records += len(records)
        self.queue.put(FetchedBatch(records, 0, size, self.end, self.owned))
        self.carry_out()

    def carry_out(self) -> None:
        """Count what the queue decides."""
        for effect in self.queue.take_effects():
            if isinstance(effect, Free):
                self.held_bytes -= effect.size
            elif isinstance(effect, Processed):
                self.processed += effect.records
                self.processed_bytes += effect.data_bytes
            else:
                assert effect is Signal.COMMIT
                self.commits += 1


MOST_WORKERS = 4


class RandomEvents:
    """Workers at a queue, whose records are counted by hand.

    A record's number is its offset. The lists of ``hand`` are the records of each
    worker, in the order in which user code gets them.
    """

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.whole = self.draw.random() < 0.5
        self.some = Workers(self.draw.randint(1, MOST_WORKERS), whole=self.whole)
        self.queue, self.owned = self.some.queue, self.some.owned
        self.hand: dict[SomeWork, list[int]] = {}
        self.given: set[int] = set()
        self.done: set[int] = set()
        # What the queue knows to be done: finished, or done before the last sync.
        self.counted: set[int] = set()
        self.seconds = 0.0

    def step(self) -> None:
        """Let something happen, let idle workers take work, and check what holds."""
        in_hand = [self.call, self.call, self.finish, self.finish] if self.hand else []
        self.draw.choice([self.put, self.sync, *in_hand])()
        if len(self.given) > 30 and self.draw.random() < 0.1:
            self.queue.end()
            self.some.carry_out()
        idle = self.draw.choice([0, 0, 1, MOST_WORKERS])
        # There may be more workers than the queue was told.
        while len(self.hand) < MOST_WORKERS - idle and self.begin():
            pass
        self.check()

    # --- events

    def put(self) -> None:
        size = self.draw.choice([0, 1, 4, 16])
        self.some.put([self.draw.randrange(6) for _ in range(size)])

    def begin(self) -> bool:
        busy = {self._key(n) for numbers in self.hand.values() for n in numbers}
        free = [number for number in self.waiting if self._key(number) not in busy]
        work = self.queue.begin()
        assert (work is None) == (not free), "records wait, or came too early"
        if work is not None:
            self._take(work, free)
        elif not (self.hand or self.queue.is_over):
            # Nothing is left, so the position is also past batches without records.
            assert self.owned.progress.done_position == self.some.end
        return work is not None

    def _take(self, work: SomeWork, free: list[int]) -> None:
        got = [*work.offsets]
        assert [*work.records] == self._records(got)
        assert work.batch.owned is self.owned
        ready = [number for number in free if number < self.owned.progress.delivered]
        keys = list(dict.fromkeys(map(self._key, got)))
        # All waiting records of each key are taken, in order.
        for key in keys:
            assert self._of_key(got, key) == self._of_key(ready, key)
        share = len(ready) / (2 * self.some.workers)
        if self.whole:
            assert len(got) >= share
        else:
            assert len(keys) == 1 or len(got) - len(self._of_key(got, keys[-1])) < share
        self.hand[work] = got
        self.given.update(got)

    def call(self) -> None:
        """Call user code with some records. It fails after those that it handles."""
        work, numbers = self.draw.choice([*self.hand.items()])
        if self.draw.random() < 0.3:
            self._move_forward(work, numbers)
        left = numbers[work.done :]
        assert work.current is self._records(left or numbers[-1:])[0]
        stop = self.draw.randint(work.done, len(numbers))
        got = work.up_to(stop)
        assert [*got] == self._records(numbers[work.done : stop])
        assert got is work.records or len(got) < len(numbers), "a copy costs time"
        self._handle(work, left[: self.draw.randint(0, len(got))])

    def _move_forward(self, work: SomeWork, numbers: list[int]) -> None:
        stop = self.draw.randint(work.done, len(numbers))
        indexes = [i for i in range(work.done, stop) if self.draw.random() < 0.3]
        shared, before = work.records, [*work.records]
        work.move_forward(indexes, stop)
        first = numbers[: work.done] + [numbers[i] for i in indexes]
        numbers[:] = first + [number for number in numbers if number not in first]
        assert [*work.offsets] == numbers
        assert [*shared] == before

    def finish(self) -> None:
        """Finish work. Only user code that has lost its shard leaves records undone."""
        work, numbers = self.draw.choice([*self.hand.items()])
        if not self.queue.is_over:
            self._handle(work, numbers[work.done :])
        self.counted.update(numbers[: work.done])
        del self.hand[work]
        before = self.some.commits
        self.queue.finish(work)
        self.some.carry_out()
        assert self.some.commits - before == (2 * self.prefix >= MAX_UNCOMMITTED)

    def sync(self) -> None:
        self.queue.sync_progress()
        self.some.carry_out()
        self.counted |= self.done
        self._check_counts()

    def _handle(self, work: SomeWork, numbers: list[int]) -> None:
        seconds = self.draw.choice([0.0, 0.001, 0.1])
        self.done.update(numbers)
        work.done += len(numbers)
        work.seconds += seconds
        self.seconds += seconds

    # --- what always holds

    def check(self) -> None:
        assert self.owned.progress.done == self.prefix, "not what is done without a gap"
        waiting = memory_size(self._records(self.waiting))
        in_hand = sum(memory_size(self._records(each)) for each in self.hand.values())
        assert self.queue.waiting_bytes == waiting
        assert self.some.held_bytes == waiting + in_hand
        assert self.queue.in_hand == self.hand.keys()
        if any(not self.counted.issuperset(each) for each in self.hand.values()):
            assert not self.owned.is_idle
        if self.queue.is_over and not self.hand:
            assert self.owned.is_idle
            self._check_counts()

    def _check_counts(self) -> None:
        done = self._records(sorted(self.counted))
        assert self.some.processed == len(done)
        assert self.some.processed_bytes == data_size(done)
        assert self.owned.load.handler_seconds == pytest.approx(self.seconds)

    # --- the model

    @property
    def waiting(self) -> list[int]:
        """The records that no worker got yet; none after the shard was given up."""
        if self.queue.is_over:
            return []
        return [n for n in range(len(self.some.records)) if n not in self.given]

    @property
    def prefix(self) -> int:
        """How many records are done before the first that isn't."""
        return next(number for number in count() if number not in self.counted)

    def _key(self, number: int) -> str | int:
        """Return what only one worker may have at a time."""
        if self.some.workers == 1:
            return "the whole shard"
        return self.some.records[number].partition_key or number

    def _of_key(self, numbers: list[int], key: str | int) -> list[int]:
        return [number for number in numbers if self._key(number) == key]

    def _records(self, numbers: list[int]) -> list[Record]:
        return [self.some.records[number] for number in numbers]


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32))
def test_in_any_order_of_events_keys_keep_their_order_and_nothing_is_lost(
    seed: int,
) -> None:
    events = RandomEvents(seed)
    for _ in range(50):
        events.step()


@pytest.mark.parametrize(
    ("whole", "numbers"), [(False, [[0], [1]]), (True, [[0, 1], [2, 3]])]
)
def test_work_for_batches_is_at_least_a_share_and_for_records_at_most(
    numbers: list[list[int]], *, whole: bool
) -> None:
    some = Workers(2, whole=whole)
    some.put([1, 2, 3, 4, 5, 6, 7, 8])
    works: list[Any] = [some.queue.begin(), some.queue.begin()]
    assert [work.offsets for work in works] == numbers


@pytest.mark.parametrize(
    ("seconds", "most"), [(0.001, SLICE_SECONDS / 0.001), (0.00001, MAX_AT_ONCE)]
)
def test_quick_records_come_in_larger_pieces_each_time(
    seconds: float, most: float
) -> None:
    some = Workers(2)
    some.put(range(1, 1000))
    sizes = []
    for _ in range(9):
        work: Any = some.queue.begin()
        sizes.append(len(work.records))
        work.done, work.seconds = sizes[-1], seconds * sizes[-1]
        some.queue.finish(work)
    assert sizes == sorted(sizes)
    assert sizes[-1] == most


async def test_records_that_user_code_marks_itself_are_not_done_when_handled(
    world: World,
) -> None:
    """What waits for user code looks again after each work, and at the end."""
    owned = hold()
    queue = UnmarkedWork(owned, Work)
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return owned.is_idle

    waiting = asyncio.create_task(owned.until(look))
    for numbers in ((1, 2), (3, 4)):
        batch = batch_of(owned, *numbers)
        queue.put(batch)
        work = queue.begin()
        assert work is not None
        await asyncio.sleep(0)
        before = looks
        work.done = 2
        queue.finish(work)
        await asyncio.sleep(0)
        assert looks > before
    assert (owned.progress.done, owned.handed_out) == (0, 4)
    owned.ack_through(Position("3"))
    assert owned.progress.done == 3
    queue.end()
    await waiting
    assert owned.progress.done == 3

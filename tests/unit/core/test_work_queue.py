"""Test which records handlers get, and which are done, in any order of events."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.core.delivery import Free, Processed, Signal
from kinesumer.core.work_queue import (
    SLICE_SECONDS,
    KeyedWork,
    OrderedWork,
    Work,
    WorkQueue,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Record, memory_size
from tests.support.world import hold

SomeWork = Work[OwnedShard]


class Workers:
    """Workers at one shard's queue. Their records have numbers, from 1 on.

    ``keys`` has the key of each record; 0 stands for none.
    """

    def __init__(self, keys: list[int], workers: int = 1, *, whole: bool = False):
        self.owned = hold(max_uncommitted_records=20)
        self.queue: WorkQueue[OwnedShard, SomeWork] = (
            OrderedWork(self.owned, Work)
            if workers == 1
            else KeyedWork(self.owned, Work, workers=workers, whole=whole)
        )
        self.workers = workers
        self.handled: dict[str | None, list[int]] = {}
        self.done: set[int] = set()
        self.processed = self.held_bytes = self.commits = 0
        self._keys = [str(key) if key else None for key in keys]
        self._put = 0

    def put(self, count: int | None = None) -> None:
        """Queue a batch of the next records."""
        stop = len(self._keys) if count is None else self._put + count
        numbers = range(self._put, min(stop, len(self._keys)))
        records = [Record(str(n + 1), b"x" * n, self._keys[n]) for n in numbers]
        self._put += len(records)
        size = memory_size(records)
        self.held_bytes += size
        self.owned.queued_records += len(records)
        end = Position(str(self._put))
        self.queue.put(FetchedBatch(records, 0, size, end, self.owned))
        self.carry_out()

    def begin(self) -> list[SomeWork]:
        """Let idle workers take work. Return what is in hand, in order."""
        while len(self.queue.in_hand) < self.workers and self.queue.begin():
            pass
        keys = [key for work in self.queue.in_hand for key in work.keys]
        assert len(keys) == len(set(keys)), "two workers have one key"
        return sorted(self.queue.in_hand, key=lambda work: work.offsets[0])

    def finish(self, work: SomeWork, done: int | None = None) -> None:
        """Finish work whose first ``done`` records are done."""
        work.done = len(work.records) if done is None else done
        work.seconds = 0.001 * work.done
        for record in work.records[: work.done]:
            number = int(record.sequence_number)
            self.handled.setdefault(record.partition_key, []).append(number)
            self.done.add(number)
        self.queue.finish(work)
        self.carry_out()
        undone = set(range(1, len(self._keys) + 2)) - self.done
        assert self.owned.progress.done == min(undone) - 1

    def carry_out(self) -> None:
        """Count what the queue decides."""
        for effect in self.queue.take_effects():
            if isinstance(effect, Free):
                self.held_bytes -= effect.size
            elif isinstance(effect, Processed):
                self.processed += effect.records
            else:
                assert effect is Signal.COMMIT
                self.commits += 1


def numbers(works: list[SomeWork]) -> list[list[int]]:
    return [[int(record.sequence_number) for record in w.records] for w in works]


KEYS = st.lists(st.integers(0, 6), min_size=1, max_size=60)


@settings(max_examples=100)
@given(
    keys=KEYS,
    workers=st.integers(1, 5),
    whole=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_in_any_order_of_ends_each_key_keeps_its_order_and_no_gap_is_committed(
    *, keys: list[int], workers: int, whole: bool, seed: int
) -> None:
    draw, some = Random(seed), Workers(keys, workers, whole=whole)
    while len(some.done) < len(keys):
        if draw.random() < 0.3:
            some.put(draw.randrange(1, 20))
        if works := some.begin():
            some.finish(draw.choice(works))
    for key, handled in some.handled.items():
        assert key is None or handled == sorted(handled)
    some.queue.sync_progress()
    some.carry_out()
    assert some.processed == len(keys)
    assert some.held_bytes == some.queue.waiting_bytes == 0


@settings(max_examples=60)
@given(keys=KEYS, workers=st.integers(1, 3), seed=st.integers(0, 1 << 32))
def test_a_shard_given_up_in_between_leaves_nothing_behind(
    keys: list[int], workers: int, seed: int
) -> None:
    draw, some = Random(seed), Workers([*keys, 1], workers)
    some.put(len(keys))
    for _ in range(draw.randrange(4)):
        if works := some.begin():
            some.finish(works[0])
    some.begin()
    some.queue.end()
    some.queue.end()
    some.carry_out()
    some.put()
    assert some.queue.begin() is None
    for work in list(some.queue.in_hand):
        assert not some.owned.is_idle
        some.finish(work, draw.randrange(len(work.records) + 1))
    assert some.owned.is_idle
    assert some.held_bytes == 0


def test_a_batch_without_records_moves_the_position_only() -> None:
    some = Workers([1])
    some.put(0)
    some.put()
    assert numbers(some.begin()) == [[1]]


def test_records_done_before_the_end_count_at_once() -> None:
    some = Workers([1] * 4)
    some.put()
    [work] = some.begin()
    work.done, work.seconds = 3, 2.0
    some.queue.sync_progress()
    some.carry_out()
    assert (some.owned.progress.done, some.processed) == (3, 3)
    assert some.owned.load.handler_seconds == 2.0


def test_many_done_records_ask_for_a_commit() -> None:
    some = Workers([1] * 10)
    some.put(9)
    some.put()
    some.finish(some.begin()[0])
    before = some.commits
    some.finish(some.begin()[0])
    assert [before, some.commits] == [0, 1]


@pytest.mark.parametrize(("whole", "sizes"), [(False, [1, 1]), (True, [2, 2])])
def test_work_for_batches_is_at_least_a_share_and_for_records_at_most(
    sizes: list[int], *, whole: bool
) -> None:
    some = Workers([1, 2, 3, 4, 5, 6, 7, 8], 2, whole=whole)
    some.put()
    assert [len(work.records) for work in some.begin()] == sizes


def test_quick_records_come_in_larger_pieces_each_time() -> None:
    some = Workers([*range(1, 100)], 2)
    some.put()
    sizes = []
    for _ in range(6):
        work: Any = some.begin()[0]
        sizes.append(len(work.records))
        some.finish(work)
    assert sizes == sorted(sizes)
    assert sizes[-1] == SLICE_SECONDS / 0.001


def test_the_records_of_work_can_be_reordered_behind_what_is_done() -> None:
    some = Workers([1] * 5)
    some.put()
    [work] = some.begin()
    before = work.records
    assert work.up_to(5) is before
    work.done = 1
    work.move_forward([3], 4)
    assert numbers([work]) == [[1, 4, 2, 3, 5]]
    assert work.offsets == [0, 3, 1, 2, 4]
    assert work.current.sequence_number == "4"
    assert [r.sequence_number for r in work.up_to(3)] == ["4", "2"]
    work.done = 5
    assert work.current.sequence_number == "5"

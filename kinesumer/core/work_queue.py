"""Decide which records of a shard handlers get next, and which records are done.

This is the delivery to handlers, as ``core/delivery.py`` is the delivery to loops: a
state machine without clock, tasks or I/O. The driver reports events by calling methods,
and carries out the same effects.

``OrderedWork`` keeps the order of all records. ``UnmarkedWork`` does, too, for user
code that acknowledges records later. ``KeyedWork`` keeps the order of each
key's records, so that several keys are handled at once. For example, a batch has
records of the keys a, b and a. Two workers get both records of a, and that of b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kinesumer.core.delivery import Effect, Free, Processed, Signal
from kinesumer.core.handout import FetchedBatch, S
from kinesumer.model.records import RECORD_OVERHEAD_BYTES, Record, memory_size


@dataclass(eq=False, slots=True)
class Work(Generic[S]):
    """Records of one shard, in order, that user code is handling."""

    # The batch of the newest of these records.
    batch: FetchedBatch[S]
    records: Sequence[Record]
    # Indexes of the records among all delivered records of the shard, from 0.
    offsets: Sequence[int]
    size: int  # bytes in memory
    # Until this work is finished, no other worker may handle these keys. A record
    # without a key has its offset in place of the key.
    keys: Sequence[str | int] = ()
    # Number of handled records. Threads that run user code update it, too.
    done: int = 0
    # Number of handled records that the queue has counted.
    counted: int = 0
    # Total duration of the successful calls, and how much of it the queue has counted.
    seconds: float = 0.0
    counted_seconds: float = 0.0

    @property
    def current(self) -> Record:
        """The first record that isn't done; the last record if all are done."""
        return self.records[min(self.done, len(self.records) - 1)]

    def up_to(self, stop: int) -> Sequence[Record]:
        """Return the remaining records up to ``stop``."""
        records = self.records
        return (
            records[self.done : stop] if self.done or stop < len(records) else records
        )

    def move_forward(self, indexes: Sequence[int], stop: int) -> None:
        """Move these records before the others from ``done`` to ``stop``."""
        others = set(range(self.done, stop)).difference(indexes)
        order = [*range(self.done), *indexes, *sorted(others)]
        order += range(stop, len(self.records))
        # Other objects share the former lists.
        self.records = [self.records[index] for index in order]
        self.offsets = [self.offsets[index] for index in order]


W = TypeVar("W", bound=Work)  # type: ignore[type-arg]


class WorkQueue(ABC, Generic[S, W]):
    """Queues one shard's batches, and keeps track of the handled records.

    ``new_work`` makes the driver's own kind of ``Work``.
    """

    def __init__(self, shard: S, new_work: Callable[..., W]) -> None:
        self.shard: S = shard
        self.in_hand: set[W] = set()  # the work that user code is handling
        self.waiting_bytes: int = 0  # memory of the records that wait
        # True if user code gets no more records of the shard. Threads read it, too.
        self.is_over: bool = False
        self._new_work = new_work
        self._batches: deque[FetchedBatch[S]] = deque()
        # Handled records that aren't in the metrics yet, and the bytes of their data.
        self._processed = self._processed_bytes = 0
        self._effects: list[Effect[S]] = []

    def take_effects(self) -> list[Effect[S]]:
        """Return what the driver has to do, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    def put(self, batch: FetchedBatch[S]) -> None:
        """Queue a batch."""
        if self.is_over:
            self._effects.append(Free(self.shard, batch.size))
        else:
            self._batches.append(batch)
            self.waiting_bytes += batch.size

    def begin(self) -> W | None:
        """Begin other work, and return it. Return None if none may be done now."""
        work = self._take()
        if work is not None:
            self.waiting_bytes -= work.size
            self.in_hand.add(work)
            self.shard.set_delivered(self.shard.progress.delivered)
        return work

    def finish(self, work: W) -> None:
        """Remove work that user code has finished or has stopped handling."""
        self._mark(work)
        self.in_hand.discard(work)
        self._finished(work)
        self._effects.append(Free(self.shard, work.size))
        if self.shard.wants_commit:
            self._effects.append(Signal.COMMIT)
        if self.is_over:
            self._release_when_idle()

    def sync_progress(self) -> None:
        """Add the handled records to the shard's progress and to the metrics."""
        for work in self.in_hand:
            self._mark(work)
        self._report()

    def end(self) -> None:
        """Deliver no more records. Running handlers may still finish their records."""
        self.is_over = True
        self._effects.append(Free(self.shard, self.waiting_bytes))
        self.waiting_bytes = 0
        self._batches.clear()
        self._release_when_idle()

    @abstractmethod
    def _take(self) -> W | None:
        """Return records that may be handled now, if there are any."""

    @abstractmethod
    def _finished(self, work: W) -> None:
        """Let other workers handle what had to wait for this work."""

    def _next_batch(self) -> tuple[FetchedBatch[S], int]:
        """Remove the next batch. Return it and the offset of its first record."""
        batch = self._batches.popleft()
        return batch, self.shard.progress.deliver(batch.records, batch.end)

    def _release_when_idle(self) -> None:
        if not self.in_hand:
            self._report()
            self.shard.reduce_delivered(0)

    def _mark(self, work: W) -> None:
        self.shard.load.handler_seconds += work.seconds - work.counted_seconds
        work.counted_seconds = work.seconds
        first, done = work.counted, work.done
        if done > first:
            work.counted = done
            self._done(work.offsets[first:done])
            whole = done - first == len(work.records)
            size = work.size if whole else memory_size(work.records[first:done])
            self._processed += done - first
            self._processed_bytes += size - RECORD_OVERHEAD_BYTES * (done - first)

    def _done(self, offsets: Sequence[int]) -> None:
        """Mark handled records as done."""
        self.shard.progress.mark_offsets(offsets)

    def _report(self) -> None:
        """Add handled records to the metrics. Doing so for each work would be slow."""
        count, size = self._processed, self._processed_bytes
        if count:
            self._processed = self._processed_bytes = 0
            self._effects.append(Processed(self.shard, count, size))


class OrderedWork(WorkQueue[S, W]):
    """Delivers one batch at a time, in order."""

    def _take(self) -> W | None:
        while self._batches and not self.in_hand:
            batch, first = self._next_batch()
            if batch.records:
                offsets = range(first, first + len(batch.records))
                return self._new_work(batch, batch.records, offsets, batch.size)
        return None

    def _finished(self, work: W) -> None:
        """Do nothing: the next batch waits for nothing else."""


class UnmarkedWork(OrderedWork[S, W]):
    """Delivers one batch at a time, whose records user code marks as done by itself."""

    def _done(self, offsets: Sequence[int]) -> None:
        """Do nothing: a record that was handled may have to be delivered again."""

    def _finished(self, work: W) -> None:
        """Let what waits for user code look again, since no record was marked."""
        self.shard.reduce_delivered(self.shard.progress.delivered)


@dataclass(slots=True)
class _KeyBacklog:
    """The waiting records of one key."""

    records: list[Record] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


# Work for a handler of single records takes about this long.
SLICE_SECONDS = 0.005
MAX_AT_ONCE = 100


class KeyedWork(WorkQueue[S, W]):
    """Keeps the order of each key's records. Different keys can be handled at once.

    Records without a key have no order, and each of them is handled by itself.

    Work has the records of several keys, because each piece of work has a fixed cost.
    If few records wait, the pieces are smaller, so that all ``workers`` end at about
    the same time. For a handler of batches, ``whole``, a piece is at least
    ``SLICE_SECONDS`` of work. For a handler of single records it is at most that much
    work, so that few keys wait behind a slow key.
    """

    def __init__(
        self, shard: S, new_work: Callable[..., W], *, workers: int, whole: bool
    ) -> None:
        super().__init__(shard, new_work)
        self._workers = workers
        self._is_whole = whole
        # An estimate of the number of records that are handled in SLICE_SECONDS.
        self._fit = 1.0
        self._last: FetchedBatch[S]
        # Waiting records by key. The key that has waited longest is first.
        self._ready: OrderedDict[str | int, _KeyBacklog] = OrderedDict()
        # New records of the keys that are being handled.
        self._busy: dict[str | int, _KeyBacklog] = {}
        self._count = 0  # records in ``_ready``

    def _take(self) -> W | None:
        while not self._ready and self._batches:
            self._open()
        if not self._ready:
            return None
        # Take half of a worker's share of the records, so that the other workers find
        # work while this work is done slowly.
        share = self._count / (2 * self._workers)
        limit = (max if self._is_whole else min)(share, self._fit)
        taken = _KeyBacklog()
        keys: list[str | int] = []
        while self._ready and (not keys or len(taken.records) < limit):
            key, backlog = self._ready.popitem(last=False)
            self._busy[key] = _KeyBacklog()
            keys.append(key)
            taken.records += backlog.records
            taken.offsets += backlog.offsets
        self._count -= len(taken.records)
        size = memory_size(taken.records)
        return self._new_work(self._last, taken.records, taken.offsets, size, keys)

    def end(self) -> None:
        """Deliver no more records, and forget those that wait."""
        super().end()
        self._ready.clear()
        self._busy = {key: _KeyBacklog() for key in self._busy}

    def _finished(self, work: W) -> None:
        for key in work.keys:
            backlog = self._busy.pop(key)
            if backlog.records:
                self._ready[key] = backlog
                self._count += len(backlog.records)
        if work.seconds:
            fit = SLICE_SECONDS * work.done / work.seconds
            # Grow slowly, because the first records may be quick by chance.
            self._fit = min(max(1.0, fit), 2 * self._fit, MAX_AT_ONCE)

    def _open(self) -> None:
        """Add each record of the next batch to the backlog of its key."""
        # All records become objects now. Packed ones would stay in memory beside them.
        self._batches[0].records = [*self._batches[0].records]
        self._last, offset = self._next_batch()
        busy, ready = self._busy, self._ready
        for record in self._last.records:
            key = record.partition_key or offset
            backlog = busy.get(key)
            if backlog is None:
                self._count += 1
                backlog = ready.get(key)
                if backlog is None:
                    backlog = ready[key] = _KeyBacklog()
            backlog.records.append(record)
            backlog.offsets.append(offset)
            offset += 1

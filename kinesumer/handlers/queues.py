"""Queue a shard's records, and keep the order of all records or of each key's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.consuming.prefetch import memory_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.consuming.prefetch import FetchedBatch
    from kinesumer.core.progress import Progress
    from kinesumer.model.records import Record


class Selection(NamedTuple):
    """Records that may be handled now."""

    # The batch of the newest of these records.
    batch: FetchedBatch
    records: list[Record]
    # Indexes of the records among all delivered records of the shard, from 0.
    offsets: Sequence[int]
    # Number of bytes that the records take in the prefetch buffer.
    size: int
    # Until this selection is finished, no other worker may handle these keys. A record
    # without a key has its offset in place of the key.
    keys: Sequence[str | int] = ()


class Queue(ABC):
    """Holds waiting records of a shard, and decides which may be handled now."""

    def __init__(self) -> None:
        # Size of the waiting records, in bytes.
        self.size: int = 0
        self._batches: deque[FetchedBatch] = deque()

    def put(self, batch: FetchedBatch) -> None:
        """Add a batch."""
        self._batches.append(batch)
        self.size += batch.size

    def _subtract(self, size: int) -> None:
        """Note that records of this size, in bytes, no longer wait."""
        self.size -= size

    @abstractmethod
    def take(self, progress: Progress) -> Selection | None:
        """Return records that may be handled now, if there are any."""

    @abstractmethod
    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Note that user code has handled ``done`` records of a selection."""

    def clear(self) -> None:
        """Remove all waiting records."""
        self._batches.clear()
        self.size = 0


class OrderedQueue(Queue):
    """Delivers one batch at a time, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._is_out = False

    def take(self, progress: Progress) -> Selection | None:
        """Return the next batch, unless one is being handled."""
        while self._batches and not self._is_out:
            batch = self._batches.popleft()
            self._subtract(batch.size)
            first = progress.deliver(batch.records, batch.end)
            if batch.records:
                self._is_out = True
                offsets = range(first, first + len(batch))
                return Selection(batch, batch.records, offsets, batch.size)
        return None

    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Make the next batch available."""
        self._is_out = False


@dataclass(slots=True)
class _KeyBacklog:
    """The waiting records of one key."""

    records: list[Record] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


# A selection for a handler of single records takes about this long.
SLICE_SECONDS = 0.005
MAX_AT_ONCE = 100


class KeyedQueue(Queue):
    """Keeps the order of each key's records. Different keys can be handled at once.

    Records without a key have no order, and each of them is handled by itself.

    A selection has the records of several keys, because each selection has a fixed
    cost. If few records wait, selections are smaller, so that all workers end at about
    the same time. For a handler of batches, a selection is at least ``SLICE_SECONDS``
    of work. For a handler of single records it is at most that much work, so that few
    keys wait behind a slow key.
    """

    def __init__(self, workers: int, *, whole: bool) -> None:
        super().__init__()
        self._workers = workers
        self._is_whole = whole
        # An estimate of the number of records that are handled in SLICE_SECONDS.
        self._fit = 1.0
        self._last: FetchedBatch
        # Waiting records by key. The key that has waited longest is first.
        self._ready: OrderedDict[str | int, _KeyBacklog] = OrderedDict()
        # New records of the keys that are being handled.
        self._busy: dict[str | int, _KeyBacklog] = {}
        # Number of records in ``_ready``.
        self._count = 0

    def take(self, progress: Progress) -> Selection | None:
        """Return the records of some keys that aren't being handled."""
        while not self._ready and self._batches:
            self._open(progress, self._batches.popleft())
        if not self._ready:
            return None
        # Take half of a worker's share of the records, so that the other workers find
        # work while this selection is handled slowly.
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
        self._subtract(size)
        return Selection(self._last, taken.records, taken.offsets, size, keys)

    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Make the keys of a selection available again."""
        for key in selection.keys:
            backlog = self._busy.pop(key)
            if backlog.records:
                self._ready[key] = backlog
                self._count += len(backlog.records)
        if seconds:
            fit = SLICE_SECONDS * done / seconds
            # Grow slowly, since the first records may be quick by chance.
            self._fit = min(max(1.0, fit), 2 * self._fit, MAX_AT_ONCE)

    def clear(self) -> None:
        """Remove all waiting records."""
        super().clear()
        self._ready.clear()
        self._busy = {key: _KeyBacklog() for key in self._busy}
        self._count = 0

    def _open(self, progress: Progress, batch: FetchedBatch) -> None:
        """Add each record of a batch to the backlog of its key."""
        self._last = batch
        offset = progress.deliver(batch.records, batch.end)
        busy, ready = self._busy, self._ready
        for record in batch.records:
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

"""A shard's batches until they are handled: in order, or in order by key."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesumer.consuming.prefetch import memory_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.consuming.prefetch import FetchedBatch
    from kinesumer.core.progress import Progress
    from kinesumer.model.records import Record


class Selection(NamedTuple):
    """Records that may be handled now."""

    batch: FetchedBatch
    """The batch that the last of them came in."""
    records: list[Record]
    offsets: Sequence[int]
    """Their indexes among all records delivered of the shard, from 0."""
    size: int
    """Bytes that they take in the buffer."""
    keys: Sequence[str | None] = ()
    """Partition keys that no other worker may handle meanwhile."""


class Queue(Protocol):
    """Decides which records may be handled next, beside those that are."""

    size: int
    """Bytes of what waits."""

    def put(self, batch: FetchedBatch) -> None:
        """Take a batch in."""

    def take(self, progress: Progress) -> Selection | None:
        """Return records that may be handled now, if there are any."""

    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Note that user code is through with ``done`` records of a selection."""

    def clear(self) -> None:
        """Forget what waits."""


class OrderedQueue:
    """One batch after the other."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: deque[FetchedBatch] = deque()
        self._is_out = False

    def put(self, batch: FetchedBatch) -> None:
        """Take a batch in."""
        self._batches.append(batch)
        self.size += batch.size

    def take(self, progress: Progress) -> Selection | None:
        """Return the next batch, unless one is being handled."""
        while self._batches and not self._is_out:
            batch = self._batches.popleft()
            self.size -= batch.size
            first = progress.deliver(batch.records, batch.end)
            if batch.records:
                self._is_out = True
                offsets = range(first, first + len(batch))
                return Selection(batch, batch.records, offsets, batch.size)
        return None

    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Make the next batch available."""
        self._is_out = False

    def clear(self) -> None:
        """Forget the batches that wait."""
        self._batches.clear()
        self.size = 0


class _KeyBacklog:
    """The records of one key that wait."""

    __slots__ = ("offsets", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.offsets: list[int] = []


SLICE_SECONDS = 0.005
MOST_AT_ONCE = 100


class KeyedQueue:
    """Any records whose partition keys aren't being handled, each key in order.

    Several keys are handed out at once, since each time has its price: fewer, the less
    there is, so that all workers end at about the same time. Of what is handled
    ``whole``, no less than takes a moment. Else no more than that, so that few keys
    wait for a slow one though others could take them.
    """

    def __init__(self, workers: int, *, whole: bool) -> None:
        self.size = 0
        self._workers = workers
        self._is_whole = whole
        self._fit = 1.0
        """How many records are handled in a moment, as far as is known."""
        self._batches: deque[FetchedBatch] = deque()
        self._last: FetchedBatch
        self._ready: OrderedDict[str | None, _KeyBacklog] = OrderedDict()
        """What waits, by key, the key that has waited longest first."""
        self._busy: dict[str | None, _KeyBacklog] = {}
        """What has come meanwhile for the keys that are being handled."""
        self._count = 0
        """Records in ``_ready``."""

    def put(self, batch: FetchedBatch) -> None:
        """Take a batch in."""
        self._batches.append(batch)
        self.size += batch.size

    def take(self, progress: Progress) -> Selection | None:
        """Return the records of some keys that aren't being handled."""
        while not self._ready and self._batches:
            self._open(progress, self._batches.popleft())
        if not self._ready:
            return None
        share = self._count / (2 * self._workers)
        most = max(share, self._fit) if self._is_whole else min(share, self._fit)
        taken = _KeyBacklog()
        keys: list[str | None] = []
        while self._ready and (not keys or len(taken.records) < most):
            key, line = self._ready.popitem(last=False)
            self._busy[key] = _KeyBacklog()
            keys.append(key)
            taken.records += line.records
            taken.offsets += line.offsets
        self._count -= len(taken.records)
        size = memory_size(taken.records)
        self.size -= size
        return Selection(self._last, taken.records, taken.offsets, size, keys)

    def finish(self, selection: Selection, done: int, seconds: float) -> None:
        """Make the keys of a selection available again."""
        for key in selection.keys:
            line = self._busy.pop(key)
            if line.records:
                self._ready[key] = line
                self._count += len(line.records)
        if seconds:
            fit = SLICE_SECONDS * done / seconds
            # Not at once: the first records of all may be quick by chance.
            self._fit = min(max(1.0, fit), 2 * self._fit, MOST_AT_ONCE)

    def clear(self) -> None:
        """Forget what waits."""
        self._batches.clear()
        self._ready.clear()
        self._busy = {key: _KeyBacklog() for key in self._busy}
        self.size = self._count = 0

    def _open(self, progress: Progress, batch: FetchedBatch) -> None:
        """Sort a batch's records by their keys."""
        self._last = batch
        offset = progress.deliver(batch.records, batch.end)
        busy, ready = self._busy, self._ready
        for record in batch.records:
            key = record.partition_key
            line = busy.get(key)
            if line is None:
                self._count += 1
                line = ready.get(key)
                if line is None:
                    line = ready[key] = _KeyBacklog()
            line.records.append(record)
            line.offsets.append(offset)
            offset += 1

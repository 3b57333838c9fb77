"""The records of one owned shard, and their progress through user code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import memory_size
from kinesumer.model.records import RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.handlers.queues import Queue, Selection
    from kinesumer.handlers.retry import Failure
    from kinesumer.model.records import Record
    from kinesumer.telemetry.api import Telemetry


class ShardStopped(Exception):
    """The shard is given up or the client ends, so handling must stop."""


@dataclass(eq=False, slots=True)
class WorkItem:
    """Records of one shard, in order, that user code is handling."""

    queue: ShardQueue
    selection: Selection
    records: list[Record]
    offsets: Sequence[int]
    # Number of bytes that the records take in the prefetch buffer.
    size: int
    # Number of handled records. Threads that run user code update it, too.
    done: int = 0
    # Number of handled records that the queue has counted.
    reported: int = 0
    # Start of the current call of user code; None if there is no call.
    busy_since: float | None = None
    # Total duration of the successful calls, and how much of it the queue has counted.
    seconds: float = 0.0
    reported_seconds: float = 0.0
    # Number of bytes to which the data of the decoded records was decompressed.
    decompressed: int = 0
    # The name, in the watchdog's reports, of what is running now.
    activity: str = "user code"
    # The last failure of the record at ``done``.
    failure: Failure | None = None
    task: asyncio.Task[object] | None = None
    # The id of the thread that runs user code; 0 for the event loop.
    thread: int = 0

    @property
    def current(self) -> Record:
        """The first record that isn't done; the last record if all are done."""
        return self.records[min(self.done, len(self.records) - 1)]

    def up_to(self, stop: int) -> list[Record]:
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


@dataclass(eq=False)
class ShardQueue:
    """Queues one shard's batches, and keeps track of the handled records."""

    owned: OwnedShard
    _queue: Queue
    _buffer: PrefetchBuffer
    _telemetry: Telemetry
    _checkpointer: CommitRequester
    # True if user code gets no more records of the shard. Threads read it, too.
    is_over: bool = False
    # The next time of each repeated log line of the shard, and the lines left out.
    log_due: dict[str, float] = field(default_factory=dict)
    lines_left_out: dict[str, int] = field(default_factory=dict)
    # The dead letters of the shard, less the records that were handled since.
    excess_letters: int = 0
    # The items that user code is handling.
    items: set[WorkItem] = field(default_factory=set)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    # Number and bytes of handled records that aren't in the metrics yet.
    _processed: int = 0
    _processed_size: int = 0

    @property
    def has_waiting(self) -> bool:
        """Return whether records wait for user code."""
        return self._queue.size > 0

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch."""
        if self.is_over:
            self._buffer.give_back(self.owned, batch.size)
        else:
            self._queue.put(batch)

    def begin(self) -> WorkItem | None:
        """Begin another item, and return it. Return None if none may be handled now."""
        if self.is_over:
            return None
        taken = self._queue.take(self.owned.progress)
        if taken is None:
            return None
        item = WorkItem(self, taken, taken.records, taken.offsets, taken.size)
        self.items.add(item)
        self.owned.set_delivered(self.owned.progress.delivered)
        return item

    def note_handled(self, count: int) -> None:
        """Count handled records. If the shard is held, release it."""
        if count and self.owned.held_by is not None:
            self.excess_letters, self.owned.held_by = 0, None
        self.excess_letters = max(0, self.excess_letters - count)

    def finish(self, item: WorkItem) -> None:
        """Remove an item that user code has finished or has stopped handling."""
        self._mark(item)
        self.items.discard(item)
        self._queue.finish(item.selection, item.done, item.seconds)
        self._buffer.give_back(self.owned, item.size)
        if self.owned.wants_commit:
            self._checkpointer.commit_soon()
        if self.is_over:
            self._clear_when_idle()

    def sync_progress(self) -> None:
        """Add the handled records to the shard's progress and to the metrics."""
        for item in self.items:
            self._mark(item)
        self._report()

    def end(self) -> None:
        """Deliver no more records. Running handlers may still finish their records."""
        if self.is_over:
            return
        self.is_over = True
        self._over.set()
        size = self._queue.size
        self._queue.clear()
        self._buffer.give_back(self.owned, size)
        self._clear_when_idle()

    def _clear_when_idle(self) -> None:
        if not self.items:
            self._report()
            self.owned.reduce_delivered(0)

    async def sleep(self, seconds: float) -> None:
        """Wait this long. Raises ShardStopped if the queue ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise ShardStopped

    def _mark(self, item: WorkItem) -> None:
        seconds = item.seconds
        self.owned.load.handler_seconds += seconds - item.reported_seconds
        item.reported_seconds = seconds
        first, done = item.reported, item.done
        if done > first:
            item.reported = done
            self.owned.progress.mark_offsets(item.offsets[first:done])
            whole = done - first == len(item.records)
            part = item.records[first:done]
            self._processed += done - first
            self._processed_size += item.size if whole else memory_size(part)

    def _report(self) -> None:
        """Add handled records to the metrics. Doing so for each item would be slow."""
        count, size = self._processed, self._processed_size
        if count:
            self._processed = self._processed_size = 0
            data_bytes = size - RECORD_OVERHEAD_BYTES * count
            arn = self.owned.key.stream_arn
            self._telemetry.count("records_processed", arn, count)
            self._telemetry.count("data_bytes_processed", arn, data_bytes)

"""One owned shard's records on their way through user code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import RECORD_OVERHEAD_BYTES, memory_size
from kinesumer.handlers.watermark import Watermark
from kinesumer.telemetry.names import DATA_BYTES_PROCESSED, RECORDS_PROCESSED

if TYPE_CHECKING:
    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.handlers.queues import Queue, Selection
    from kinesumer.handlers.retry import Failure
    from kinesumer.model.batch import Batch
    from kinesumer.telemetry.api import Telemetry


class ShardStopped(Exception):
    """User code may get no more records: the shard is given up, or the client ends."""


class WorkItem:
    """Some records, in order, on their way through user code."""

    __slots__ = (
        "activity",
        "busy_since",
        "done",
        "failure",
        "offsets",
        "queue",
        "records",
        "reported",
        "seconds",
        "selection",
        "size",
        "task",
        "thread",
    )

    def __init__(self, queue: ShardQueue, selection: Selection) -> None:
        self.queue = queue
        self.selection = selection
        self.records = selection.records
        self.offsets = selection.offsets
        self.size = selection.size
        """Bytes that the records take in the buffer."""
        self.done = 0
        """How many records are done. A thread that runs user code counts, too."""
        self.reported = 0
        """How many of the done records the queue has counted."""
        self.busy_since: float | None = None
        """When user code got the record that it has; None while it has none."""
        self.seconds = 0.0
        """How long the calls that succeeded took."""
        self.activity = "user code"
        """What the item waits for, for the watchdog."""
        self.failure: Failure | None = None
        """How the record at ``done`` failed at its last attempt."""
        self.task: asyncio.Task[object] | None = None
        self.thread = 0
        """The thread that runs user code; 0 on the event loop."""

    def batch_up_to(self, stop: int) -> Batch:
        """Return those of the first ``stop`` records that aren't done as a batch."""
        records = self.records
        if self.done or stop < len(records):
            records = records[self.done : stop]
        return self.selection.batch.for_user(records)


class ShardQueue:
    """Queues one shard's batches, and keeps track of what is done."""

    def __init__(
        self,
        owned: OwnedShard,
        queue: Queue,
        buffer: PrefetchBuffer,
        telemetry: Telemetry,
        checkpointer: CommitRequester,
    ) -> None:
        self.owned = owned
        self.is_over = False
        """User code gets no more records of the shard. Threads read it, too."""
        self.items: set[WorkItem] = set()
        """What user code has in hand."""
        self._queue = queue
        self._buffer = buffer
        self._telemetry = telemetry
        self._checkpointer = checkpointer
        self._over = asyncio.Event()
        self._watermark = Watermark()
        self._processed = self._processed_size = 0
        """Done records that aren't in the metrics yet, and their bytes."""

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch."""
        if self.is_over:
            self._buffer.give_back(self.owned, batch.size)
        else:
            self._queue.put(batch)

    def begin(self) -> WorkItem | None:
        """Return what may be handed to user code next, beside what it has."""
        if self.is_over:
            return None
        selection = self._queue.take(self.owned.progress)
        if selection is None:
            return None
        item = WorkItem(self, selection)
        self.items.add(item)
        self.owned.set_delivered(self.owned.progress.delivered)
        return item

    def finish(self, item: WorkItem) -> None:
        """Take back what user code is through with, or has left."""
        self._mark(item)
        self.items.discard(item)
        self._queue.finish(item.selection, item.done, item.seconds)
        self._store()
        self._buffer.give_back(self.owned, item.size)
        if self.owned.wants_commit:
            self._checkpointer.commit_soon()
        if self.is_over and not self.items:
            self._report()
            self.owned.clear_delivered()

    def sync_progress(self) -> None:
        """Bring the owned shard up to date."""
        for item in self.items:
            self._mark(item)
        self._store()
        self._report()

    def end(self) -> None:
        """Give user code nothing more of it; what it has may still be finished."""
        if self.is_over:
            return
        self.is_over = True
        self._over.set()
        size = self._queue.size
        self._queue.clear()
        self._buffer.give_back(self.owned, size)
        if not self.items:
            self._report()
            self.owned.clear_delivered()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises ShardStopped if the queue ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise ShardStopped

    def _mark(self, item: WorkItem) -> None:
        first, done = item.reported, item.done
        if done > first:
            item.reported = done
            self._watermark.mark(item.offsets[first:done])
            whole = done - first == len(item.records)
            part = item.records[first:done]
            self._processed += done - first
            self._processed_size += item.size if whole else memory_size(part)

    def _store(self) -> None:
        self.owned.progress.done_through(self._watermark.value)

    def _report(self) -> None:
        """Count what was processed: not per item, which may be a record."""
        count, size = self._processed, self._processed_size
        if count:
            self._processed = self._processed_size = 0
            data_bytes = size - RECORD_OVERHEAD_BYTES * count
            arn = self.owned.key.stream_arn
            self._telemetry.count(RECORDS_PROCESSED, arn, count)
            self._telemetry.count(DATA_BYTES_PROCESSED, arn, data_bytes)

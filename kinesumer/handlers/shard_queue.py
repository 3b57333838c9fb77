"""One shard's way through user code, for as long as it is held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import RECORD_OVERHEAD_BYTES, memory_size
from kinesumer.handlers.watermark import Watermark
from kinesumer.handlers.work_item import ShardStopped
from kinesumer.telemetry.names import DATA_BYTES_PROCESSED, RECORDS_PROCESSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import Batch, PrefetchBuffer
    from kinesumer.handlers.queues import Queue
    from kinesumer.handlers.work_item import WorkItem
    from kinesumer.telemetry.api import Telemetry


class ShardQueue:
    """Queues one shard's batches, and knows what of them is done."""

    def __init__(
        self,
        owned: OwnedShard,
        queue: Queue,
        buffer: PrefetchBuffer,
        telemetry: Telemetry,
        commit_soon: Callable[[], None],
    ) -> None:
        self.owned = owned
        self.is_over = False
        """Nothing more of it is handed to user code. Threads look at it, too."""
        self.items: set[WorkItem] = set()
        """What user code has in hand."""
        self._queue = queue
        self._buffer = buffer
        self._telemetry = telemetry
        self._commit_soon = commit_soon
        self._over = asyncio.Event()
        self._watermark = Watermark()
        self._processed = self._processed_size = 0
        """Records that are through since that was last told, and their bytes."""

    def put(self, batch: Batch) -> None:
        """Queue a batch."""
        if self.is_over:
            self._buffer.give_back(self.owned, batch.size)
        else:
            self._queue.put(batch)

    def begin(self) -> WorkItem | None:
        """Return what may be handed to user code next, beside what it has."""
        if self.is_over:
            return None
        item = self._queue.take(self)
        if item is not None:
            self.items.add(item)
            self.owned.set_delivered(self.owned.progress.delivered)
        return item

    def finish(self, item: WorkItem) -> None:
        """Take back what user code is through with, or has left."""
        self._mark(item)
        self.items.discard(item)
        self._queue.finish(item)
        self._store()
        self._buffer.give_back(self.owned, item.size)
        if self.owned.wants_commit:
            self._commit_soon()
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

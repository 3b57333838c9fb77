"""One shard's way through user code, for as long as it is held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import RECORD_OVERHEAD_BYTES, memory_size
from kinesumer.handlers.watermark import Watermark
from kinesumer.handlers.work_item import Stoppage
from kinesumer.telemetry.names import DATA_BYTES_PROCESSED, RECORDS_PROCESSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.owned_shard import Holding
    from kinesumer.consuming.prefetch import Batch, Buffer
    from kinesumer.handlers.queues import Queue
    from kinesumer.handlers.work_item import Stint
    from kinesumer.telemetry.api import Telemetry


class Lane:
    """Queues one shard's batches, and knows what of them is done."""

    def __init__(
        self,
        holding: Holding,
        queue: Queue,
        buffer: Buffer,
        telemetry: Telemetry,
        hurry: Callable[[], None],
    ) -> None:
        self.holding = holding
        self.is_over = False
        """Nothing more of it is handed to user code. Threads look at it, too."""
        self.stints: set[Stint] = set()
        """What user code has in hand."""
        self._queue = queue
        self._buffer = buffer
        self._telemetry = telemetry
        self._hurry = hurry
        self._over = asyncio.Event()
        self._watermark = Watermark()
        self._processed = self._processed_size = 0
        """Records that are through since that was last told, and their bytes."""

    def put(self, batch: Batch) -> None:
        """Queue a batch."""
        if self.is_over:
            self._buffer.give_back(self.holding, batch.size)
        else:
            self._queue.put(batch)

    def begin(self) -> Stint | None:
        """Return what may be handed to user code next, beside what it has."""
        if self.is_over:
            return None
        stint = self._queue.take(self)
        if stint is not None:
            self.stints.add(stint)
            self.holding.hand_out(self.holding.progress.delivered)
        return stint

    def finish(self, stint: Stint) -> None:
        """Take back what user code is through with, or has left."""
        self._mark(stint)
        self.stints.discard(stint)
        self._queue.finish(stint)
        self._store()
        self._buffer.give_back(self.holding, stint.size)
        if self.holding.wants_commit:
            self._hurry()
        if self.is_over and not self.stints:
            self._tell()
            self.holding.hand_back()

    def take_stock(self) -> None:
        """Bring the holding up to date."""
        for stint in self.stints:
            self._mark(stint)
        self._store()
        self._tell()

    def end(self) -> None:
        """Give user code nothing more of it; what it has may still be finished."""
        if self.is_over:
            return
        self.is_over = True
        self._over.set()
        size = self._queue.size
        self._queue.clear()
        self._buffer.give_back(self.holding, size)
        if not self.stints:
            self._tell()
            self.holding.hand_back()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises Stoppage if the lane ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise Stoppage

    def _mark(self, stint: Stint) -> None:
        first, done = stint.told, stint.done
        if done > first:
            stint.told = done
            self._watermark.mark(stint.offsets[first:done])
            whole = done - first == len(stint.records)
            part = stint.records[first:done]
            self._processed += done - first
            self._processed_size += stint.size if whole else memory_size(part)

    def _store(self) -> None:
        self.holding.progress.done_through(self._watermark.value)

    def _tell(self) -> None:
        """Count what was processed: not per stint, which may be a record."""
        count, size = self._processed, self._processed_size
        if count:
            self._processed = self._processed_size = 0
            data_bytes = size - RECORD_OVERHEAD_BYTES * count
            arn = self.holding.key.stream_arn
            self._telemetry.count(RECORDS_PROCESSED, arn, count)
            self._telemetry.count(DATA_BYTES_PROCESSED, arn, data_bytes)

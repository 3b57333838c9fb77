"""Carry out what ``core/work_queue.py`` decides for one owned shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinesumer.consuming.delivery_protocol import EngineParts
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.core.work_queue import Work, WorkQueue
from kinesumer.runtime.failure_log import RepeatedLines
from kinesumer.runtime.tasks import within

NewQueue = Callable[
    [OwnedShard, Callable[..., "WorkItem"]], WorkQueue[OwnedShard, "WorkItem"]
]


class ShardStopped(Exception):
    """The shard is given up or the client ends, so handling must stop."""


class NoTimeError(ShardStopped):
    """A wait would outlast the time that user code has. Only Lambda limits it."""


class Failure(NamedTuple):
    """The last error for some records, and the number of calls with them."""

    error: BaseException
    # Number of calls with these records so far.
    calls: int


@dataclass(eq=False, slots=True, kw_only=True)
class WorkItem(Work[OwnedShard]):
    """Records of one shard, in order, and how far user code has come with them."""

    queue: ShardQueue
    # Start of the current call of user code; None if there is no call.
    busy_since: float | None = None
    # Number of bytes to which the data of the decoded records was decompressed.
    decompressed: int = 0
    # The name, in the watchdog's reports, of what is running now.
    activity: str = "user code"
    # The last failure of the record at ``done``.
    failure: Failure | None = None
    task: asyncio.Task[object] | None = None
    # The id of the thread that runs user code; 0 for the event loop.
    thread: int = 0


class ShardQueue:
    """Queues one shard's batches, and keeps what is known of its handler's failures."""

    def __init__(
        self, owned: OwnedShard, new_queue: NewQueue, parts: EngineParts
    ) -> None:
        self.owned = owned
        self.work: WorkQueue[OwnedShard, WorkItem] = new_queue(owned, self._new_item)
        self.lines = RepeatedLines()
        # The dead letters of the shard, less the records that were handled since.
        self.excess_letters = 0
        self._parts = parts
        self._over = asyncio.Event()

    def _new_item(self, *args: Any) -> WorkItem:
        return WorkItem(*args, queue=self)

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch."""
        self.work.put(batch)
        self._carry_out()

    def note_handled(self, count: int) -> None:
        """Count handled records. If the shard is held, release it."""
        if count and self.owned.held_by is not None:
            self.excess_letters, self.owned.held_by = 0, None
        self.excess_letters = max(0, self.excess_letters - count)

    def finish(self, item: WorkItem) -> None:
        """Remove an item that user code has finished or has stopped handling."""
        self.work.finish(item)
        self._carry_out()

    def sync_progress(self) -> None:
        """Add the handled records to the shard's progress and to the metrics."""
        self.work.sync_progress()
        self._carry_out()

    def end(self) -> None:
        """Deliver no more records. Running handlers may still finish their records."""
        self.work.end()
        self._over.set()
        self._carry_out()

    async def sleep(self, seconds: float) -> None:
        """Wait this long. Raises ShardStopped if the queue ends meanwhile."""
        if await within(seconds, self._over.wait()):
            raise ShardStopped

    def _carry_out(self) -> None:
        self._parts.carry_out(self.work.take_effects())

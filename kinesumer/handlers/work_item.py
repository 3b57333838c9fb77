"""Records of one shard that user code has in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from kinesumer.consuming.prefetch import Batch
    from kinesumer.handlers.retry import Failure
    from kinesumer.handlers.shard_queue import ShardQueue
    from kinesumer.model.records import Record


class ShardStopped(Exception):
    """No more may be handed to user code: the shard is given up, or the client ends."""


class WorkItem:
    """Some records, in order, on their way through user code."""

    __slots__ = (
        "activity",
        "batch",
        "busy_since",
        "done",
        "failure",
        "keys",
        "offsets",
        "queue",
        "records",
        "reported",
        "seconds",
        "size",
        "task",
        "thread",
    )

    def __init__(
        self,
        queue: ShardQueue,
        batch: Batch,
        records: list[Record],
        offsets: Sequence[int],
        size: int,
        keys: Sequence[str | None] = (),
    ) -> None:
        self.queue = queue
        self.batch = batch
        """The one that the last of them came in."""
        self.records = records
        self.offsets = offsets
        """Their places among all records of the shard, counted from 0."""
        self.size = size
        """Bytes that they take in the buffer."""
        self.keys = keys
        """Partition keys that nobody else may work at meanwhile."""
        self.done = 0
        """So many of them are through. A thread that runs user code counts it on."""
        self.reported = 0
        """So many of them the queue knows to be through."""
        self.busy_since: float | None = None
        """Since when user code has been at the same thing; None if it isn't."""
        self.seconds = 0.0
        """What it took to go through them, as far as nothing failed."""
        self.activity = "user code"
        self.failure: Failure | None = None
        """What the record at ``done`` failed with at the last attempt it may have."""
        self.task: asyncio.Task[object] | None = None
        self.thread = 0
        """The thread that runs user code, if it isn't the event loop's."""

    def batch_up_to(self, stop: int) -> Batch:
        """Return a batch of what is still to be done of the first ``stop`` records."""
        if not self.done and stop == len(self.records):
            return self.batch.with_records(self.records)
        return self.batch.with_records(self.records[self.done : stop])

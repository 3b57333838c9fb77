"""One shard while this session owns it: from the claim to release, end or loss."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from kinesumer.core.progress import Progress
from kinesumer.model.positions import Tip
from kinesumer.model.records import Fence, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.core.liveness import Lease
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ChildShard


TIP_SHARE = 1 / 24
"""The tip of a quiet shard is stored again after this share of the retention. Clients
that stop may stay away for the rest of it, and know that nothing was lost."""


class OwnedShard:
    """A shard's row as claimed, its progress, and whether it may be delivered."""

    def __init__(
        self, app: str, row: ShardRow, lease: Lease, max_uncommitted_records: int
    ) -> None:
        self.lease = lease
        self.row = row
        """As it was when claimed: its owner and epoch stay, its position moves on."""
        self.key = row.key
        fence = Fence(row.key, row.epoch, app)
        self.source = Source(fence, row.first_hash, row.last_hash)
        self._changed = asyncio.Event()
        """Set when user code is through with something, or nobody need wait for it."""
        self.progress = Progress(self._changed.set)
        self.revoked = False
        """No more of it is handed to user code."""
        self.seeked = False
        """An operator moved its position: what is done doesn't count any more."""
        self.children: tuple[ChildShard, ...] | None = None
        """Set when a closed shard was read to its end."""
        self.millis_behind: int | None = None
        self.read_until = row.read_until
        """All that arrived before this time, by Kinesis's clock, was fetched; 0 where
        that is unknown."""
        self.outside_hash_range = 0
        """Records whose hash key lies outside the shard's range."""
        self.task: asyncio.Task[None] | None = None
        """Reads it."""
        self.request_since: float | None = None
        """Since when Kinesis hasn't answered the request under way, if one is; on the
        event loop's clock."""
        self.is_stuck = False
        """The watchdog has found that request unanswered for too long."""
        self.on_revoked: Callable[[], None] | None = None
        """Called once nothing more of it may be handed to user code."""
        self.buffered = 0
        """Bytes of it that are in the buffer, or in user code's hands."""
        self.handed_out = 0
        """User code got everything before this offset."""
        self.orphaned = 0
        """Records before that offset that user code doesn't have any more, or never
        had, and that aren't done: nothing waits for them."""
        self.dropped = 0
        """As many of them were dropped once the shard was given up."""
        self._max_uncommitted = max_uncommitted_records
        self._queued = 0
        self._lost = False
        self._tip_stored_at = row.read_until
        self._tip_seconds = math.inf
        self._moved = asyncio.Event()

    # --- the reader's side ----------------------------------------------------------

    async def wait_for_capacity(self, count: int) -> None:
        """Wait until ``count`` more records keep within ``max_uncommitted_records``."""
        while self._outstanding + count > self._max_uncommitted and self._outstanding:
            self._moved.clear()
            await self._moved.wait()

    def queued(self, count: int) -> None:
        """Note records that went into the buffer."""
        self._queued += count

    def caught_up(self, read_until: float, retention_seconds: float) -> None:
        """Note that all that arrived before a time of Kinesis's clock was queued."""
        self.read_until = max(self.read_until, read_until)
        self._tip_seconds = retention_seconds * TIP_SHARE

    # --- user code's side -----------------------------------------------------------

    def set_delivered(self, count: int) -> None:
        """Note that user code got everything before this offset."""
        self.handed_out = max(self.handed_out, count)

    def reduce_delivered(self, count: int) -> None:
        """Note that user code got no more than what is before this offset."""
        self.handed_out = min(self.handed_out, count)
        self._changed.set()

    def set_orphaned(self, count: int) -> None:
        """Note how many of the records before ``handed_out`` user code doesn't have."""
        self.orphaned = count
        self._changed.set()

    def ack(self, position: Position) -> None:
        """Mark a record as done, in any order."""
        if self.progress.mark(position) and self.orphaned:
            self._changed.set()

    def clear_delivered(self) -> None:
        """Note that user code has nothing of it any more, though not all is done."""
        self.handed_out = 0
        self._changed.set()

    @property
    def wants_commit(self) -> bool:
        """Tell whether enough is done to store it before the interval is over."""
        return 2 * (self.progress.done - self._committed) >= self._max_uncommitted

    @property
    def lost(self) -> bool:
        """Whether another session owns it: nothing of it can be stored any more."""
        return self._lost

    @lost.setter
    def lost(self, lost: bool) -> None:
        self._lost = lost
        self._changed.set()

    @property
    def can_store(self) -> bool:
        """Tell whether positions of it are still taken."""
        return not (self.lost or self.seeked)

    @property
    def is_idle(self) -> bool:
        """Tell whether user code has nothing of it in hand."""
        if self.progress.done >= self.handed_out:
            return True
        return 0 < self.orphaned >= self.progress.undone(self.handed_out)

    @property
    def is_finished(self) -> bool:
        """Tell whether everything that was fetched is done."""
        return self.progress.done >= self._queued

    @property
    def log_fields(self) -> dict[str, object]:
        """What log lines about it carry."""
        source = self.source
        return {
            "stream": source.stream,
            "shard_id": source.shard_id,
            "epoch": source.fence.epoch,
        }

    # --- checkpoints ----------------------------------------------------------------

    @property
    def position(self) -> Position | None:
        """The end of the contiguous done prefix, as far as it isn't stored yet."""
        return self.progress.pending()

    def stored(self, position: Position) -> None:
        """Note that a position was committed."""
        self.progress.committed(position)
        self._moved.set()

    @property
    def due_tip(self) -> Tip | None:
        """The shard's tip, where all up to it is done and the stored one is old."""
        if self.read_until - self._tip_stored_at < self._tip_seconds:
            return None
        position = self.progress.position() or self.row.position
        if position is None or not self.is_finished:
            return None
        return Tip(self.read_until, position)

    def tip_stored(self, tip: Tip) -> None:
        """Note that a tip was stored."""
        self._tip_stored_at = tip.at

    def revoke(self) -> None:
        """Stop reading and handing out."""
        self.revoked = True
        self._changed.set()
        if self.task is not None:
            self.task.cancel()
        if self.on_revoked is not None:
            self.on_revoked()

    async def drained(self, seconds: float) -> bool:
        """Wait for what is in user code; tell whether it finished in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._until(lambda: self.is_idle or self.lost)
        except TimeoutError:
            return False
        return True

    async def finished(self) -> bool:
        """Wait until all that was fetched is done; False: it is given up before."""
        await self._until(lambda: self.revoked or self.is_finished)
        return not self.revoked

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @property
    def _outstanding(self) -> int:
        return self._queued - self._committed

    @property
    def _committed(self) -> int:
        return self.progress.delivered - self.progress.uncommitted

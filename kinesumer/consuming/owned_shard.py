"""A shard while this session owns it: from the claim to release, end or loss."""

from __future__ import annotations

import asyncio
import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

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


class State(Enum):
    """What may still be done with an owned shard."""

    DELIVERING = auto()
    """Records are read and delivered, and positions are stored."""
    RELEASING = auto()
    """The shard is given up: nothing more is delivered, positions are still stored."""
    SEEKED = auto()
    """An operator moved its position: nothing is delivered or stored any more."""
    LOST = auto()
    """Another session owns it: nothing is delivered or stored any more."""


NEXT_STATES = {
    State.DELIVERING: {State.RELEASING, State.SEEKED, State.LOST},
    State.RELEASING: {State.SEEKED, State.LOST},
    State.SEEKED: {State.LOST},
    # A shard's row may show only after the loss that an operator moved the position.
    State.LOST: {State.SEEKED},
}


class RevocationListener(Protocol):
    """Takes part when a shard may not be delivered any more."""

    def shard_revoked(self, owned: OwnedShard) -> None:
        """Give user code nothing more of this shard."""


class OwnedShard:
    """A shard's row as claimed, its progress, and whether it may be delivered."""

    def __init__(
        self, app: str, row: ShardRow, lease: Lease, max_uncommitted_records: int
    ) -> None:
        self.lease = lease
        self.row = row
        """The row as claimed: its owner and epoch stay, its position moves on."""
        self.key = row.key
        fence = Fence(row.key, row.epoch, app)
        self.source = Source(fence, row.first_hash, row.last_hash)
        self.state = State.DELIVERING
        self.revoked = False
        """Whether the state isn't DELIVERING; an attribute, as each record reads it."""
        self.listener: RevocationListener | None = None
        self._changed = asyncio.Event()
        """Set when user code is done with something, or need not be waited for."""
        self.progress = Progress(self._changed.set)
        self.children: tuple[ChildShard, ...] | None = None
        """Set when a closed shard was read to its end."""
        self.millis_behind: int | None = None
        self.read_until = row.read_until
        """All records that arrived before this time of Kinesis's clock were fetched; 0
        if that is unknown."""
        self.outside_hash_range = 0
        """Records whose hash key is outside the shard's range."""
        self.task: asyncio.Task[None] | None = None
        """The task that reads the shard."""
        self.request_since: float | None = None
        """When the request under way began, on the event loop's clock; None if there is
        none."""
        self.is_stuck = False
        """The watchdog has found that request unanswered for too long."""
        self.buffered = 0
        """Bytes of its records in the buffer or in user code's hands."""
        self.handed_out = 0
        """User code got all records before this offset."""
        self.orphaned = 0
        """Records before that offset that aren't done and that user code doesn't have:
        a release doesn't wait for them."""
        self.dropped = 0
        """How many of them were dropped when the shard was given up."""
        self._max_uncommitted = max_uncommitted_records
        self._queued = 0
        self._tip_stored_at = row.read_until
        self._tip_seconds = math.inf
        self._moved = asyncio.Event()

    # --- states ---------------------------------------------------------------------

    def revoke(self) -> None:
        """Stop reading and delivering; positions are still stored."""
        if self.state is State.DELIVERING:
            self._enter(State.RELEASING)

    def seek_away(self) -> None:
        """Stop reading, delivering and storing: an operator moved the position."""
        if self.state is not State.SEEKED:
            self._enter(State.SEEKED)

    def lose(self) -> None:
        """Stop reading, delivering and storing: another session owns the shard."""
        if self.state is not State.LOST:
            self._enter(State.LOST)

    def _enter(self, state: State) -> None:
        if state not in NEXT_STATES[self.state]:
            raise RuntimeError(
                f"{self.key}: no step leads from {self.state.name} to {state.name}; "
                "please report this"
            )
        self.state = state
        self._changed.set()
        if self.revoked:
            return
        self.revoked = True
        if self.task is not None:
            self.task.cancel()
        if self.listener is not None:
            self.listener.shard_revoked(self)

    @property
    def lost(self) -> bool:
        """Whether another session owns it."""
        return self.state is State.LOST

    @property
    def seeked(self) -> bool:
        """Whether an operator moved its position."""
        return self.state is State.SEEKED

    @property
    def can_store(self) -> bool:
        """Whether the state store still takes its positions."""
        return self.state in (State.DELIVERING, State.RELEASING)

    # --- the reader's side ----------------------------------------------------------

    async def wait_for_capacity(self, count: int) -> None:
        """Wait until ``count`` more records keep within ``max_uncommitted_records``."""
        while self._outstanding + count > self._max_uncommitted and self._outstanding:
            self._moved.clear()
            await self._moved.wait()

    def queued(self, count: int) -> None:
        """Record that records went into the buffer."""
        self._queued += count

    def caught_up(self, read_until: float, retention_seconds: float) -> None:
        """Record that all that arrived before a time of Kinesis's clock was queued."""
        self.read_until = max(self.read_until, read_until)
        self._tip_seconds = retention_seconds * TIP_SHARE

    # --- user code's side -----------------------------------------------------------

    def set_delivered(self, count: int) -> None:
        """Record that user code got all records before this offset."""
        self.handed_out = max(self.handed_out, count)

    def reduce_delivered(self, count: int) -> None:
        """Record that user code got no record from this offset on."""
        self.handed_out = min(self.handed_out, count)
        self._changed.set()

    def set_orphaned(self, count: int) -> None:
        """Set how many undone records before ``handed_out`` user code doesn't have."""
        self.orphaned = count
        self._changed.set()

    def ack(self, position: Position) -> None:
        """Record that a record is done, in any order."""
        if self.progress.mark(position) and self.orphaned:
            self._changed.set()

    def clear_delivered(self) -> None:
        """Record that user code has no record of it, though some aren't done."""
        self.handed_out = 0
        self._changed.set()

    @property
    def wants_commit(self) -> bool:
        """Whether enough is done to commit before the interval is over."""
        return 2 * (self.progress.done - self._committed) >= self._max_uncommitted

    @property
    def is_idle(self) -> bool:
        """Whether user code has no record of it that isn't done."""
        if self.progress.done >= self.handed_out:
            return True
        return 0 < self.orphaned >= self.progress.undone(self.handed_out)

    @property
    def is_finished(self) -> bool:
        """Whether all fetched records are done."""
        return self.progress.done >= self._queued

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log lines about it."""
        source = self.source
        return {
            "stream": source.stream,
            "shard_id": source.shard_id,
            "epoch": source.fence.epoch,
        }

    # --- checkpoints ----------------------------------------------------------------

    @property
    def position(self) -> Position | None:
        """The end of the contiguous done prefix; None if that is stored."""
        return self.progress.pending()

    def stored(self, position: Position) -> None:
        """Record that a position was committed."""
        self.progress.committed(position)
        self._moved.set()

    @property
    def due_tip(self) -> Tip | None:
        """The tip to store, if all up to it is done and the stored one is old."""
        if self.read_until - self._tip_stored_at < self._tip_seconds:
            return None
        position = self.progress.position() or self.row.position
        if position is None or not self.is_finished:
            return None
        return Tip(self.read_until, position)

    def tip_stored(self, tip: Tip) -> None:
        """Record that a tip was stored."""
        self._tip_stored_at = tip.at

    async def drained(self, seconds: float) -> bool:
        """Wait until user code is done; return whether it was in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._until(lambda: self.is_idle or self.lost)
        except TimeoutError:
            return False
        return True

    async def finished(self) -> bool:
        """Wait until all fetched records are done; False if it is given up before."""
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

"""A shard that this session owns, from the claim to its release, end or loss."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from kinesumer.consuming.suspects import Suspects
from kinesumer.core.failures import OutcomeMeter
from kinesumer.core.liveness import Lease
from kinesumer.core.load import LoadMeter
from kinesumer.core.progress import Progress, is_tip_due
from kinesumer.model.batches import Batch
from kinesumer.model.owned import RevokeReason
from kinesumer.model.positions import BEFORE_ALL, Position, Tip
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.rows import Deaths, ShardRow
from kinesumer.model.streams import Shard, ShardKey
from kinesumer.runtime.tasks import within


class State(Enum):
    """The states of an owned shard, which limit what may be done with it."""

    DELIVERING = auto()  # records are read and delivered, and positions are stored
    # The shard is given up. Records aren't delivered, but positions are stored.
    RELEASING = auto()
    # An operator moved the shard's position. Nothing is delivered or stored.
    SEEKED = auto()
    LOST = auto()  # another session owns the shard; nothing is delivered or stored


NEXT_STATES = {
    State.DELIVERING: {State.RELEASING, State.SEEKED, State.LOST},
    State.RELEASING: {State.SEEKED, State.LOST},
    State.SEEKED: {State.LOST},
    # After a loss, the shard's row may show that an operator moved the position.
    State.LOST: {State.SEEKED},
}


class CallbackCalls(Protocol):
    """The calls of ``on_assigned`` and ``on_revoked`` for a shard in one epoch."""

    async def assign(self) -> bool:
        """Call ``on_assigned``. Return whether the records may be delivered."""

    def revoke(self, reason: RevokeReason) -> object:
        """Begin to call ``on_revoked``, once user code has none of the records."""

    async def release(
        self, reason: RevokeReason, seconds: float, *, waits_for_user: bool
    ) -> None:
        """Wait until ``on_revoked`` returned, the shard is lost or the time is over."""

    async def end(self) -> bool:
        """Call ``on_revoked`` for a closed shard. Return whether it returned."""


class OwnedShard:
    """A shard's claimed row, its progress, and whether its records may be delivered."""

    def __init__(
        self, app: str, row: ShardRow, lease: Lease, max_uncommitted_records: int
    ) -> None:
        self.lease = lease
        # The row when the shard was claimed. Its owner and epoch stay valid, but its
        # position becomes outdated.
        self.row = row
        self.key: ShardKey = row.key
        fence = Fence(row.key, row.epoch, app)
        self.source: Source = Source(fence, row.first_hash, row.last_hash)
        self.state: State = State.DELIVERING
        # True if the state isn't DELIVERING. This is an attribute and not a property,
        # since it is read for each record.
        self.revoked: bool = False
        # Is called when the records may no longer be delivered.
        self.on_revocation: Callable[[OwnedShard], None] | None = None
        self.calls: CallbackCalls | None = None  # None if user code has no callbacks
        # Set when waiters must check the state and the progress again.
        self._changed = asyncio.Event()
        self.progress: Progress = Progress(self._changed.set)
        # The children of a closed shard that was read to its end; None before that.
        self.children: tuple[Shard, ...] | None = None
        # The records that may have killed former owners; None if there are none.
        self.suspects: Suspects | None = None
        # Why nothing is delivered any more although the shard is owned; None if
        # records are.
        self.stopped_by: BaseException | None = None
        # The error of the record that is tried again and again, because too many
        # records became dead letters; None if the shard is not held.
        self.held_by: BaseException | None = None
        self.millis_behind: int | None = None
        # All records that arrived before this time, by Kinesis's clock, were fetched. 0
        # means that no such time is known.
        self.read_until: float = row.read_until
        # The time until which the shard was read, if its reading ends there; else 0.
        self.reached: float = 0.0
        self.task: asyncio.Task[None] | None = None  # the task that reads the shard
        # When the current request began, on the event loop's clock. None if there is no
        # request.
        self.request_since: float | None = None
        # Whether the watchdog has found that the current request takes too long.
        self.is_stuck = False
        self.buffered = 0  # bytes of the shard's records in the buffer or user code
        self.handed_out: int = 0  # user code got all records before this offset
        # The number of undone records before ``handed_out`` that user code no longer
        # has. A release doesn't wait for them.
        self.orphaned: int = 0
        self.load: LoadMeter = LoadMeter()
        self.outcomes: OutcomeMeter = OutcomeMeter()
        self.dropped = 0  # orphaned records of batches that were dropped
        self.queued_records: int = 0  # records that were put into the buffer
        self._max_uncommitted = max_uncommitted_records
        self._tip_stored_at = row.read_until
        self._retention_seconds = math.inf
        self._moved = asyncio.Event()

    # --- states ---------------------------------------------------------------------

    def revoke(self) -> None:
        """Stop reading and delivering, but continue to store positions."""
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
        if self.on_revocation is not None:
            self.on_revocation(self)

    @property
    def lost(self) -> bool:
        """Return whether another session owns the shard."""
        return self.state is State.LOST

    @property
    def seeked(self) -> bool:
        """Return whether an operator moved the shard's position."""
        return self.state is State.SEEKED

    @property
    def can_store(self) -> bool:
        """Return whether positions may still be stored."""
        return self.state in (State.DELIVERING, State.RELEASING)

    # --- the reader's side ----------------------------------------------------------

    async def wait_for_capacity(self, count: int) -> None:
        """Wait until ``max_uncommitted_records`` permits ``count`` more records."""
        await self._committed_up_to(max(0, self._max_uncommitted - count))

    async def all_stored(self, seconds: float) -> bool:
        """Wait until the positions of all queued records are stored.

        Return False after ``seconds``.
        """
        return await within(seconds, self._committed_up_to(0))

    def stop_reading(self) -> None:
        """Read no more records, since user code takes none."""
        if self.task is not None:
            self.task.cancel()

    def caught_up(self, read_until: float, retention_seconds: float) -> None:
        """Record that all records that arrived before ``read_until`` were read.

        ``read_until`` is a time of Kinesis's clock.
        """
        self.read_until = max(self.read_until, read_until)
        self._retention_seconds = retention_seconds

    # --- user code's side -----------------------------------------------------------

    def set_delivered(self, count: int) -> None:
        """Record that user code got all records before offset ``count``."""
        self.handed_out = max(self.handed_out, count)

    def reduce_delivered(self, count: int) -> None:
        """Record that user code got no record at offset ``count`` or after it."""
        self.handed_out = min(self.handed_out, count)
        self._changed.set()

    def set_orphaned(self, count: int) -> None:
        """Set the number of undone records that user code got but no longer has."""
        self.orphaned = count
        self._changed.set()

    def ack(self, done: Record | Batch) -> None:
        """Record that a record or a batch is done. Records may be done in any order."""
        if isinstance(done, Batch):
            ends = [
                record.position for record in (*done.records[:1], *done.records[-1:])
            ]
            is_new = bool(ends) and self.progress.mark_between(*ends)
        else:
            is_new = self.progress.mark(done.position)
        if is_new and self.orphaned:
            self._changed.set()

    def ack_through(self, position: Position) -> None:
        """Record that all records up to a position are done, its record included.

        Any index covers a record that isn't part of an aggregate, as with the KCL.
        """
        self.progress.mark_between(BEFORE_ALL, position)
        self.progress.mark(Position(position.sequence_number))

    @property
    def wants_commit(self) -> bool:
        """Return whether enough records are done for an early commit."""
        new, suspects = self.progress.done - self._committed, self.suspects
        if new and suspects is not None:
            # In isolation, store each position. After it, forget the deaths soon.
            done = self.progress.done
            return suspects.is_in_turn or suspects.may_forget(done)
        return 2 * new >= self._max_uncommitted

    @property
    def is_idle(self) -> bool:
        """Return whether all records that user code has are done."""
        if self.progress.done >= self.handed_out:
            return True
        return 0 < self.orphaned >= self.progress.undone(self.handed_out)

    @property
    def is_taken(self) -> bool:
        """Return whether user code took all fetched records out of the buffer."""
        return self.progress.delivered >= self.queued_records

    @property
    def is_finished(self) -> bool:
        """Return whether all fetched records are done."""
        return self.progress.done >= self.queued_records

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log lines about the shard."""
        source = self.source
        return {
            "stream": source.stream,
            "shard_id": source.shard_id,
            "epoch": source.fence.epoch,
        }

    # --- checkpoints ----------------------------------------------------------------

    @property
    def position(self) -> Position | None:
        """The position before the first undone record; None if it is already stored."""
        return self.progress.pending()

    def stored(self, position: Position) -> None:
        """Record that a position was committed."""
        self.progress.committed(position)
        self._moved.set()

    def forgotten_attributes(self, now: float) -> tuple[str, ...]:
        """Return the attributes about deaths that a write of the position removes."""
        suspects, done = self.suspects, self.progress.done
        if suspects is None:
            return ()
        return suspects.forgotten(done, now, has_progress=self.position is not None)

    @property
    def may_forget_deaths(self) -> bool:
        """Return whether the isolation has ended, but the row doesn't say so yet."""
        suspects = self.suspects
        if suspects is None or not suspects.was_isolated:
            return False
        return suspects.may_forget(self.progress.done)

    def deaths_stored(self, deaths: Deaths) -> None:
        """Record the deaths that the row now counts."""
        if not deaths.counted:
            self.suspects = None

    @property
    def due_tip(self) -> Tip | None:
        """Return the tip if its storing is due and all records before it are done."""
        stored, retention = self._tip_stored_at, self._retention_seconds
        is_due = is_tip_due(self.read_until, stored, retention)
        if not (is_due or self.is_end_due) or not self.is_finished:
            return None
        position = self.progress.position() or self.row.position
        if position is None:  # no record has ever come
            return Tip(self.reached, BEFORE_ALL) if self.reached else None
        return Tip(max(self.read_until, self.reached), position)

    @property
    def is_end_due(self) -> bool:
        """Return whether the row doesn't say yet that the reading has ended."""
        return self.reached > self._tip_stored_at

    def tip_stored(self, tip: Tip) -> None:
        """Record that a tip was stored."""
        self._tip_stored_at = tip.at

    async def drained(self, seconds: float) -> bool:
        """Wait until user code finishes its records. Return False after ``seconds``."""
        return await self.until_within(lambda: self.is_idle or self.lost, seconds)

    async def finished(self) -> bool:
        """Wait until all fetched records are done. Return False after a revocation."""
        await self.until(lambda: self.revoked or self.is_finished)
        return not self.revoked

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the state, the progress or the calls holds."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def until_within(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds. Return False after ``seconds``."""
        return await within(seconds, self.until(holds))

    def note_change(self) -> None:
        """Make waiters check their conditions again."""
        self._changed.set()

    async def _committed_up_to(self, records: int) -> None:
        """Wait until at most so many queued records are not committed."""
        while self.queued_records - self._committed > records:
            self._moved.clear()
            await self._moved.wait()

    @property
    def _committed(self) -> int:
        return self.progress.delivered - self.progress.uncommitted

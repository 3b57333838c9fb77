"""Keep track of the records that may have killed a shard's former owners.

``core/progress.py`` decides which records these are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kinesumer.core.progress import may_have_killed
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.rows import ShardRow
from kinesumer.wire.shard_writes import DEATHS

# In isolation, a read returns at most this many records, since they wait in memory.
# Chosen: user code gets one after the other, with two writes each, for seconds.
RECORDS_PER_READ = 100


class Turn(asyncio.Lock):
    """Lets user code get the suspects of one shard of a client at a time."""

    def __init__(self) -> None:
        super().__init__()
        # How many shards of the client are or were isolated. Without one, the suspects
        # of all shards are delivered at the same time.
        self.isolated_shards = 0
        # The shard whose record user code got in the last turn and didn't acknowledge.
        self.unacked: Suspects | None = None

    async def begin(self, suspects: Suspects) -> None:
        """Begin the turn of a shard. Only the row of this shard names a record now."""
        if self.unacked is not suspects:
            await self._withdraw()
        self.unacked = None

    async def end(self, suspects: Suspects) -> None:
        """End the isolation of a shard: user code gets several records at a time."""
        if self.unacked is suspects:
            await self._withdraw()

    async def _withdraw(self) -> None:
        suspects, self.unacked = self.unacked, None
        if suspects is not None:
            await suspects.note(None)


class Suspects:
    """The records of an owned shard that may have killed its former owners.

    They are those that arrived before the last death, but at most as many as an owner
    may have had. When they are done, the next commit removes the deaths from the row.
    """

    def __init__(
        self,
        row: ShardRow,
        limit: int,
        note: Callable[[Position | None, int], Awaitable[None]],
        turn: Turn,
        is_in_use: Callable[[], bool],
        *,
        acks_late: bool,
        commit_interval_seconds: float,
    ) -> None:
        """``limit`` is the number of records that an owner may have had.

        ``note`` stores the position of a record before user code gets it, or removes
        it; its second argument counts these writes. A client's shards share ``turn``,
        so that user code has no suspects of other shards while it has an isolated
        record. ``is_in_use`` updates what user code has received and done, and tells
        whether user code has records of the shard or gets them again. With
        ``acks_late`` (manual commits), user code may acknowledge several records
        together. A shard that isn't isolated has passed the suspects if it still makes
        progress two times ``commit_interval_seconds`` after its first progress.
        """
        self.deaths, self.poison = row.deaths, row.poison
        # Whether the row says that the shard is isolated.
        self.was_isolated: bool = row.is_isolated
        # Whether user code gets one record at a time.
        self.is_isolated = self.was_isolated
        # The record that the row must name before user code gets it.
        self.due: Position | None = None
        self._left = limit
        self._note = note
        self._notes = 0
        self.turn = turn
        turn.isolated_shards += self.is_isolated
        # Whether user code has suspects in turn. Then their positions are stored soon.
        self.is_in_turn = False
        self.is_in_use = is_in_use
        self.acks_late = acks_late
        self._past_seconds = 2 * commit_interval_seconds
        self._progress_at: float | None = None  # time of the first progress
        # The number of records before the first one that isn't a suspect.
        self._count: int | None = None

    async def note_first(self, position: Position) -> None:
        """Let the row name the first suspect before user code gets it."""
        if not self._notes:
            await self.note(position)

    async def note_due(self) -> None:
        """Let the row name the record that user code gets next."""
        if (position := self.due) is not None:
            await self.note(position)
            if self.due == position:
                self.due = None

    async def note(self, position: Position | None) -> None:
        """Let the row name a record, or none."""
        self._notes += 1
        await self._note(position, self._notes)

    def may_forget(self, done: int) -> bool:
        """Return whether the first ``done`` records include all suspects."""
        return self._count is not None and done >= self._count

    def forgotten(
        self, done: int, now: float, *, has_progress: bool
    ) -> tuple[str, ...]:
        """Return the attributes that the next write of a position removes."""
        is_past = False
        if has_progress and not self.is_isolated:
            # An owner may get its first records late, so the claim's time has no
            # meaning.
            if self._progress_at is None:
                self._progress_at = now
            is_past = now >= self._progress_at + self._past_seconds
        return DEATHS if is_past or self.may_forget(done) else ()

    def count_suspects(self, records: Sequence[Record]) -> int:
        """Count the suspects at the beginning of a batch."""
        if self._count is not None:
            return 0
        for index, record in enumerate(records):
            arrived = record.approximate_arrival_timestamp
            if not self._left or not may_have_killed(self.deaths, arrived):
                return index
            self._left -= 1
        return len(records)

    def end(self, count: int) -> None:
        """Record that the first ``count`` records include all suspects."""
        if self._count is None:
            self._count, self.is_isolated = count, False

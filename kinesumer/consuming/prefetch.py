"""Fetched batches on their way to user code, within one byte budget over all shards."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.congestion import CongestionWindow
from kinesumer.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Record

RECORD_OVERHEAD_BYTES = 420
"""Memory of a small record beside its data: the struct, two strings, the bytes object's
header (measured with CPython 3.11)."""

SMALL_PAGE_BYTES = 64 * 1024
"""A page that a caught-up shard is expected to have."""
JSON_RECORD_BYTES = 150
"""Minimum size of a record in an answer."""
PAGE_RECORDS = 10_000
"""Maximum number of records in one answer."""


class FetchedBatch:
    """Records of one shard that were fetched, and the bytes that they take.

    ``end`` is the position that the shard is done up to once all records are; None if
    that is the last record's.
    """

    __slots__ = ("end", "millis_behind", "owned", "records", "size")

    def __init__(
        self,
        records: list[Record],
        millis_behind: int,
        size: int,
        end: Position | None,
        owned: OwnedShard,
    ) -> None:
        self.records = records
        self.millis_behind = millis_behind
        self.size = size
        self.end = end
        self.owned = owned

    def __len__(self) -> int:
        return len(self.records)

    def with_records(self, records: list[Record]) -> FetchedBatch:
        """Return a batch with only these of its records."""
        size = memory_size(records)
        return FetchedBatch(records, self.millis_behind, size, self.end, self.owned)

    def for_user(self, records: list[Record]) -> Batch:
        """Return the public batch with these of its records."""
        return Batch(records, self.millis_behind, self.owned.source)


def memory_size(records: Sequence[Record]) -> int:
    """Return about how many bytes records take in memory."""
    return sum([len(r.data) for r in records]) + RECORD_OVERHEAD_BYTES * len(records)


def answer_memory(wire_bytes: int, most_records: int = PAGE_RECORDS) -> int:
    """Return the most that an answer takes in memory, as JSON or as its records."""
    records = min(most_records, wire_bytes // JSON_RECORD_BYTES)
    return max(wire_bytes, 3 * wire_bytes // 4 + RECORD_OVERHEAD_BYTES * records)


def data_bytes(batch: FetchedBatch, first: int, stop: int) -> int:
    """Return how many bytes the data of some of a batch's records has."""
    if stop - first == len(batch):
        return batch.size - RECORD_OVERHEAD_BYTES * stop
    return sum([len(r.data) for r in batch.records[first:stop]])


class PrefetchBuffer:
    """A queue of batches whose readers reserve room before they fetch.

    ``used`` exceeds the limit by no more than what one piece of aggregates is opened
    to, or one answer. The parts of it: answers under way (``in_flight``), pages that
    are being opened, what was opened (``opened``), and what is queued or in user code's
    hands (``delivered``).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.used = 0
        self.in_flight = 0
        """Reserved for answers under way, small ones left out."""
        self.opened = 0
        """Bytes of what was opened and is not queued yet."""
        self.delivered = 0
        """Bytes of what is queued or in user code's hands."""
        self.window = CongestionWindow(limit_bytes)
        self._batches: deque[FetchedBatch] = deque()
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._openers: deque[_Waiter] = deque()
        self._is_opening = False

    # --- room -------------------------------------------------------------------------

    async def reserve(
        self, size: int, owned: OwnedShard | None = None, *, in_flight: int = 0
    ) -> None:
        """Wait until ``size`` bytes are free and take them; first come, first served.

        More than the whole budget is let through when nothing else is held. The last
        quarter is for shards that have nothing in here: slow ones leave it to the rest.
        What is to be ``in_flight`` waits for the congestion window, too.
        """
        must_wait = self._takes_too_much(size, owned) or (
            in_flight and self._exceeds_window(in_flight)
        )
        if not (self._waiters or self._openers or must_wait) and self._fits(size):
            self.used += size
            self.in_flight += in_flight
            return
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(size, in_flight, owned, future)
        self._waiters.append(waiter)
        self._admit()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled():
                self.in_flight -= in_flight
                self.release(size)
            elif waiter in self._waiters:  # not if it was passed over
                self._waiters.remove(waiter)
                self._admit()
            raise

    def release(self, size: int) -> None:
        """Give bytes back (a negative size takes more, whatever is free)."""
        self.used -= size
        if self._waiters or self._openers:
            self._admit()

    async def open(
        self, owned: OwnedShard, open_piece: Callable[[], list[FetchedBatch]]
    ) -> list[FetchedBatch]:
        """Return the batches of a piece of aggregates, opened once there is room.

        What they take is known only then. So one piece is opened at a time, and only if
        some room is free, or if nothing that was opened is left.
        """
        future = asyncio.get_running_loop().create_future()
        opener = _Waiter(0, 0, owned, future)
        self._openers.append(opener)
        self._admit()
        try:
            await future
            batches = open_piece()
            size = sum(batch.size for batch in batches)
            self.used += size
            self.opened += size
        finally:
            if opener in self._openers:
                self._openers.remove(opener)
            elif not future.cancelled():
                self._is_opening = False
            self._admit()
        return batches

    # --- batches ----------------------------------------------------------------------

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch whose bytes were reserved."""
        batch.owned.buffered += batch.size
        self.delivered += batch.size
        self._batches.append(batch)
        self.wake()

    @property
    def is_empty(self) -> bool:
        """Whether ``get()`` would wait."""
        return not self._batches

    async def get(self) -> FetchedBatch | None:
        """Return the next batch; None after ``wake()``."""
        if not self._batches:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._receivers.append(future)
            try:
                await future
            finally:
                if future in self._receivers:  # it was cancelled
                    self._receivers.remove(future)
        return self._batches.popleft() if self._batches else None

    def give_back(self, owned: OwnedShard, size: int) -> None:
        """Give back the bytes of a shard's records that user code is through with."""
        owned.buffered -= size
        self.delivered -= size
        self.release(size)

    def wake(self) -> None:
        """Make all waiting calls of ``get()`` return."""
        while self._receivers:
            future = self._receivers.popleft()
            if not future.done():
                future.set_result(None)

    def drop(self, owned: OwnedShard) -> None:
        """Remove a shard's queued batches."""
        kept: deque[FetchedBatch] = deque()
        for batch in self._batches:
            if batch.owned is owned:
                owned.buffered -= batch.size
                self.delivered -= batch.size
                self.used -= batch.size
            else:
                kept.append(batch)
        self._batches = kept
        self._admit()

    # --- who may go on ----------------------------------------------------------------

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used <= 0

    def _takes_too_much(self, size: int, owned: OwnedShard | None) -> bool:
        has_some = owned is not None and owned.buffered > 0
        return has_some and 4 * (self.used + size) > 3 * self.limit

    def _exceeds_window(self, size: int) -> bool:
        return 0 < self.in_flight > self.window.size - size

    def _admit(self) -> None:
        # What is opened leaves, at last; what is fetched is opened before that.
        self._admit_opener()
        passed: list[_Waiter] = []
        while self._waiters:
            size, in_flight, owned, future = self._waiters[0]
            is_too_much = self._takes_too_much(size, owned)
            if is_too_much or (in_flight and self._exceeds_window(in_flight)):
                passed.append(self._waiters.popleft())
                continue
            if not self._fits(size):
                break
            self._waiters.popleft()
            if not future.done():
                self.used += size
                self.in_flight += in_flight
                future.set_result(None)
        self._waiters.extendleft(reversed(passed))

    def _admit_opener(self) -> None:
        if self._is_opening or not self._openers:
            return
        if self.used >= self.limit and (self.delivered > 0 or self.opened > 0):
            return
        for opener in self._openers:
            if not (opener.future.done() or self._takes_too_much(0, opener.owned)):
                self._openers.remove(opener)
                self._is_opening = True
                opener.future.set_result(None)
                return


class _Waiter(NamedTuple):
    """A reader that waits for room."""

    size: int
    in_flight: int
    owned: OwnedShard | None
    future: asyncio.Future[None]

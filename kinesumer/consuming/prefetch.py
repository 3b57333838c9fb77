"""Buffer fetched batches for user code, with one memory limit for all shards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core import handout
from kinesumer.core.congestion import CongestionWindow
from kinesumer.core.turns import Turns
from kinesumer.model.records import RECORD_OVERHEAD_BYTES
from kinesumer.wire.records import CBOR_RECORD_BYTES, JSON_RECORD_BYTES

# A page that a caught-up shard is expected to have. At four reads a second, these are
# 256 KB a second, a quarter of what a shard accepts.
SMALL_PAGE_BYTES = 64 * 1024
PAGE_RECORDS = 10_000  # the limit of GetRecords for one answer

FetchedBatch = handout.FetchedBatch[OwnedShard]


class OpenedStep(NamedTuple):
    """The batches of one step of opening a page's aggregates; it may have none."""

    batches: list[FetchedBatch]
    raw_bytes: int  # memory of the Kinesis records that were opened to their ends
    held_bytes: int  # memory that the opening of the next Kinesis record holds

    @property
    def size(self) -> int:
        """The memory of the batches in bytes."""
        return sum(batch.size for batch in self.batches)


def answer_memory(
    wire_bytes: int, max_records: int = PAGE_RECORDS, *, is_cbor: bool = False
) -> int:
    """Return the most memory that an answer takes, as a body or as parsed records."""
    if is_cbor:
        records = min(max_records, wire_bytes // CBOR_RECORD_BYTES)
        return wire_bytes + (RECORD_OVERHEAD_BYTES - CBOR_RECORD_BYTES) * records
    records = min(max_records, wire_bytes // JSON_RECORD_BYTES)
    return max(wire_bytes, 3 * wire_bytes // 4 + RECORD_OVERHEAD_BYTES * records)


class PrefetchBuffer:
    """A queue of batches whose readers reserve memory before they fetch.

    Shards take turns, so that no shard waits for all batches of another.
    ``used`` is the sum of all reserved bytes: for expected answers, for pages that are
    being opened, for opened batches, and for batches in the queue or in user code. It
    exceeds the limit by at most one answer or one opened step of aggregates.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.used: int = 0
        # Bytes reserved for expected answers, except small ones.
        self.in_flight: int = 0
        self.opened: int = 0  # bytes of opened batches that aren't queued yet
        self.delivered: int = 0  # bytes of batches in the queue or in user code
        self.window: CongestionWindow = CongestionWindow(limit_bytes)
        # The queued batches, and the turns that user code has had at each shard.
        self.turns: Turns[OwnedShard, FetchedBatch] = Turns()
        self._receivers: deque[asyncio.Future[None]] = deque()
        # While the window is full, thousands of readers may wait for it, and each
        # release looks for others. So readers of small answers have their own queue.
        self._small: deque[_Waiter] = deque()
        self._large: deque[_Waiter] = deque()
        self._turns = count()
        self._openers: deque[_Waiter] = deque()
        self._is_opening = False

    # --- memory -----------------------------------------------------------------------

    async def reserve(
        self, size: int, owned: OwnedShard | None = None, *, in_flight: int = 0
    ) -> None:
        """Wait until ``size`` bytes are free, and reserve them in the order of calls.

        A size above the limit is granted if no other bytes are reserved. The last
        quarter of the limit is kept for shards that have no bytes in the buffer. The
        ``in_flight`` bytes must also fit the congestion window.
        """
        must_wait = self._takes_too_much(size, owned) or self._exceeds_window(in_flight)
        if not (self._has_waiters or must_wait) and self._fits(size):
            self.used += size
            self.in_flight += in_flight
            return
        future = asyncio.get_running_loop().create_future()
        waiter = _Waiter(next(self._turns), size, in_flight, owned, future)
        queue = self._queue_of(waiter)
        queue.append(waiter)
        self._admit()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled():
                self.in_flight -= in_flight
                self.release(size)
            elif waiter in queue:  # unless _admit() has removed it
                queue.remove(waiter)
                self._admit()
            raise

    def release(self, size: int) -> None:
        """Release bytes. A negative size reserves more, even if no memory is free."""
        self.used -= size
        if self._has_waiters:
            self._admit()

    async def open(
        self, owned: OwnedShard, steps: Iterator[OpenedStep]
    ) -> OpenedStep | None:
        """Wait for free memory, then open a step of aggregates; None after the last."""
        # The opened size isn't known in advance. So only one step is opened at a time,
        # and only if some memory is free or no opened records hold any.
        future = asyncio.get_running_loop().create_future()
        opener = _Waiter(next(self._turns), 0, 0, owned, future)
        self._openers.append(opener)
        self._admit()
        try:
            await future
            if (step := next(steps, None)) is not None:
                self.used += step.size
                self.opened += step.size
        finally:
            if opener in self._openers:
                self._openers.remove(opener)
            elif not future.cancelled():
                self._is_opening = False
            self._admit()
        return step

    # --- batches ----------------------------------------------------------------------

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch whose bytes were reserved."""
        batch.owned.load.records += len(batch)
        batch.owned.load.size += batch.size - RECORD_OVERHEAD_BYTES * len(batch)
        batch.owned.buffered += batch.size
        self.delivered += batch.size
        self.turns.put(batch.owned, batch)
        self.wake()

    @property
    def is_empty(self) -> bool:
        """Return whether ``get()`` would wait."""
        return not self.turns

    async def get(self) -> FetchedBatch | None:
        """Return the next batch in turn, or None after ``wake()``."""
        if not self.turns:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._receivers.append(future)
            try:
                await future
            finally:
                if future in self._receivers:  # the wait was cancelled
                    self._receivers.remove(future)
        return self.turns.take()[1] if self.turns else None

    def give_back(self, owned: OwnedShard, size: int) -> None:
        """Release the bytes of a shard's records that user code has finished."""
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
        self.give_back(owned, sum(batch.size for batch in self.turns.drop(owned)))

    def first_arrivals(self) -> dict[OwnedShard, float | None]:
        """Return when each shard's first queued record arrived, by Kinesis's clock."""
        found: dict[OwnedShard, float | None] = {}
        for owned, batches in self.turns:
            first = next((each.records[0] for each in batches if each.records), None)
            if first is not None:
                found[owned] = first.approximate_arrival_timestamp
        return found

    # --- admission --------------------------------------------------------------------

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used <= 0

    def _takes_too_much(self, size: int, owned: OwnedShard | None) -> bool:
        has_some = owned is not None and owned.buffered > 0
        return has_some and 4 * (self.used + size) > 3 * self.limit

    def _exceeds_window(self, size: int) -> bool:
        """Return whether so many bytes must wait for the window; none never wait."""
        return size > 0 and 0 < self.in_flight > self.window.size - size

    @property
    def _has_waiters(self) -> bool:
        return bool(self._small or self._large or self._openers)

    def _admit(self) -> None:
        # Prefer openers: pages must be opened before their memory can be released.
        # The size of a step is unknown until it is opened, so readers wait meanwhile.
        self._admit_opener()
        if self._is_opening:
            return
        passed: list[_Waiter] = []
        while (waiter := self._next_waiter()) is not None:
            _, size, in_flight, owned, future = waiter
            is_too_much = self._takes_too_much(size, owned)
            if not (is_too_much or self._fits(size)):
                break
            self._queue_of(waiter).popleft()
            if is_too_much:
                passed.append(waiter)
            elif not future.done():
                self.used += size
                self.in_flight += in_flight
                future.set_result(None)
        for waiter in reversed(passed):
            self._queue_of(waiter).appendleft(waiter)

    def _next_waiter(self) -> _Waiter | None:
        """Return the reader that has waited longest, if the window has room for it."""
        heads = [queue[0] for queue in (self._small, self._large) if queue]
        ready = (w for w in heads if not self._exceeds_window(w.in_flight))
        return min(ready, default=None)

    def _queue_of(self, waiter: _Waiter) -> deque[_Waiter]:
        return self._large if waiter.in_flight else self._small

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
    """A reader that waits for memory. The turns are in the order of the calls."""

    turn: int
    size: int
    in_flight: int
    owned: OwnedShard | None
    future: asyncio.Future[None]

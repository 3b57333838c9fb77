"""Reserve memory for an answer of Kinesis, and for the batches made of it."""

from __future__ import annotations

from collections.abc import Iterator

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import (
    PAGE_RECORDS,
    SMALL_PAGE_BYTES,
    FetchedBatch,
    OpenedStep,
    PrefetchBuffer,
    answer_memory,
)
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.wire.cbor import compiled


class Reservation:
    """The memory that one reader has reserved: implements ``ports.Reservation``.

    Until the answer has arrived, these bytes also count for the congestion window.
    """

    size: int

    def __init__(self, buffer: PrefetchBuffer, owned: OwnedShard) -> None:
        self.size = 0
        self.max_records = PAGE_RECORDS  # how many records the answer may have
        self._buffer, self._owned = buffer, owned
        self._in_flight = 0
        self._held = 0  # bytes of ``size`` that hold a partly opened aggregate
        self._opened = 0  # bytes of opened aggregates, in addition to ``size``

    def covers(self, size: int | None) -> bool:
        """Return whether an answer of ``size`` bytes fits in the reserved memory."""
        return self._memory(size) <= self.size

    def shrink(self, size: int) -> None:
        """Release the memory that an answer of ``size`` bytes doesn't need."""
        # The answer's headers tell its size. So other readers can use the memory that
        # it doesn't need before its end has arrived.
        if self._in_flight > size:
            self._buffer.in_flight -= self._in_flight - size
            self._in_flight = size
        self.keep(min(self.size, self._memory(size)))

    async def grow(self, size: int | None) -> None:
        """Release all bytes, then wait for the memory that the answer needs."""
        # A reader that holds no bytes while it waits can't cause a deadlock.
        self.close()
        await self.take(self._memory(size))

    async def take(self, size: int) -> None:
        """Reserve ``size`` bytes for an answer: see ``PrefetchBuffer.reserve()``."""
        # A small answer doesn't congest the link, so the window doesn't limit it.
        in_flight = size if size > SMALL_PAGE_BYTES else 0
        await self._buffer.reserve(size, self._owned, in_flight=in_flight)
        self.size, self._in_flight = size, in_flight

    def answered(self, wire_bytes: int, seconds: float) -> None:
        """Record that the answer has arrived, how large it is and how long it took."""
        self._buffer.window.answered(wire_bytes, seconds, self._buffer.in_flight)
        self.land()

    def keep(self, size: int) -> None:
        """Set the reserved bytes to ``size``, without waiting if that is more."""
        self._buffer.release(self.size - size)
        self.size = size

    async def open(self, steps: Iterator[OpenedStep]) -> list[FetchedBatch] | None:
        """Open some aggregates, release their raw bytes, and return batches.

        Waits for the memory of the batches: see ``PrefetchBuffer.open()``. Returns None
        if all aggregates are open.
        """
        step = await self._buffer.open(self._owned, steps)
        if step is None:
            return None
        self._opened += step.size
        self.keep(self.size - step.raw_bytes + step.held_bytes - self._held)
        self._held = step.held_bytes
        return step.batches

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch, and pass its bytes to the buffer."""
        if self._opened:
            self._opened -= batch.size
            self._buffer.opened -= batch.size
        else:
            self.size -= batch.size
        self._buffer.put(batch)

    def close(self) -> None:
        """Release all bytes."""
        self.land()
        self._buffer.opened -= self._opened
        size, self.size, self._opened = self.size + self._opened, 0, 0
        self._buffer.release(size)

    def land(self) -> None:
        """Record that the answer has arrived."""
        self._buffer.in_flight -= self._in_flight
        self._in_flight = 0

    def _memory(self, size: int | None) -> int:
        if size is None:
            return FULL_PAGE_BYTES
        return answer_memory(size, self.max_records, is_cbor=compiled is not None)

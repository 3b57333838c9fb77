"""One request to Kinesis: since when it is under way, and the room for its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import PAGE_RECORDS, SMALL_PAGE_BYTES, answer_memory
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.errors import KinesumerError
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.model.records import Page
    from kinesumer.runtime.clock import LoopClock


ROOM_SECONDS = 10.0
"""An answer that has waited so long for room is given up, and asked for again once
there is room: a connection on which nothing is received for long may break."""


class NoRoomError(KinesumerError):
    """There was no room for an answer for too long."""


class ReadRequest:
    """A ``ports.Room`` that stops the request's time while it grows."""

    def __init__(
        self,
        owned: OwnedShard,
        clock: LoopClock,
        reservation: Reservation | None = None,
    ) -> None:
        self.began = clock.now()
        """When it began; later by the time in which its answer waited for room."""
        self._owned, self._clock, self._room = owned, clock, reservation

    def begin(self) -> None:
        """Note that it has a connection: what it waits for from now on is Kinesis."""
        self.began = self._owned.request_since = self._clock.now()

    @property
    def most_records(self) -> int:
        """How many records are asked for."""
        assert self._room is not None
        return self._room.most_records

    def answered(self, page: Page) -> None:
        """Note that the answer is here."""
        if self._room is not None:
            seconds = self._clock.now() - self.began
            self._room.answered(page.wire_bytes, seconds)

    def covers(self, size: int | None) -> bool:
        """Return whether an answer of ``size`` bytes fits."""
        return self._room is None or self._room.covers(size)

    def shrink(self, size: int) -> None:
        """Give back what an answer of ``size`` bytes does not need."""
        if self._room is not None:
            self._room.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait until an answer may be received. Raises NoRoomError."""
        assert self._room is not None
        stopped = self._clock.now()
        self._owned.request_since = None  # Kinesis has answered
        try:
            async with timeout(ROOM_SECONDS):
                await self._room.grow(size)
        except TimeoutError:
            raise NoRoomError(f"no room for an answer of {size} bytes") from None
        finally:
            now = self._clock.now()
            self.began += now - stopped
            self._owned.request_since = now


class Reservation:
    """Bytes of the budget that one reader holds (a ``ports.Room``).

    As long as it is for an answer under way it takes part in the congestion window.
    """

    def __init__(self, buffer: PrefetchBuffer, owned: OwnedShard) -> None:
        self.size = 0
        self.most_records = PAGE_RECORDS
        """How many records the answer may have."""
        self._buffer, self._owned = buffer, owned
        self._in_flight = 0
        self._opened = 0
        """Bytes of opened aggregates, beside ``size``."""

    def covers(self, size: int | None) -> bool:
        """Return whether an answer of ``size`` bytes and its records fit."""
        return self._memory(size) <= self.size

    def shrink(self, size: int) -> None:
        """Give back what an answer of ``size`` bytes does not need."""
        if self._in_flight > size:
            self._buffer.in_flight -= self._in_flight - size
            self._in_flight = size
        self.keep(min(self.size, self._memory(size)))

    async def grow(self, size: int | None) -> None:
        """Give back what it holds, then wait for what an answer takes.

        Since it holds nothing while it waits, no two can wait for each other.
        """
        self.close()
        await self.take(self._memory(size))

    async def take(self, size: int) -> None:
        """Wait for the memory of an answer: see ``PrefetchBuffer.reserve()``.

        A small one says nothing of the link: caught-up shards are read at any time.
        """
        in_flight = size if size > SMALL_PAGE_BYTES else 0
        await self._buffer.reserve(size, self._owned, in_flight=in_flight)
        self.size, self._in_flight = size, in_flight

    def answered(self, wire_bytes: int, seconds: float) -> None:
        """Note that the answer is here, and how long it took."""
        self._buffer.window.answered(wire_bytes, seconds, self._buffer.in_flight)
        self._land()

    def keep(self, size: int) -> None:
        """Hold ``size`` bytes from now on: more, too, since they are in memory."""
        self._buffer.release(self.size - size)
        self.size = size

    async def open(
        self, raw_bytes: int, open_piece: Callable[[], list[FetchedBatch]]
    ) -> list[FetchedBatch]:
        """Return a piece of aggregates in batches, and give back what it took before.

        Waits for room for them: see ``PrefetchBuffer.open()``.
        """
        batches = await self._buffer.open(self._owned, open_piece)
        self._opened += sum(batch.size for batch in batches)
        self.keep(self.size - raw_bytes)
        return batches

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch, which takes its bytes with it."""
        if self._opened:
            self._opened -= batch.size
            self._buffer.opened -= batch.size
        else:
            self.size -= batch.size
        self._buffer.put(batch)

    def close(self) -> None:
        """Give back all that it holds."""
        self._land()
        self._buffer.opened -= self._opened
        size, self.size, self._opened = self.size + self._opened, 0, 0
        self._buffer.release(size)

    def _land(self) -> None:
        self._buffer.in_flight -= self._in_flight
        self._in_flight = 0

    def _memory(self, size: int | None) -> int:
        if size is None:
            return FULL_PAGE_BYTES
        return answer_memory(size, self.most_records)

"""One request to Kinesis: since when it is under way, and the room for its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import KinesumerError
from kinesumer.timeouts import timeout

if TYPE_CHECKING:
    from kinesumer.holding import Holding
    from kinesumer.loop_clock import LoopClock
    from kinesumer.model import Page
    from kinesumer.reservation import Reservation

ROOM_SECONDS = 10.0
"""An answer that has waited so long for room is given up, and asked for again once
there is room: a connection on which nothing is received for long may break."""


class NoRoomError(KinesumerError):
    """There was no room for an answer for too long."""


class Request:
    """A ``ports.Room`` that stops the request's time while it grows."""

    def __init__(
        self, holding: Holding, clock: LoopClock, room: Reservation | None = None
    ) -> None:
        self.began = clock.now()
        """When it began; later by the time in which its answer waited for room."""
        self._holding, self._clock, self._room = holding, clock, room

    def begin(self) -> None:
        """Note that it has a connection: what it waits for from now on is Kinesis."""
        self.began = self._holding.asking_since = self._clock.now()

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
        """Tell whether an answer of ``size`` bytes fits."""
        return self._room is None or self._room.covers(size)

    def shrink(self, size: int) -> None:
        """Give back what an answer of ``size`` bytes does not need."""
        if self._room is not None:
            self._room.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait until an answer may be received. Raises NoRoomError."""
        assert self._room is not None
        stopped = self._clock.now()
        self._holding.asking_since = None  # Kinesis has answered
        try:
            async with timeout(ROOM_SECONDS):
                await self._room.grow(size)
        except TimeoutError:
            raise NoRoomError(f"no room for an answer of {size} bytes") from None
        finally:
            now = self._clock.now()
            self.began += now - stopped
            self._holding.asking_since = now

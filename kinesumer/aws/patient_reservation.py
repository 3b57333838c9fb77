"""Define a reservation of memory that a call's time-out waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.ports import Reservation
    from kinesumer.runtime.timeouts import timeout


class PatientReservation:
    """A reservation that pauses the call's time-out while it waits for memory."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self.limit: timeout
        self.has_begun = False  # whether the response's head has arrived

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes fits in the reserved memory."""
        self.has_begun = True
        return self._reservation.covers(size)

    def shrink(self, size: int) -> None:
        """Release the memory that a response of ``size`` bytes doesn't need."""
        self._reservation.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait until memory is reserved for a response of ``size`` bytes."""
        self.has_begun = True
        self.limit.pause()
        await self._reservation.grow(size)
        self.limit.resume()

"""Kinesis's own time, within the bounds that its answers prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.clock_bounds import ClockBounds

if TYPE_CHECKING:
    from kinesumer.ports import Clock


class ServiceClock:
    """Bounds Kinesis's clock by what is heard of it on a monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds = ClockBounds()

    def observe_date(self, service_time: float, asked_at: float) -> None:
        """Take note of an answer's Date, in whole seconds, to what was asked then."""
        self._bounds.observe_date(service_time, asked_at, self._clock.now())

    def observe_arrival(self, arrived_at: float) -> None:
        """Take note of a record just read: Kinesis's clock is not behind it."""
        self._bounds.observe_arrival(arrived_at, self._clock.now())

    def earliest(self) -> float:
        """Return a time that Kinesis's clock has surely reached."""
        return self._bounds.earliest(self._clock.now())

    def latest(self) -> float:
        """Return a time that Kinesis's clock has surely not passed."""
        return self._bounds.latest(self._clock.now())

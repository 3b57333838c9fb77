"""A clock that stands still, and one that is ahead of another."""

from __future__ import annotations

from kinesumer.ports import Clock


class StillClock:
    """A clock that stands still, unless its time is set."""

    def __init__(self, seconds: float = 1_800_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        """Return the seconds that have passed."""
        return self.seconds

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self.seconds


class ClockAhead:
    """The clock of a machine whose time of day is ahead of another clock's."""

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        self._clock = clock
        self.seconds = seconds

    def now(self) -> float:
        """Return the seconds that have passed."""
        return self._clock.now()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self._clock.wall() + self.seconds

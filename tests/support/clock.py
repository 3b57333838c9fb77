"""A clock that stands still."""

from __future__ import annotations


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

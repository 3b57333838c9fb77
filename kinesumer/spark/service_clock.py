"""Kinesis's own time, as far as its answers tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.ports import Clock

TRUSTED_SECONDS = 2.0
"""This machine's clock counts as right within this: answers tell whole seconds only."""


class ServiceClock:
    """Chooses where a batch is cut; an error costs latency, never a record."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._skew = 0.0

    def heard(self, service_time: float) -> None:
        """Take note of the time in an answer that came just now."""
        skew = service_time + 0.5 - self._clock.wall()
        self._skew = skew if abs(skew) > TRUSTED_SECONDS else 0.0

    def now(self) -> float:
        """Return about what Kinesis's clock shows."""
        return self._clock.wall() + self._skew

"""Kinesis's own time, within the bounds that its answers prove."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.ports import Clock

DRIFT = 1e-4
"""How far two clocks may come apart, in seconds per second."""


class ServiceClock:
    """Bounds Kinesis's clock by the Date of answers and by arrivals of records.

    The time of day of this machine plays no part: only its monotonic clock does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._least = -math.inf
        """Kinesis's time less the monotonic clock is at least this …"""
        self._most = math.inf
        """… and at most this, at ``_bounded_at``."""
        self._bounded_at = 0.0

    def heard(self, service_time: float, asked_at: float) -> None:
        """Take note of an answer's Date, in whole seconds, to what was asked then."""
        self._bound(service_time - self._clock.now(), service_time + 1 - asked_at)

    def saw_arrival(self, arrived_at: float) -> None:
        """Take note of a record just read: Kinesis's clock is not behind it."""
        least = arrived_at - self._clock.now()
        if least <= self._most:
            self._bound(least, math.inf)

    def earliest(self) -> float:
        """Return a time that Kinesis's clock has surely reached."""
        now = self._clock.now()
        return now + self._least - DRIFT * (now - self._bounded_at)

    def latest(self) -> float:
        """Return a time that Kinesis's clock has surely not passed."""
        now = self._clock.now()
        return now + self._most + DRIFT * (now - self._bounded_at)

    def _bound(self, least: float, most: float) -> None:
        now = self._clock.now()
        drift = DRIFT * (now - self._bounded_at)
        low, high = max(least, self._least - drift), min(most, self._most + drift)
        # Kinesis's clock was set, or this machine slept: only the newest answer counts.
        self._least, self._most = (low, high) if low <= high else (least, most)
        self._bounded_at = now

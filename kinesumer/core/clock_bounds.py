"""Bounds of Kinesis's clock, relative to a monotonic clock of this machine.

The time of day of this machine plays no part.
"""

from __future__ import annotations

import math

DRIFT = 1e-4
"""How far two clocks may come apart, in seconds per second."""


class ClockBounds:
    """What answers with a Date, and arrivals of records, prove of Kinesis's clock.

    ``now`` is the monotonic time of the call everywhere.
    """

    def __init__(self) -> None:
        self._least = -math.inf
        """Kinesis's time less the monotonic time is at least this …"""
        self._most = math.inf
        """… and at most this, at ``_bounded_at``."""
        self._bounded_at = 0.0

    def heard(self, service_time: float, asked_at: float, now: float) -> None:
        """Take note of an answer's Date, in whole seconds, to what was asked then."""
        self._bound(service_time - now, service_time + 1 - asked_at, now)

    def saw_arrival(self, arrived_at: float, now: float) -> None:
        """Take note of a record just read: Kinesis's clock is not behind it."""
        least = arrived_at - now
        if least <= self._most:
            self._bound(least, math.inf, now)

    def earliest(self, now: float) -> float:
        """Return a time that Kinesis's clock has surely reached."""
        return now + self._least - DRIFT * (now - self._bounded_at)

    def latest(self, now: float) -> float:
        """Return a time that Kinesis's clock has surely not passed."""
        return now + self._most + DRIFT * (now - self._bounded_at)

    def _bound(self, least: float, most: float, now: float) -> None:
        drift = DRIFT * (now - self._bounded_at)
        low, high = max(least, self._least - drift), min(most, self._most + drift)
        # Kinesis's clock was set, or this machine slept: only the newest answer counts.
        self._least, self._most = (low, high) if low <= high else (least, most)
        self._bounded_at = now

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
        self._min_offset = -math.inf
        """Kinesis's time less the monotonic time is at min_offset this …"""
        self._max_offset = math.inf
        """… and at max_offset this, at ``_bounded_at``."""
        self._bounded_at = 0.0

    def observe_date(self, service_time: float, asked_at: float, now: float) -> None:
        """Take note of an answer's Date, in whole seconds, to what was asked then."""
        self._bound(service_time - now, service_time + 1 - asked_at, now)

    def observe_arrival(self, arrived_at: float, now: float) -> None:
        """Take note of a record just read: Kinesis's clock is not behind it."""
        min_offset = arrived_at - now
        if min_offset <= self._max_offset:
            self._bound(min_offset, math.inf, now)

    def earliest(self, now: float) -> float:
        """Return a time that Kinesis's clock has surely reached."""
        return now + self._min_offset - DRIFT * (now - self._bounded_at)

    def latest(self, now: float) -> float:
        """Return a time that Kinesis's clock has surely not passed."""
        return now + self._max_offset + DRIFT * (now - self._bounded_at)

    def _bound(self, min_offset: float, max_offset: float, now: float) -> None:
        drift = DRIFT * (now - self._bounded_at)
        low, high = (
            max(min_offset, self._min_offset - drift),
            min(max_offset, self._max_offset + drift),
        )
        # Kinesis's clock was set, or this machine slept: only the newest answer counts.
        self._min_offset, self._max_offset = (
            (low, high) if low <= high else (min_offset, max_offset)
        )
        self._bounded_at = now

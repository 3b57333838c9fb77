"""Bounds of Kinesis's clock, relative to this machine's monotonic clock.

This machine's wall clock isn't used.
"""

from __future__ import annotations

import math

DRIFT = 1e-4
"""How far two clocks may drift apart, in seconds per second."""


class ClockBounds:
    """Bounds that follow from the dates of answers and the arrival times of records.

    ``now`` is always the monotonic time of the call.
    """

    def __init__(self) -> None:
        self._min_offset = -math.inf
        """Lower bound of Kinesis's time minus the monotonic one, at ``_bounded_at``."""
        self._max_offset = math.inf
        """Upper bound of the same difference."""
        self._bounded_at = 0.0

    def observe_date(self, service_time: float, asked_at: float, now: float) -> None:
        """Note an answer's date, in whole seconds; it was requested at ``asked_at``."""
        self._bound(service_time - now, service_time + 1 - asked_at, now)

    def observe_arrival(self, arrived_at: float, now: float) -> None:
        """Note a record just read: Kinesis's clock isn't behind its arrival time."""
        min_offset = arrived_at - now
        if min_offset <= self._max_offset:
            self._bound(min_offset, math.inf, now)

    def earliest(self, now: float) -> float:
        """Return a time that Kinesis's clock has certainly reached."""
        return now + self._min_offset - DRIFT * (now - self._bounded_at)

    def latest(self, now: float) -> float:
        """Return a time that Kinesis's clock has certainly not passed."""
        return now + self._max_offset + DRIFT * (now - self._bounded_at)

    def _bound(self, min_offset: float, max_offset: float, now: float) -> None:
        drift = DRIFT * (now - self._bounded_at)
        low = max(min_offset, self._min_offset - drift)
        high = min(max_offset, self._max_offset + drift)
        if low > high:
            # Kinesis's clock was set, or this machine slept: only the newest answer
            # counts.
            low, high = min_offset, max_offset
        self._min_offset, self._max_offset = low, high
        self._bounded_at = now

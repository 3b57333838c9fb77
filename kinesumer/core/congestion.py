"""How many bytes one client may request from Kinesis at a time."""

from __future__ import annotations

import math

FULL_PAGE_BYTES = 16 * 1024 * 1024
"""Memory of a page of unknown size: 10 MiB of data as JSON, or as 10,000 records."""
FIRST_BYTES = 4 * FULL_PAGE_BYTES
MIN_BYTES = 128 * 1024
QUICK_SECONDS = 3.0
"""The window grows fast while answers take less time than this."""
SLOW_SECONDS = 10.0
"""The window doesn't grow if an answer takes this long: a third of the time-out."""


class CongestionWindow:
    """The size of the window: it grows with answers and halves at time-outs.

    A window smaller than a page lets one answer through at a time, limited to its size.
    All times are seconds on one clock.
    """

    __slots__ = ("_halved_at", "_max_bytes", "size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, FULL_PAGE_BYTES)
        self._halved_at = -math.inf
        self.size = min(FIRST_BYTES, self._max_bytes)

    @property
    def answer_bytes(self) -> int:
        """The maximum bytes of one answer."""
        return min(self.size, FULL_PAGE_BYTES)

    @property
    def is_smallest(self) -> bool:
        """Whether the window has its minimum size."""
        return self.size <= MIN_BYTES

    def answered(self, answer_bytes: int, seconds: float, in_flight: int) -> None:
        """Note an answer, its duration, and the bytes in flight at that time.

        A window less than half used doesn't grow, since its limit wasn't tested.
        """
        if 2 * in_flight < self.size or seconds >= SLOW_SECONDS:
            return
        step = answer_bytes
        if seconds >= QUICK_SECONDS:  # about one page more for a whole window
            step = min(step, FULL_PAGE_BYTES * answer_bytes // self.size)
        self.size = min(self._max_bytes, self.size + step)

    def timed_out(self, began: float, now: float, in_flight: int) -> None:
        """Note a request of ``began`` that timed out.

        Requests sent before the last halving don't count.
        """
        if began < self._halved_at:
            return
        self._halved_at = now
        self.size = max(MIN_BYTES, min(self.size, in_flight) // 2)

    def restart(self) -> None:
        """Return to the initial size, since a new connection may take another route."""
        self.size = min(self.size, FIRST_BYTES)

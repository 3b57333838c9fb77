"""Limit the bytes that one client requests from Kinesis at a time."""

from __future__ import annotations

import math

# The memory that is reserved for a page of unknown size. A page has at most 10 MiB as
# JSON, or 10,000 records.
FULL_PAGE_BYTES = 16 * 1024 * 1024
FIRST_BYTES = 4 * FULL_PAGE_BYTES
MIN_BYTES = 128 * 1024
QUICK_SECONDS = 3.0  # the window grows fast while answers take less time than this
# The window doesn't grow if an answer takes this long: a third of the time-out.
SLOW_SECONDS = 10.0


class CongestionWindow:
    """The maximum number of bytes in flight. Answers raise it, and time-outs halve it.

    If the window is smaller than a page, only one answer at a time is requested, and
    its size is limited to the window. All times are seconds on one clock.
    """

    __slots__ = ("_halved_at", "_max_bytes", "size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, FULL_PAGE_BYTES)
        self._halved_at = -math.inf
        self.size: int = min(FIRST_BYTES, self._max_bytes)

    @property
    def answer_bytes(self) -> int:
        """The maximum bytes of one answer."""
        return min(self.size, FULL_PAGE_BYTES)

    @property
    def is_smallest(self) -> bool:
        """True if the window has its minimum size."""
        return self.size <= MIN_BYTES

    def answered(self, answer_bytes: int, seconds: float, in_flight: int) -> None:
        """Note an answer, its duration, and the bytes that were in flight.

        The window grows only if at least half of it was in use.
        """
        if 2 * in_flight < self.size or seconds >= SLOW_SECONDS:
            return
        step = answer_bytes
        # Grow by about one page per full window of answers.
        if seconds >= QUICK_SECONDS:
            step = min(step, FULL_PAGE_BYTES * answer_bytes // self.size)
        self.size = min(self._max_bytes, self.size + step)

    def timed_out(self, began: float, now: float, in_flight: int) -> None:
        """Note that a request sent at ``began`` has timed out.

        A request that was sent before the last halving doesn't halve the window again.
        """
        if began < self._halved_at:
            return
        self._halved_at = now
        self.size = max(MIN_BYTES, min(self.size, in_flight) // 2)

    def restart(self) -> None:
        """Shrink to the initial size, since a new connection may take another route."""
        self.size = min(self.size, FIRST_BYTES)

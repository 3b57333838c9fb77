"""How many bytes of answers one client may have under way at once."""

from __future__ import annotations

import math

FULL_PAGE_BYTES = 16 * 1024 * 1024
"""Memory of a page of unknown size: 10 MiB of data as JSON, or as 10,000 records."""
FIRST_BYTES = 4 * FULL_PAGE_BYTES
MIN_BYTES = 128 * 1024
QUICK_SECONDS = 3.0
"""The link carries more at once if an answer takes no longer."""
SLOW_SECONDS = 10.0
"""The link carries no more at once if an answer takes so long: a third of the time
after which it is given up."""


class CongestionWindow:
    """The size of the window: it grows with answers that come, and halves in time-outs.

    A window smaller than a page lets one answer at a time through, and no larger one.
    All times are seconds on one clock of the caller's.
    """

    __slots__ = ("_halved_at", "_max_bytes", "size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, FULL_PAGE_BYTES)
        self._halved_at = -math.inf
        self.size = min(FIRST_BYTES, self._max_bytes)

    @property
    def answer_bytes(self) -> int:
        """The most bytes that one answer should have."""
        return min(self.size, FULL_PAGE_BYTES)

    @property
    def is_smallest(self) -> bool:
        """Whether it can't become any smaller."""
        return self.size <= MIN_BYTES

    def answered(self, answer_bytes: int, seconds: float, in_flight: int) -> None:
        """Take in an answer, how long it took, and how much was under way with it.

        A window that isn't used doesn't grow: nothing is known of what it would carry.
        """
        if 2 * in_flight < self.size or seconds >= SLOW_SECONDS:
            return
        step = answer_bytes
        if seconds >= QUICK_SECONDS:  # about one page more for a whole window
            step = min(step, FULL_PAGE_BYTES * answer_bytes // self.size)
        self.size = min(self._max_bytes, self.size + step)

    def timed_out(self, began: float, now: float, in_flight: int) -> None:
        """Take in an answer, asked for at ``began``, that took too long to arrive.

        What was asked for before the last halving says nothing of the window since.
        """
        if began < self._halved_at:
            return
        self._halved_at = now
        self.size = max(MIN_BYTES, min(self.size, in_flight) // 2)

    def restart(self) -> None:
        """Forget a large window, since the way to Kinesis failed and may be another."""
        self.size = min(self.size, FIRST_BYTES)

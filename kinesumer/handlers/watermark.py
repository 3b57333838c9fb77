"""Done marks by offset, in any order, to the end of the contiguous done prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Watermark:
    """How many of a shard's first records are done, whatever is done beyond them."""

    __slots__ = ("_ahead", "value")

    def __init__(self) -> None:
        self.value = 0
        """The first ``value`` records are done."""
        self._ahead: set[int] = set()

    def mark(self, offsets: Sequence[int]) -> None:
        """Note that the records at these offsets, counted from 0, are done."""
        if isinstance(offsets, range) and not self._ahead:
            # One after the other, as they come without concurrency.
            if offsets and offsets.start <= self.value:
                self.value = max(self.value, offsets.stop)
                return
        self._ahead.update(offsets)
        while self.value in self._ahead:
            self._ahead.remove(self.value)
            self.value += 1

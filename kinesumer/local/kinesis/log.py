"""One shard's records, encoded when they are put so that pages are only joined."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

_COMPACT = 4096


class RecordLog:
    """Records in order of their counters, and of their times of arrival."""

    def __init__(self) -> None:
        self.counters = array("q")
        self.times = array("d")
        self._ends = array("q")  # bytes up to and including each record
        self._dropped = 0  # bytes before the first element
        self._encoded: list[bytes] = []
        self.first = 0
        """Index of the oldest record that retention has left."""

    def __len__(self) -> int:
        return len(self._encoded)

    def append(self, counter: int, at: float, size: int, encoded: bytes) -> None:
        """Add a record of ``size`` bytes of payload."""
        self.counters.append(counter)
        self.times.append(at)
        self._ends.append(self._before(len(self._ends)) + size)
        self._encoded.append(encoded)

    def trim(self, horizon: float) -> None:
        """Drop what arrived before a moment."""
        if self.first < len(self.times) and self.times[self.first] < horizon:
            self.first = bisect_left(self.times, horizon, self.first)
            if self.first >= min(_COMPACT, len(self.times)):
                self._compact()

    def _compact(self) -> None:
        self._dropped = self._before(self.first)
        for column in (self.counters, self.times, self._ends, self._encoded):
            del column[: self.first]
        self.first = 0

    def _before(self, index: int) -> int:
        return self._ends[index - 1] if index else self._dropped

    def after(self, counter: int) -> int:
        """Return the index of the first record behind a counter."""
        return bisect_right(self.counters, counter, self.first)

    def since(self, moment: float) -> int:
        """Return the index of the first record that arrived at or after a moment."""
        return bisect_left(self.times, moment, self.first)

    def page_end(self, start: int, records: int, size: int) -> int:
        """Return where a page of at most so many records and bytes ends.

        It has at least one record if there is one.
        """
        stop = min(start + records, len(self._ends))
        fits = bisect_right(self._ends, self._before(start) + size, start, stop)
        return min(stop, max(start + 1, fits))

    def size(self, start: int, end: int) -> int:
        """Return the bytes of payload from start up to end."""
        return self._before(end) - self._before(start)

    def join(self, start: int, end: int) -> bytes:
        """Return the encoded records from start up to end, joined by commas."""
        return b",".join(self._encoded[start:end])

"""Count what decoders have decompressed, so that calls of user code can be limited."""

from __future__ import annotations


class ByteCounter:
    """Counts bytes for the whole process. Any thread may add to it.

    Decoders are functions of a record, and may call one another, so that there is no
    object that each of them knows. What others decompress at the same time is counted
    too: then a call of user code gets fewer records.
    """

    def __init__(self) -> None:
        self.total: int = 0

    def add(self, count: int) -> None:
        """Count bytes that were decompressed."""
        self.total += count


DECOMPRESSED = ByteCounter()


class DecompressionRoom:
    """The bytes to which the data in user code may be decompressed together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    @property
    def is_full(self) -> bool:
        """Return whether no further record should be decoded for now."""
        return self._used >= self._limit

    def take(self, count: int) -> None:
        """Count what a record was decompressed to. A negative count gives it back."""
        self._used += count

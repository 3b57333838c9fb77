"""Keep the records of one shard in order, and find pages of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from kinesumer.model.positions import number_order


class LoggedRecord(Protocol):
    """A record in a log."""

    @property
    def sequence_number(self) -> str:
        """The record's sequence number, greater than that of the record before."""

    @property
    def arrived_at(self) -> float:
        """The arrival time, in seconds since 1970."""

    @property
    def size(self) -> int:
        """The bytes that limits count."""

    def forget(self) -> None:
        """Free the record's data."""


R = TypeVar("R", bound=LoggedRecord)


class RecordLog(Generic[R]):
    """The records of a shard. Expired records stay, so that indexes stay valid."""

    def __init__(self) -> None:
        self.log: list[R] = []
        # The number of expired records. They are the first ones in the log.
        self.trimmed: int = 0

    def place_after(self, sequence_number: str) -> int:
        """Return the index of the first record after a sequence number."""
        return bisect_right(self.log, number_order(sequence_number), key=_record_order)

    def place_at(self, sequence_number: str) -> int:
        """Return the index of the first record at or after a sequence number."""
        return bisect_left(self.log, number_order(sequence_number), key=_record_order)

    def place_since(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after a time."""
        return bisect_left(self.log, timestamp, key=attrgetter("arrived_at"))

    def expire(self, before: float) -> None:
        """Expire the records that arrived before a time, and free their data."""
        log = self.log
        while self.trimmed < len(log) and log[self.trimmed].arrived_at < before:
            log[self.trimmed].forget()
            self.trimmed += 1

    def page(self, start: int, records: int, most_bytes: float) -> tuple[int, int]:
        """Return where the page that begins at an index ends, and its size in bytes.

        The page has up to ``records`` records and up to ``most_bytes`` bytes. If the
        first record is larger than that, the page has only this record.
        """
        size = 0
        for index, record in enumerate(self.log[start : start + records], start):
            following = size + record.size
            if following > most_bytes and index > start:
                return index, size
            size = following
        return min(len(self.log), start + records), size


def _record_order(record: LoggedRecord) -> tuple[int, str]:
    return number_order(record.sequence_number)

"""Selects the records of one range from a shard's pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kinesumer.model.positions import After, At, End, Position
from kinesumer.model.streams import Start
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.reading.rows import Rows, Slice


class RangeFilter:
    """Selects the records of a range. The shard's pages must come in order."""

    def __init__(self, range_: ShardRange) -> None:
        first, last = range_.first, range_.last
        if isinstance(first, End):
            raise ValueError(f"{range_.shard_id}: nothing comes after the shard's end")
        # The position in the shard: all records up to here have been processed.
        self.after: Position | Start = _beginning(first)
        # The last position of the range, or None for the shard's end.
        self.last: Position | None = last.position if isinstance(last, After) else None
        # True if the record at the last position has been selected.
        self.reached: bool = (
            self.last is not None
            and isinstance(self.after, Position)
            and self.after >= self.last
        )
        self.passed: bool = False  # true if the range's last record is lost
        self.is_first_missing: bool = False  # true if the range's first record is lost
        self._first = first.sequence_number if isinstance(first, At) else None
        self._begun = False

    def take(self, rows: Rows) -> Slice:
        """Return which of the shard's next records belong to the range."""
        first, stop = 0 if self._begun else self._skip(rows), len(rows)
        if first == stop:
            return Slice(0, 0)
        before = _if_part(self.after)
        if not self._begun and self._first is not None:
            self.is_first_missing = rows.number(first) != self._first
            before = None
        self._begun = True
        self.after = Position(rows.number(stop - 1))
        end = self.last
        if end is not None and self.after >= end:
            stop = bisect_right(
                range(len(rows)), _order(end), first, key=lambda n: _number(rows, n)
            )
            self.reached = stop > first and rows.number(stop - 1) == end.sequence_number
            self.passed = not self.reached
            self.after = end
        last = end if self.reached else None
        return Slice(first, stop, before, _if_part(last))

    def _skip(self, rows: Rows) -> int:
        """Return the index of the first record of the range."""
        after = self.after
        if isinstance(after, Position):
            find = bisect_right if after.sub_sequence_number is None else bisect_left
            return find(range(len(rows)), _order(after), key=lambda n: _number(rows, n))
        since = after.timestamp
        if since is None:
            return 0
        for index in range(len(rows)):
            arrived = rows.arrived(index)
            if arrived is None or arrived >= since:
                return index
        return len(rows)


def _beginning(first: After | At | Start) -> Position | Start:
    match first:
        case After(position=position):
            return position
        case At(sequence_number=number):
            return Position(number, 0)  # within the record, so that Kinesis sends it
        case _:
            return first


def _if_part(position: Position | Start | None) -> Position | None:
    if isinstance(position, Position) and position.sub_sequence_number is not None:
        return position
    return None


# Comparing (length, text) is faster than comparing ints. It gives the same order, as
# AWS's sequence numbers have no leading zeros.
def _order(position: Position) -> tuple[int, str]:
    return len(position.sequence_number), position.sequence_number


def _number(rows: Rows, index: int) -> tuple[int, str]:
    number = rows.number(index)
    return len(number), number

"""Acknowledged records, in any order, and the position to commit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Progress:
    """The delivered, done and committed records of one shard in one epoch.

    Records are counted from 0 in the order of delivery: offset n means the first n
    records. Only ``mark()`` takes time per record.
    """

    __slots__ = (
        "_advanced",
        "_batches",
        "_committed",
        "_committed_position",
        "_delivered",
        "_done",
        "_handed_out",
        "_position",
    )

    def __init__(self, advanced: Callable[[], object] = bool) -> None:
        """Create it empty; ``advanced`` is called when the done prefix grows."""
        self._advanced = advanced
        self._batches: deque[_Batch] = deque()  # those that aren't done
        self._delivered = self._done = self._committed = 0
        self._position: Position | None = None  # where the last done batch ends
        self._committed_position: Position | None = None
        self._handed_out: deque[tuple[Position, int]] = deque()

    def deliver(self, records: Sequence[Record], end: Position | None = None) -> int:
        """Note a delivered batch; return the offset of its first record.

        When all its records are done, the shard is done up to ``end``, by default the
        last record's position. A later ``end`` means that nothing was to deliver after
        the last record. A batch may consist of an ``end`` only.
        """
        first = self._delivered
        if records:
            if self._batches:
                self._batches[-1].forget_data()
            self._batches.append(_Batch(first, records, end or records[-1].position))
            self._delivered += len(records)
        elif end is None:
            raise ValueError("a batch without records needs an end")
        elif self._batches:
            self._batches[-1].end = end
        else:
            self._position = end
        return first

    def done_through(self, offset: int) -> None:
        """Mark the first ``offset`` records as done; a smaller one changes nothing."""
        if offset > self._delivered:
            raise ValueError(
                f"{offset} records can't be done: {self._delivered} were delivered"
            )
        if offset > self._done:
            self._advance(offset)

    def mark(self, position: Position) -> bool:
        """Mark one record as done; return whether that changed anything.

        It doesn't if the record was done before or wasn't delivered in this epoch.
        """
        order = position.order
        number = bisect_left(self._batches, order, key=_last_order)
        if number == len(self._batches):
            return False
        batch = self._batches[number]
        index = batch.find(order)
        if index is None or batch.first + index < self._done or batch.marks[index]:
            return False
        batch.marks[index] = 1
        if batch.first + index == self._done:
            self._advance(self._done + 1)
        return True

    def position(self) -> Position | None:
        """Return the end of the contiguous done prefix; None if nothing is done.

        Pass the position to ``committed()`` once it is stored.
        """
        position = self._position
        if self._batches and self._done > self._batches[0].first:
            batch = self._batches[0]
            position = batch.records[self._done - batch.first - 1].position
        if position is not None and position != self._last_known():
            self._handed_out.append((position, self._done))
        return position

    def pending(self) -> Position | None:
        """Return the position to commit, or None if it is committed already."""
        position = self.position()
        return None if position == self._committed_position else position

    def committed(self, position: Position) -> None:
        """Note that a position returned by ``position()`` is stored."""
        while self._handed_out and self._handed_out[0][0] <= position:
            self._committed_position, self._committed = self._handed_out.popleft()

    def has_committed(self, position: Position) -> bool:
        """Return whether this position or a later one is stored."""
        known = self._committed_position
        return known is not None and known >= position

    def is_done(self, offset: int) -> bool:
        """Return whether the record at an offset is done."""
        if offset < self._done:
            return True
        number = bisect_right(self._batches, offset, key=_first_offset)
        return self._batches[number - 1].is_marked(offset)

    def undone(self, stop: int) -> int:
        """Return how many of the first ``stop`` records aren't done."""
        return sum(batch.count_unmarked(self._done, stop) for batch in self._batches)

    @property
    def delivered(self) -> int:
        """How many records were delivered."""
        return self._delivered

    @property
    def done(self) -> int:
        """How many records the contiguous done prefix has."""
        return self._done

    @property
    def uncommitted(self) -> int:
        """How many delivered records a crash would repeat."""
        return self._delivered - self._committed

    def _advance(self, offset: int) -> None:
        """Move the done prefix to an offset and over the marks that follow it."""
        self._done = offset
        while self._batches:
            batch = self._batches[0]
            stop = batch.first + len(batch.records)
            if self._done < stop:
                self._done = batch.first + batch.marked_from(self._done - batch.first)
            if self._done < stop:
                break
            self._position = batch.end
            self._batches.popleft()
        self._advanced()

    def _last_known(self) -> Position | None:
        if self._handed_out:
            return self._handed_out[-1][0]
        return self._committed_position


class _Batch:
    """A delivered batch that isn't done, and its marks."""

    __slots__ = ("_marks", "end", "first", "records")

    def __init__(self, first: int, records: Sequence[Record], end: Position) -> None:
        self.first, self.records, self.end = first, records, end
        self._marks: bytearray | None = None

    @property
    def marks(self) -> bytearray:
        """One byte per record, 1 if it is done; created at first use."""
        if self._marks is None:
            self._marks = bytearray(len(self.records))
        return self._marks

    def find(self, order: tuple[int, str, int]) -> int | None:
        """Return a record's index, or None if it isn't in this batch."""
        index = bisect_left(self.records, order, key=_order)
        return index if _order(self.records[index]) == order else None

    def marked_from(self, index: int) -> int:
        """Return the index of the first unmarked record at or after ``index``."""
        if self._marks is None:
            return index
        found = self._marks.find(0, index)
        return len(self._marks) if found < 0 else found

    def is_marked(self, offset: int) -> bool:
        """Return whether the record at an offset is marked."""
        return self._marks is not None and self._marks[offset - self.first] == 1

    def count_unmarked(self, start: int, stop: int) -> int:
        """Return how many records from offset ``start`` to ``stop`` are unmarked."""
        first = max(0, start - self.first)
        last = min(len(self.records), stop - self.first)
        if self._marks is None:
            return max(0, last - first)
        return self._marks.count(0, first, max(first, last))

    def forget_data(self) -> None:
        """Drop the data and keep the positions: user code may take long."""
        self.records = [
            Record(
                record.sequence_number,
                b"",
                sub_sequence_number=record.sub_sequence_number,
            )
            for record in self.records
        ]


def _order(record: Record) -> tuple[int, str, int]:
    """Return the ``Position.order`` of a record."""
    number, part = record.sequence_number, record.sub_sequence_number
    return (len(number), number, WHOLE_RECORD if part is None else part)


def _first_offset(batch: _Batch) -> int:
    return batch.first


def _last_order(batch: _Batch) -> tuple[int, str, int]:
    return _order(batch.records[-1])

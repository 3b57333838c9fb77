"""Track which records are acknowledged, in any order, and which position to commit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter

from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.records import PackedRecords, Record
from kinesumer.model.rows import Deaths, ShardRow

# The time of a position in a shard without new records is stored again after this share
# of the retention. If a client or a query stops for less than the rest of the
# retention, the position tells it afterwards that no records were lost.
TIP_SHARE = 1 / 24


class Progress:
    """The delivered, done and committed records of one shard in one epoch.

    A record's offset is the number of records that were delivered before it. The *done
    prefix* consists of all records before the first one that isn't done.
    """

    def __init__(self, advanced: Callable[[], object] = bool) -> None:
        """Create the object; ``advanced`` is called when the done prefix grows."""
        self._advanced = advanced
        self._batches: deque[_Batch] = deque()  # batches that aren't done
        self.delivered: int = 0
        self.done: int = 0  # number of records in the done prefix
        self._committed = 0
        self._position: Position | None = None  # the end of the last done batch
        # The last position of this epoch that is known to be stored.
        self.committed_position: Position | None = None
        self._handed_out: deque[tuple[Position, int]] = deque()
        # For each batch that isn't committed, the offset of its end, and the arrival of
        # its first record.
        self._arrivals: deque[tuple[int, float | None]] = deque()

    def deliver(self, records: Sequence[Record], end: Position | None = None) -> int:
        """Note a delivered batch; return the offset of its first record.

        When all records of the batch are done, the shard is done up to ``end``, which
        is the last record's position by default. A later ``end`` means that there is
        nothing to deliver between the last record and ``end``. A batch may have no
        records, but must have an ``end`` in this case.
        """
        first = self.delivered
        if records:
            # Only the newest batch keeps its data, so older batches that wait for a
            # slow record need little memory.
            if self._batches:
                self._batches[-1].forget_data()
            self._batches.append(_Batch(first, records, end or records[-1].position))
            self.delivered += len(records)
            arrival = records[0].approximate_arrival_timestamp
            self._arrivals.append((self.delivered, arrival))
        elif end is None:
            raise ValueError("a batch without records needs an end")
        elif self._batches:
            self._batches[-1].end = end
        else:
            self._position = end
        return first

    def done_through(self, offset: int) -> None:
        """Mark the first ``offset`` records as done. Done records stay done."""
        if offset > self.delivered:
            raise ValueError(
                f"{offset} records can't be done: {self.delivered} were delivered"
            )
        if offset > self.done:
            self._advance(offset)

    def mark(self, position: Position) -> bool:
        """Mark one record as done; return whether that changed anything.

        Nothing changes if the record is already done or wasn't delivered in this epoch.
        """
        order = position.order
        number = bisect_left(self._batches, order, key=_last_order)
        if number == len(self._batches):
            return False
        batch = self._batches[number]
        index = batch.find(order)
        if index is None or batch.first + index < self.done or batch.marks[index]:
            return False
        batch.marks[index] = 1
        if batch.first + index == self.done:
            self._advance(self.done + 1)
        return True

    def mark_between(self, first: Position, last: Position) -> bool:
        """Mark the records from one position to another; return as ``mark()`` does."""
        is_new = False
        begin = bisect_left(self._batches, first.order, key=_last_order)
        for batch in islice(self._batches, begin, None):
            start = bisect_left(batch.records, first.order, key=_order)
            stop = bisect_right(batch.records, last.order, key=_order)
            start = max(start, self.done - batch.first)
            marks = batch.marks[start:stop]
            is_new = is_new or 0 in marks
            batch.marks[start:stop] = b"\1" * len(marks)
        if is_new and self._batch_of(self.done).is_marked(self.done):
            self._advance(self.done)
        return is_new

    def mark_offsets(self, offsets: Sequence[int]) -> None:
        """Mark the records at these offsets as done."""
        if isinstance(offsets, range) and offsets.start <= self.done < offsets.stop:
            self.done_through(offsets.stop)
            return
        if not self._batches:
            return
        front = self._batches[0]
        first, marks = front.first, front.marks
        for offset in offsets:
            if not first <= offset < first + len(marks):
                if offset < self.done:
                    continue
                batch = self._batch_of(offset)
                first, marks = batch.first, batch.marks
            marks[offset - first] = 1
        if front.marks[self.done - front.first]:
            self._advance(self.done)

    def position(self) -> Position | None:
        """Return the position at the end of the done prefix, or None if it is empty.

        Pass the position to ``committed()`` once it is stored.
        """
        position = self.done_position
        # ``committed()`` gets only a position, which doesn't say how many records it
        # covers. Note the number here.
        if position is not None and position != self._last_known():
            self._handed_out.append((position, self.done))
        return position

    @property
    def done_position(self) -> Position | None:
        """The position at the end of the done prefix, or None if it is empty."""
        if self._batches and self.done > self._batches[0].first:
            batch = self._batches[0]
            return batch.records[self.done - batch.first - 1].position
        return self._position

    def pending(self) -> Position | None:
        """Return the position to commit, or None if there is nothing new to commit."""
        position = self.position()
        return None if position == self.committed_position else position

    def committed(self, position: Position) -> None:
        """Note that a position returned by ``position()`` is stored."""
        while self._handed_out and self._handed_out[0][0] <= position:
            self.committed_position, self._committed = self._handed_out.popleft()
        while self._arrivals and self._arrivals[0][0] <= self._committed:
            self._arrivals.popleft()

    def has_committed(self, position: Position) -> bool:
        """Return whether this position or a later one is stored."""
        known = self.committed_position
        return known is not None and known >= position

    def is_done(self, offset: int) -> bool:
        """Return whether the record at an offset is done."""
        if offset < self.done:
            return True
        return self._batch_of(offset).is_marked(offset)

    def undone(self, stop: int) -> int:
        """Return how many of the first ``stop`` records aren't done."""
        return sum(batch.count_unmarked(self.done, stop) for batch in self._batches)

    @property
    def uncommitted(self) -> int:
        """The number of records that would be delivered again after a crash."""
        return self.delivered - self._committed

    @property
    def first_undone_arrival(self) -> float | None:
        """The arrival time, by Kinesis's clock, of the first delivered undone record.

        None if all delivered records are done.
        """
        if not self._batches:
            return None
        batch = self._batches[0]
        return batch.records[self.done - batch.first].approximate_arrival_timestamp

    @property
    def first_uncommitted_arrival(self) -> float | None:
        """The arrival time of the first uncommitted record, or of one before it.

        None if all delivered records are committed.
        """
        if self._committed == self.done:
            return self.first_undone_arrival
        return self._arrivals[0][1]

    def _batch_of(self, offset: int) -> _Batch:
        return self._batches[bisect_right(self._batches, offset, key=_first_offset) - 1]

    def _advance(self, offset: int) -> None:
        """Extend the done prefix to an offset, and over the marked records after it."""
        self.done = offset
        while self._batches:
            batch = self._batches[0]
            stop = batch.first + len(batch.records)
            if self.done < stop:
                self.done = batch.first + batch.marked_from(self.done - batch.first)
            if self.done < stop:
                break
            self._position = batch.end
            self._batches.popleft()
        self._advanced()

    def _last_known(self) -> Position | None:
        if self._handed_out:
            return self._handed_out[-1][0]
        return self.committed_position


class _Batch:
    """A delivered batch that isn't completely done, with marks for its done records."""

    __slots__ = ("_marks", "end", "first", "records")

    def __init__(self, first: int, records: Sequence[Record], end: Position) -> None:
        self.first, self.records, self.end = first, records, end
        self._marks: bytearray | None = None

    @property
    def marks(self) -> bytearray:
        """One byte per record: 1 if the record is marked as done, else 0."""
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
        first = self._marks.find(0, index)
        return len(self._marks) if first < 0 else first

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
        """Release the records' data, and keep their positions and arrivals."""
        if isinstance(self.records, PackedRecords):
            self.records = self.records.copied(has_data=False)
            return
        self.records = [
            Record(
                record.sequence_number,
                b"",
                approximate_arrival_timestamp=record.approximate_arrival_timestamp,
                sub_sequence_number=record.sub_sequence_number,
            )
            for record in self.records
        ]


def _order(record: Record) -> tuple[int, str, int]:
    """Return the ``Position.order`` of a record."""
    number, part = record.sequence_number, record.sub_sequence_number
    return (len(number), number, WHOLE_RECORD if part is None else part)


_first_offset = attrgetter("first")


def _last_order(batch: _Batch) -> tuple[int, str, int]:
    return _order(batch.records[-1])


def is_tip_due(seen: float, stored: float, retention_seconds: float) -> bool:
    """Return whether the time until which a quiet shard was read must be stored again.

    ``seen`` is this time now, and ``stored`` is what was stored last.
    """
    return seen - stored >= retention_seconds * TIP_SHARE


def after_death(row: ShardRow, now: float) -> Deaths:
    """Return what a claim stores after the death of the owner in ``row``.

    ``now`` is the latest time that Kinesis's clock may show. A death counts only if the
    owner had given user code a record that may have caused the earlier deaths. The
    first death counts in any case, since an owner notes no record before it.
    """
    deaths, position = row.deaths, row.position
    has_passed = row.is_isolated and _is_passed(deaths.tried, position)
    if deaths.tried is None or has_passed:
        return deaths._replace(counted=max(1, deaths.counted), at=now, tried=None)
    counted = deaths._replace(counted=deaths.counted + 1, at=now, tried=None)
    if not row.is_isolated:
        return counted
    # A process may die for another reason while user code has an innocent record. So
    # only two deaths in a row at one record name it.
    tried = deaths.tried
    poison = tried if tried == deaths.suspect else row.poison
    return counted._replace(suspect=tried, poison=poison)


def _is_passed(record: Position | None, position: Position | None) -> bool:
    return record is not None and position is not None and position >= record


def may_have_killed(deaths: Deaths, arrived: float | None) -> bool:
    """Return whether a record that arrived at a time may have caused the deaths.

    ``arrived`` is by Kinesis's clock, or None if it is unknown.
    """
    return arrived is None or arrived <= deaths.at

"""Exactly the records of one range: what of each page lies within it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kinesumer.model import HASH_KEYS, Fence, Position, ShardKey, Source, Start
from kinesumer.spark.offsets import After, End
from kinesumer.wire.aggregation import open_records

if TYPE_CHECKING:
    from kinesumer.model import Record
    from kinesumer.spark.ranges import ShardRange


class Cut:
    """Takes the pages of a shard one after the other and knows where it is."""

    def __init__(self, given: ShardRange, *, deaggregate: bool) -> None:
        first, last = given.first, given.last
        if isinstance(first, End):
            raise ValueError(f"{given.shard_id}: nothing comes after the shard's end")
        self.after: Position | Start = (
            first.position if isinstance(first, After) else first
        )
        """Where reading goes on: nothing up to here is taken again."""
        self.last = last.position if isinstance(last, After) else None
        """The last position to take; None: all up to the shard's end."""
        self.reached = self._is_reached(self.after)
        """Whether the last position has been taken."""
        self._deaggregate = deaggregate
        self._skipping = True
        key = ShardKey(given.stream_arn, given.shard_id)
        self._source = Source(Fence(key, 0), 0, HASH_KEYS - 1)

    def take(self, records: list[Record]) -> list[Record]:
        """Return the range's user records of the shard's next Kinesis records.

        The range is over once ``reached`` is true or, short of it, ``passed``.
        """
        if self._skipping:
            records = self._skip(records)
        if not records:
            return records
        end = self.last
        following = Position(records[-1].sequence_number)
        if end is not None and following >= end:
            count = bisect_right(records, _number(end), key=_order)
            records = records[:count]
            whole = records and records[-1].sequence_number == end.sequence_number
            self.reached, self.passed = bool(whole), not whole
            following = end
        before, self.after = self.after, following
        return self._open(records, before)

    passed = False
    """Whether a record after the last position came without that of the position."""

    def _skip(self, records: list[Record]) -> list[Record]:
        """Drop what isn't after the beginning."""
        after = self.after
        for place, record in enumerate(records):
            if isinstance(after, Position):
                skip = Position(record.sequence_number) <= after
            else:
                arrived = record.approximate_arrival_timestamp
                since = after.timestamp
                skip = since is not None and arrived is not None and arrived < since
            if not skip:
                self._skipping = False
                return records[place:]
        return []

    def _open(self, records: list[Record], before: Position | Start) -> list[Record]:
        if not self._deaggregate:
            return records
        opened = open_records(records, self._source).records
        if isinstance(before, Position) and before.sub_sequence_number is not None:
            opened = [record for record in opened if record.position > before]
        end = self.last
        if self.reached and end is not None and end.sub_sequence_number is not None:
            opened = [record for record in opened if record.position <= end]
        return opened

    def _is_reached(self, after: Position | Start) -> bool:
        return (
            self.last is not None and isinstance(after, Position) and after >= self.last
        )


def _order(record: Record) -> tuple[int, str]:
    return len(record.sequence_number), record.sequence_number


def _number(position: Position) -> tuple[int, str]:
    return len(position.sequence_number), position.sequence_number

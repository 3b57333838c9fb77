"""Parses pages, selects the records of a range, and builds Arrow batches of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.model.columns import packed_columns
from kinesumer.model.positions import After, At, End, Position, number_order
from kinesumer.model.records import Fence, PackedRecords, Page, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start, stream_name
from kinesumer.spark.options.table import requested
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.wire.aggregation import has_aggregates, open_in_steps

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


TIMESTAMP = pa.timestamp("us", tz="UTC")


class Columns:
    """The columns of a query. Raises ConfigurationError for an unknown column."""

    def __init__(self, schema: StructType) -> None:
        self.names: tuple[str, ...] = requested(schema)
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def batch(
        self,
        shard: ShardKey,
        values: Mapping[str, pa.Array | Sequence[object]],
        count: int,
    ) -> pa.RecordBatch:
        """Return a batch of rows of one shard. Columns without values hold nulls."""
        arrays = []
        for field in self.schema:
            if field.name in _OF_SHARD:
                arrays.append(_repeated(_OF_SHARD[field.name](shard), count))
            elif field.name in values:
                column = values[field.name]
                is_array = isinstance(column, pa.Array)
                arrays.append(column if is_array else pa.array(column, field.type))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_OF_SHARD: dict[str, Callable[[ShardKey], str]] = {
    "stream": lambda shard: stream_name(shard.stream_arn),
    "stream_arn": lambda shard: shard.stream_arn,
    "shard_id": lambda shard: shard.shard_id,
}


@lru_cache(maxsize=256)
def _many(text: str) -> pa.Array:
    return pa.repeat(_scalar(text), PAGE_RECORDS)


def _repeated(text: str, count: int) -> pa.Array:
    if count <= PAGE_RECORDS:
        return _many(text).slice(0, count)
    return pa.repeat(_scalar(text), count)


def _scalar(text: str) -> pa.Scalar:
    # ``pa.scalar()`` does the same, but imports pandas if it is installed. Pandas takes
    # more CPU to import than all of kinesumer, and a task doesn't need it.
    data = text.encode()
    bounds = pa.py_buffer(array("i", [0, len(data)]))
    return pa.StringArray.from_buffers(1, bounds, pa.py_buffer(data))[0]


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Combine batches of the same schema into one batch."""
    if len(batches) == 1:
        return batches[0]
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of at most PAGE_RECORDS rows."""
    for first in range(0, batch.num_rows, PAGE_RECORDS):
        yield batch.slice(first, PAGE_RECORDS)


# --- pages ---------------------------------------------------------------------------


class Slice(NamedTuple):
    """The Kinesis records of a page with indexes from ``first`` to before ``stop``.

    User records up to ``after`` and user records after ``last`` are left out. They can
    only be in aggregates at the begin and end of the slice.
    """

    first: int
    stop: int
    after: Position | None = None
    last: Position | None = None


def rows_of(page: Page, *, deaggregate: bool) -> Rows:
    """Return a page's records as rows."""
    records, opens = page.records, deaggregate and has_aggregates(page.records)
    if isinstance(records, PackedRecords) and not opens:
        return TableRows(records)
    return RecordRows(records, deaggregate=deaggregate)


class TableRows:
    """The records of a page as Arrow columns, without an object per record."""

    def __init__(self, records: PackedRecords) -> None:
        self._columns: dict[str, pa.Array] = packed_columns(records)
        self._numbers = self._columns["sequence_number"]
        self._arrivals = self._columns["arrived_at"]
        # The size of data and keys in bytes.
        self.payload: int = records.data_bytes
        keys = self._columns["partition_key"]
        if keys.null_count < len(keys):
            self.payload += keys.buffers()[-1].size

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, index: int) -> str:
        """Return the sequence number of a record."""
        number: str = self._numbers[index].as_py()
        return number

    def arrived(self, index: int) -> float | None:
        """Return when a record arrived."""
        micros: int = self._arrivals[index].value
        return micros / 1e6

    def batch(self, shard: ShardKey, columns: Columns, slice_: Slice) -> pa.RecordBatch:
        """Return the user records of a slice as rows."""
        first, size = slice_.first, slice_.stop - slice_.first
        sliced = {name: c.slice(first, size) for name, c in self._columns.items()}
        return columns.batch(shard, sliced, size)


class RecordRows:
    """The records of a page one by one, which may be aggregates."""

    def __init__(self, records: Sequence[Record], *, deaggregate: bool) -> None:
        self._records, self._deaggregate = records, deaggregate
        # The aggregates that ``batch()`` couldn't open.
        self.unopened: list[Record] = []

    def __len__(self) -> int:
        return len(self._records)

    @property
    def payload(self) -> int:
        """The size of data and keys in bytes."""
        return sum(len(r.data) + len(r.partition_key or "") for r in self._records)

    def number(self, index: int) -> str:
        """Return the sequence number of a record."""
        return self._records[index].sequence_number

    def arrived(self, index: int) -> float | None:
        """Return when a record arrived."""
        return self._records[index].approximate_arrival_timestamp

    def batch(self, shard: ShardKey, columns: Columns, slice_: Slice) -> pa.RecordBatch:
        """Return the user records of a slice as rows."""
        records = self._records[slice_.first : slice_.stop]
        if not self._deaggregate:
            return _rows_of(records, shard, columns)
        source = Source(Fence(shard, 0), 0, HASH_KEYS - 1)
        self.unopened, batches = [], []
        # A row takes less memory than a record, of which only a step's exist at a time.
        for step in open_in_steps(records, source):
            self.unopened += step.opened.unopened
            if within := _within(step.opened.records, slice_):
                batches.append(_rows_of(within, shard, columns))
        return joined(batches or [_rows_of([], shard, columns)])


def _rows_of(
    records: Sequence[Record], shard: ShardKey, columns: Columns
) -> pa.RecordBatch:
    if isinstance(records, PackedRecords):
        return columns.batch(shard, packed_columns(records), len(records))
    seconds = [record.approximate_arrival_timestamp for record in records]
    micros = [None if s is None else round(s * 1e6) for s in seconds]
    values = {
        "sequence_number": [record.sequence_number for record in records],
        "sub_sequence_number": [record.sub_sequence_number for record in records],
        "partition_key": [record.partition_key for record in records],
        "explicit_hash_key": [record.explicit_hash_key for record in records],
        "data": [record.data for record in records],
        "arrived_at": pa.array(micros, pa.int64()).cast(TIMESTAMP),
    }
    return columns.batch(shard, values, len(records))


def _within(records: Sequence[Record], slice_: Slice) -> Sequence[Record]:
    if slice_.after is not None:
        records = [record for record in records if record.position > slice_.after]
    if slice_.last is not None:
        records = [record for record in records if record.position <= slice_.last]
    return records


Rows = TableRows | RecordRows


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
            stop = max(first, _place(bisect_right, rows, end))
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
            return _place(find, rows, after)
        since = after.timestamp
        if since is None:
            return 0
        arrivals = map(rows.arrived, range(len(rows)))
        late = (i for i, at in enumerate(arrivals) if at is None or at >= since)
        return next(late, len(rows))


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


def _place(bisect: Callable[..., int], rows: Rows, position: Position) -> int:
    """Find the place of a position's record by bisect_left or bisect_right."""
    number = number_order(position.sequence_number)
    indexes = range(len(rows))
    return bisect(indexes, number, key=lambda i: number_order(rows.number(i)))

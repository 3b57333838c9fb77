"""Parses GetRecords answers, and converts their records to rows of a query."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, YEAR_10000
from kinesumer.spark.columnar import json_layout
from kinesumer.spark.columnar.arrow import decode, from_numpy, joined
from kinesumer.spark.columnar.cbor_layout import TIMESTAMP, CborTable
from kinesumer.spark.columnar.json_layout import IrregularError
from kinesumer.wire.aggregation import MAGIC, open_in_steps
from kinesumer.wire.cbor import is_map
from kinesumer.wire.fields import is_sequence_number
from kinesumer.wire.records import UNDECODED, decode_page, page_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import ShardKey
    from kinesumer.spark.columnar.arrow import Columns
    from kinesumer.wire.records import Body

# The first four Base64 characters of an aggregate. They encode the first three of its
# four magic bytes.
MAGIC_TEXT = base64.b64encode(MAGIC)[:4]
MICROSECONDS = 1e6


class Slice(NamedTuple):
    """The Kinesis records of a page with indexes from ``first`` to before ``stop``.

    User records up to ``after`` and user records after ``last`` are left out. They can
    only be in aggregates at the begin and end of the slice.
    """

    first: int
    stop: int
    after: Position | None = None
    last: Position | None = None


def parse(
    body: Body, names: Collection[str], *, deaggregate: bool
) -> tuple[Page, Rows]:
    """Return a GetRecords answer as a page and its rows with the named columns.

    The rows are TableRows if all records have the same layout and none is an aggregate
    that must be deaggregated. The page then has no records. Otherwise, the rows are
    RecordRows, as for an answer that lacks an iterator and children. Raises
    SourceUnavailableError for an invalid answer.
    """
    split = _split_cbor if is_map(body) else _split_json
    try:
        page, rows = split(body, names, deaggregate)
        if page.next_iterator is not None or page.children:
            return page, rows
    except (IrregularError, SourceUnavailableError, *UNDECODED):
        pass
    page = decode_page(body)
    return page, RecordRows(page.records, deaggregate=deaggregate)


def _split_json(
    body: Body, names: Collection[str], deaggregate: bool
) -> tuple[Page, TableRows]:
    """Return a page without records, and its rows.

    Raise IrregularError if a record is unusual, ValueError if a value is invalid, and
    SourceUnavailableError or one of UNDECODED if a field of the page is.
    """
    table = json_layout.Table(body)
    if deaggregate and table.any_begins(json_layout.DATA, MAGIC_TEXT):
        raise IrregularError
    numbers, columns = _text(table, json_layout.NUMBER), {}
    if "partition_key" in names:
        columns["partition_key"] = _text(table, json_layout.KEY)
    if "data" in names:
        columns["data"] = decode(table.column(json_layout.DATA, pa.binary()))
    # Four Base64 characters decode to three bytes. Padding reduces that by one byte per
    # record on average.
    data_bytes = table.length(json_layout.DATA) * 3 // 4 - table.count
    payload = max(0, data_bytes) + table.length(json_layout.KEY)
    rows = TableRows(numbers, _arrivals(table), columns, payload)
    return decode_page(table.rest)._replace(wire_bytes=len(body)), rows


def _split_cbor(
    body: Body, _names: Collection[str], deaggregate: bool
) -> tuple[Page, TableRows]:
    """Do the same as ``_split_json()``. All columns exist, as they cost little."""
    table = CborTable(body, MAGIC)
    if deaggregate and table.has_prefix:
        raise IrregularError
    columns = {"partition_key": table.keys, "data": table.data}
    rows = TableRows(table.numbers, table.arrivals, columns, table.payload)
    return page_of([], table.fields, body), rows


class TableRows:
    """The records of a page as Arrow columns, without an object per record."""

    def __init__(
        self,
        numbers: pa.Array,
        arrivals: pa.Array,
        columns: Mapping[str, pa.Array],
        payload: int,
    ) -> None:
        """Raise ValueError if a sequence number is invalid."""
        for number in (numbers[0], numbers[-1]):
            if not is_sequence_number(number.as_py()):
                raise ValueError("a sequence number that is not a number")
        self._numbers, self._arrivals = numbers, arrivals
        self._columns = {**columns, "sequence_number": numbers, "arrived_at": arrivals}
        self._payload = payload

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def payload(self) -> int:
        """The size of keys and data, with an error of at most one byte per record."""
        return self._payload

    def number(self, index: int) -> str:
        """Return the sequence number of a record."""
        number: str = self._numbers[index].as_py()
        return number

    def arrived(self, index: int) -> float | None:
        """Return when a record arrived."""
        micros = self._arrivals[index].value
        return None if micros is None else micros / MICROSECONDS

    def batch(self, shard: ShardKey, columns: Columns, slice_: Slice) -> pa.RecordBatch:
        """Return the user records of a slice as rows."""
        size = slice_.stop - slice_.first
        sliced = {
            name: column.slice(slice_.first, size)
            for name, column in self._columns.items()
        }
        return columns.batch(shard, sliced, size)


def _text(table: json_layout.Table, name: str) -> pa.Array:
    column = table.column(name, pa.string())
    column.validate(full=True)
    return column


def _arrivals(table: json_layout.Table) -> pa.Array:
    texts = table.column(json_layout.ARRIVAL, pa.string())
    if texts.null_count:
        return texts.cast(TIMESTAMP)
    seconds = texts.cast(pa.float64()).buffers()[1]
    micros = np.frombuffer(seconds, np.float64)[: len(texts)] * MICROSECONDS
    if not ((micros >= 0) & (micros < YEAR_10000 * MICROSECONDS)).all():
        raise ValueError("an arrival time that is out of range")
    return from_numpy(np.rint(micros).astype(np.int64), TIMESTAMP)


class RecordRows:
    """The records of a page as Record objects, which may be aggregates."""

    def __init__(self, records: list[Record], *, deaggregate: bool) -> None:
        self._records, self._deaggregate = records, deaggregate
        # The aggregates that ``batch()`` couldn't open.
        self.unopened: list[Record] = []

    def __len__(self) -> int:
        return len(self._records)

    @property
    def payload(self) -> int:
        """The size of data and keys in bytes."""
        return sum(
            len(record.data) + len(record.partition_key or "")
            for record in self._records
        )

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
    records: list[Record], shard: ShardKey, columns: Columns
) -> pa.RecordBatch:
    seconds = [record.approximate_arrival_timestamp for record in records]
    micros = [None if s is None else round(s * MICROSECONDS) for s in seconds]
    values = {
        "sequence_number": [record.sequence_number for record in records],
        "sub_sequence_number": [record.sub_sequence_number for record in records],
        "partition_key": [record.partition_key for record in records],
        "explicit_hash_key": [record.explicit_hash_key for record in records],
        "data": [record.data for record in records],
        "arrived_at": pa.array(micros, pa.int64()).cast(TIMESTAMP),
    }
    return columns.batch(shard, values, len(records))


def _within(records: list[Record], slice_: Slice) -> list[Record]:
    if slice_.after is not None:
        records = [record for record in records if record.position > slice_.after]
    if slice_.last is not None:
        records = [record for record in records if record.position <= slice_.last]
    return records


Rows = TableRows | RecordRows

"""The Kinesis records of a page, as columns or one by one, and their rows."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, YEAR_10000
from kinesumer.spark.columnar import json_layout
from kinesumer.spark.columnar.arrow import decode
from kinesumer.wire.aggregation import MAGIC, open_records
from kinesumer.wire.fields import is_sequence_number
from kinesumer.wire.records import decode_page

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import ShardKey
    from kinesumer.spark.columnar.arrow import Columns
    from kinesumer.wire.records import Body

MAGIC_TEXT = base64.b64encode(MAGIC)[:4]
"""The first Base64 characters of an aggregate: three of its four magic bytes."""
TIMESTAMP = pa.timestamp("us", tz="UTC")
MICROSECONDS = 1e6


class Slice(NamedTuple):
    """A selection of the Kinesis records of a page."""

    first: int
    stop: int
    after: Position | None = None
    """Skip the user records of the first record up to this position."""
    last: Position | None = None
    """Skip the user records of the last record after this position."""


class Rows(Protocol):
    """A page's Kinesis records."""

    def __len__(self) -> int: ...

    @property
    def payload(self) -> int:
        """Bytes that count towards a shard's 2 MB a second: data and keys."""
        ...

    def number(self, place: int) -> str:
        """Return the sequence number of a record."""
        ...

    def arrived(self, place: int) -> float | None:
        """Return when a record arrived."""
        ...

    def batch(self, shard: ShardKey, columns: Columns, part: Slice) -> pa.RecordBatch:
        """Return user records as rows."""
        ...


def parse(
    body: Body, names: Collection[str], *, deaggregate: bool
) -> tuple[Page, Rows]:
    """Return an answer and, apart from it, its records, for columns of such names.

    In columns if they are all alike; one by one if there are aggregates to be opened.
    Raises SourceUnavailableError for an invalid answer.
    """
    try:
        table = json_layout.Table(body)
        if not (deaggregate and table.any_begins(json_layout.DATA, MAGIC_TEXT)):
            rows = TableRows(table, names)
            return decode_page(table.rest)._replace(wire_bytes=len(body)), rows
    except (json_layout.IrregularError, ValueError):
        pass
    page = decode_page(body)
    return page, RecordRows(page.records, deaggregate=deaggregate)


class TableRows:
    """Records in columns."""

    def __init__(self, table: json_layout.Table, names: Collection[str]) -> None:
        """Raise ValueError if a value isn't what it should be."""
        self._numbers = _text(table, json_layout.NUMBER)
        for number in (self._numbers[0], self._numbers[-1]):
            if not is_sequence_number(number.as_py()):
                raise ValueError("a sequence number that is not a number")
        self._arrivals = _arrivals(table)
        self._columns = {
            "sequence_number": self._numbers,
            "arrived_at": self._arrivals,
        }
        if "partition_key" in names:
            self._columns["partition_key"] = _text(table, json_layout.KEY)
        if "data" in names:
            data = table.column(json_layout.DATA, pa.binary())
            self._columns["data"] = decode(data)
        # Of each group of four characters three bytes, less one for padding at its end.
        data_bytes = table.length(json_layout.DATA) * 3 // 4 - table.count
        self._payload = max(0, data_bytes) + table.length(json_layout.KEY)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def payload(self) -> int:
        """Bytes of data, give or take one a record, and of keys."""
        return self._payload

    def number(self, place: int) -> str:
        """Return the sequence number of a record."""
        number: str = self._numbers[place].as_py()
        return number

    def arrived(self, place: int) -> float | None:
        """Return when a record arrived."""
        micros = self._arrivals[place].value
        return None if micros is None else micros / MICROSECONDS

    def batch(self, shard: ShardKey, columns: Columns, part: Slice) -> pa.RecordBatch:
        """Return user records as rows."""
        size = part.stop - part.first
        sliced = {
            name: column.slice(part.first, size)
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
    micros = texts.cast(pa.float64()).to_numpy() * MICROSECONDS
    if not ((micros >= 0) & (micros < YEAR_10000 * MICROSECONDS)).all():
        raise ValueError("an arrival time that is out of range")
    return pa.array(np.rint(micros).astype(np.int64), TIMESTAMP)


class RecordRows:
    """Records one by one."""

    def __init__(self, records: list[Record], *, deaggregate: bool) -> None:
        self._records, self._deaggregate = records, deaggregate

    def __len__(self) -> int:
        return len(self._records)

    @property
    def payload(self) -> int:
        """Bytes of data and keys."""
        return sum(
            len(record.data) + len(record.partition_key or "")
            for record in self._records
        )

    def number(self, place: int) -> str:
        """Return the sequence number of a record."""
        return self._records[place].sequence_number

    def arrived(self, place: int) -> float | None:
        """Return when a record arrived."""
        return self._records[place].approximate_arrival_timestamp

    def batch(self, shard: ShardKey, columns: Columns, part: Slice) -> pa.RecordBatch:
        """Return user records as rows."""
        records = self._records[part.first : part.stop]
        if self._deaggregate:
            records = _opened(records, shard, part)
        seconds = [record.approximate_arrival_timestamp for record in records]
        micros = [None if s is None else round(s * MICROSECONDS) for s in seconds]
        given = {
            "sequence_number": [record.sequence_number for record in records],
            "sub_sequence_number": [record.sub_sequence_number for record in records],
            "partition_key": [record.partition_key for record in records],
            "explicit_hash_key": [record.explicit_hash_key for record in records],
            "data": [record.data for record in records],
            "arrived_at": pa.array(micros, pa.int64()).cast(TIMESTAMP),
        }
        return columns.batch(shard, given, len(records))


def _opened(records: list[Record], shard: ShardKey, part: Slice) -> list[Record]:
    source = Source(Fence(shard, 0), 0, HASH_KEYS - 1)
    opened = open_records(records, source).records
    if part.after is not None:
        opened = [record for record in opened if record.position > part.after]
    if part.last is not None:
        opened = [record for record in opened if record.position <= part.last]
    return opened

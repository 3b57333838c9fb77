"""Records as columns, in Arrow's format, without an object for each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from kinesumer.model.arrow_table import metadata_columns
from kinesumer.model.records import (
    Batch,
    PackedRecords,
    Record,
    Source,
    T_co,
)

if TYPE_CHECKING:
    import polars
    import pyarrow as pa


class Buffers(NamedTuple):
    """The buffers of a page's columns, as Arrow lays them out.

    Offsets are int32, and one more than there are records. Without partition keys, the
    buffers of the keys are empty. Arrival times are int64, in microseconds since 1970.
    """

    number_offsets: bytes
    numbers: bytes
    key_offsets: bytes
    keys: bytes
    data_offsets: bytes
    data: bytes
    arrival_micros: bytes


class RecordColumns(PackedRecords):
    """Records of one page of which none is an aggregate.

    A record becomes an object when it is asked for. Slices share the buffers.
    """

    __slots__ = ("_arrivals", "_data", "_keys", "_numbers", "buffers", "first", "stop")

    def __init__(self, buffers: Buffers, source: Source | None = None) -> None:
        self.buffers: Buffers = buffers
        self.source = source
        self._numbers = memoryview(buffers.number_offsets).cast("i")
        self._keys = memoryview(buffers.key_offsets).cast("i")
        self._data = memoryview(buffers.data_offsets).cast("i")
        self._arrivals = memoryview(buffers.arrival_micros).cast("q")
        # The records between these two indexes belong to this object.
        self.first: int = 0
        self.stop: int = len(self._arrivals)

    @property
    def data_bytes(self) -> int:
        """The size of the records' data."""
        return self._data[self.stop] - self._data[self.first]

    def without_data(self) -> Sequence[Record]:
        """Return the records without their data and their keys."""
        count = len(self._arrivals)
        none = bytes(4 * (count + 1))
        bare = self.buffers._replace(
            key_offsets=b"", keys=b"", data_offsets=none, data=b""
        )
        return RecordColumns(bare, self.source)[self.first : self.stop]

    def __len__(self) -> int:
        return self.stop - self.first

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[at] for at in range(start, stop, step)]
            part = RecordColumns(self.buffers, self.source)
            part.first = self.first + start
            part.stop = self.first + max(start, stop)
            return part
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        return self._record(self.first + index)

    def __iter__(self) -> Iterator[Record]:
        return _RecordIterator(self)

    def _record(self, index: int) -> Record:
        buffers, numbers, data = self.buffers, self._numbers, self._data
        key: str | None = None
        if self._keys:
            key = buffers.keys[self._keys[index] : self._keys[index + 1]].decode()
        return Record(
            buffers.numbers[numbers[index] : numbers[index + 1]].decode(),
            buffers.data[data[index] : data[index + 1]],
            key,
            self._arrivals[index] / 1_000_000,
            None,
            None,
            self.source,
        )


class _RecordIterator:
    """Makes one record after the other, and knows how many are left."""

    def __init__(self, records: RecordColumns) -> None:
        self._records, self._index = records, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        index = self._index
        if index >= len(self._records):
            raise StopIteration
        self._index = index + 1
        return self._records[index]

    def __length_hint__(self) -> int:
        return len(self._records) - self._index


class ColumnBatch(Batch[T_co]):
    """Records of one shard, in order, as Arrow arrays.

    ``len(batch)`` is the number of records, and ``batch[first:stop]`` has some of them.
    Slices and arrays share the memory of the page that Kinesis sent. ``records[index]``
    makes a record object, for example to acknowledge it.

    Records of KPL aggregates and decoded values are copied into new arrays.
    """

    __slots__ = ("_columns", "_table")

    def __init__(
        self, records: Sequence[Record[T_co]], millis_behind: int, source: Source
    ) -> None:
        super().__init__(records, millis_behind, source)
        self._table: pa.Table | None = None
        self._columns: dict[str, pa.Array] | None = None

    def __getitem__(self, part: slice) -> Self:
        if not isinstance(part, slice):
            raise TypeError(f"use batch.records[{part!r}] for one record of a batch")
        return type(self)(self.records[part], self.millis_behind, self._source)

    @property
    def data(self) -> pa.BinaryArray:
        """The records' data."""
        return self._arrays()["data"]

    @property
    def sequence_number(self) -> pa.StringArray:
        """The sequence numbers."""
        return self._arrays()["sequence_number"]

    @property
    def sub_sequence_number(self) -> pa.Int64Array:
        """The indexes within KPL aggregates; null for other records."""
        return self._arrays()["sub_sequence_number"]

    @property
    def partition_key(self) -> pa.StringArray:
        """The partition keys."""
        return self._arrays()["partition_key"]

    @property
    def arrived_at_micros(self) -> pa.Int64Array:
        """The times at which Kinesis accepted the records, in microseconds since 1970.

        ``to_numpy()`` of it copies nothing.
        """
        return self._arrays()["arrived_at"].view("int64")

    def column(self, name: str) -> pa.Array:
        """Return a column of ``to_arrow()``, such as a field of decoded values.

        Raises KeyError if there is no such column.
        """
        return self.to_arrow().column(name).combine_chunks()

    def to_arrow(self) -> pa.Table:
        """Return the records as an Arrow table, as ``Batch.to_arrow()`` does.

        The table of records that are not decoded shares the memory of the page.
        """
        if self._table is None:
            if isinstance(self.records, RecordColumns):
                self._table = _pyarrow().table(self._arrays())
            else:
                self._table = super().to_arrow()
        return self._table

    def to_polars(self) -> polars.DataFrame:
        """Return the records as a Polars data frame. Polars must be installed."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> Any:
        """Return the records as a pandas data frame. Pandas must be installed."""
        return self.to_arrow().to_pandas()

    def _arrays(self) -> dict[str, pa.Array]:
        if self._columns is None:
            if isinstance(self.records, RecordColumns):
                self._columns = _views(self.records, self.stream, self.shard_id)
            else:
                data = _pyarrow().array([each.data for each in self.records], "binary")
                self._columns = {**metadata_columns(self.records), "data": data}
        return self._columns


def _views(records: RecordColumns, stream: str, shard_id: str) -> dict[str, pa.Array]:
    """Return the columns of a page's records. All but the names share its buffers."""
    arrow, count, of = _pyarrow(), len(records), records.buffers

    def view(type_: Any, *buffers: bytes) -> pa.Array:
        parts = [None, *map(arrow.py_buffer, buffers)]
        return arrow.Array.from_buffers(type_, count, parts, offset=records.first)

    def repeated(text: str) -> pa.Array:
        return arrow.repeat(arrow.scalar(text, arrow.string()), count)

    has_keys = bool(of.key_offsets)
    return {
        "stream": repeated(stream),
        "shard": repeated(shard_id),
        "sequence_number": view(arrow.string(), of.number_offsets, of.numbers),
        "sub_sequence_number": arrow.nulls(count, "int64"),
        "partition_key": view(arrow.string(), of.key_offsets, of.keys)
        if has_keys
        else arrow.nulls(count, "string"),
        "arrived_at": view(arrow.timestamp("us", "UTC"), of.arrival_micros),
        "data": view(arrow.binary(), of.data_offsets, of.data),
    }


def _pyarrow() -> Any:
    import pyarrow

    return pyarrow

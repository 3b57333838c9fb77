"""Records as columns, in Arrow's format, without an object for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

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


class ColumnBatch(Batch[T_co]):
    """Records of one shard, in order, as Arrow arrays.

    ``len(batch)`` is the number of records, and ``batch[first:stop]`` has some of them.
    The arrays are one copy of a part of the page that Kinesis sent. ``records[index]``
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

        The table of records that are not decoded shares the memory of the arrays.
        """
        if self._table is None:
            if isinstance(self.records, PackedRecords):
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
            if isinstance(self.records, PackedRecords):
                self._columns = self._packed_columns(self.records)
            else:
                data = _pyarrow().array([each.data for each in self.records], "binary")
                self._columns = {**metadata_columns(self.records), "data": data}
        return self._columns

    def _packed_columns(self, records: PackedRecords) -> dict[str, pa.Array]:
        arrow, count, found = _pyarrow(), len(records), packed_columns(records)

        def repeated(text: str) -> pa.Array:
            return arrow.repeat(arrow.scalar(text, arrow.string()), count)

        return {
            "stream": repeated(self.stream),
            "shard": repeated(self.shard_id),
            "sequence_number": found.pop("sequence_number"),
            "sub_sequence_number": arrow.nulls(count, "int64"),
            **found,
        }


def packed_columns(records: PackedRecords) -> dict[str, pa.Array]:
    """Return the columns that differ from record to record, as one copy of the page."""
    arrow, count, of = _pyarrow(), len(records), records.columns()

    def view(type_: Any, *buffers: bytes) -> pa.Array:
        parts = [None, *map(arrow.py_buffer, buffers)]
        return arrow.Array.from_buffers(type_, count, parts)

    if of.key_offsets:
        keys = view(arrow.string(), of.key_offsets, of.keys)
    elif of.keys:  # some records have keys
        keys = arrow.array([each.partition_key for each in records], "string")
    else:
        keys = arrow.nulls(count, "string")
    return {
        "sequence_number": view(arrow.string(), of.number_offsets, of.numbers),
        "partition_key": keys,
        "arrived_at": view(arrow.timestamp("us", "UTC"), of.arrival_micros),
        "data": view(arrow.binary(), of.data_offsets, of.data),
    }


def _pyarrow() -> Any:
    import pyarrow

    return pyarrow

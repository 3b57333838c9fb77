"""Batches of records: as a sequence, and as columns in Arrow's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Self

from kinesumer.model.columns import arrays_of, table_of
from kinesumer.model.records import Fence, Record, Source, T_co

if TYPE_CHECKING:
    import polars
    import pyarrow as pa


class Batch(Generic[T_co]):
    """Records of one shard, in order.

    ``millis_behind`` is the shard's lag in milliseconds when the batch was read: how
    far its last record is behind the newest one.
    """

    __slots__ = ("_source", "millis_behind", "records")

    def __init__(
        self, records: Sequence[Record[T_co]], millis_behind: int, source: Source
    ) -> None:
        self.records: Sequence[Record[T_co]] = records
        self.millis_behind: int = millis_behind
        self._source = source

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._source.stream

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self._source.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._source.shard_id

    @property
    def fence(self) -> Fence:
        """The app, the shard, the epoch of its owner, and the last record's position.

        A sink that stores the fence can recognize records that it already has, and
        output of a former owner.
        """
        last = self.records[-1].position if self.records else None
        return self._source.fence.at(last)

    def to_arrow(self) -> pa.Table:
        """Return the records as an Arrow table, which needs the extra ``arrow``.

        The columns are ``stream``, ``shard``, ``sequence_number``,
        ``sub_sequence_number``, ``partition_key``, ``arrived_at`` and ``data``. Decoded
        records have the fields of their values in place of ``data``. If a field has the
        name of another column, the other column's name begins with ``kinesis_``.

        Raises ConfigurationError if pyarrow isn't installed, and errors of pyarrow if
        the values of a field do not fit one column.
        """
        return table_of(self.records, self._arrays(), self.stream, self.shard_id)

    def _arrays(self) -> dict[str, pa.Array]:
        return arrays_of(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        place = f"stream={self.stream!r}, shard_id={self.shard_id!r}"
        if not self.records:
            return f"<Batch: {place}, no records>"
        first, last = self.records[0].position.text, self.records[-1].position.text
        return f"<Batch: {place}, records={len(self)}, {first=}, {last=}>"


class ColumnBatch(Batch[T_co]):
    """Records of one shard, in order, as Arrow arrays.

    ``len(batch)`` is the number of records, and ``batch[first:stop]`` has some of them.
    The arrays are one copy of a part of the page that Kinesis sent. ``records[index]``
    makes a record object, for example to acknowledge it.

    Records in JSON, or in KPL aggregates, are copied once more. Decoded values become
    new arrays.
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
            self._columns = super()._arrays()
        return self._columns

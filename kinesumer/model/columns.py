"""Return records as columns in Arrow's format, without an object for each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kinesumer.model.arrow_table import record_columns, value_table
from kinesumer.model.decoded_records import decoded_values
from kinesumer.model.records import ColumnBuffers, PackedRecords, Record
from kinesumer.model.validation import require_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def arrays_of(records: Sequence[Record[Any]]) -> dict[str, pa.Array]:
    """Return the columns that differ from record to record, in the order of a table.

    Raises ConfigurationError if pyarrow isn't installed.
    """
    require_arrow("to_arrow()")
    if not isinstance(records, PackedRecords):
        return record_columns(records)
    found = packed_columns(records)
    del found["explicit_hash_key"]
    return found


def table_of(
    records: Sequence[Record[Any]],
    arrays: Mapping[str, pa.Array],
    stream: str,
    shard_id: str,
) -> pa.Table:
    """Return a table of the arrays and the shard. Decoded values replace the data.

    Raises errors of pyarrow for values that do not fit a column.
    """
    arrow, count = _pyarrow(), len(records)

    def repeated(text: str) -> pa.Array:
        return arrow.repeat(arrow.scalar(text, arrow.string()), count)

    columns = {"stream": repeated(stream), "shard": repeated(shard_id), **arrays}
    values = decoded_values(records)
    if values is None:
        return arrow.table(columns)
    del columns["data"]
    return value_table(columns, values)


def packed_columns(records: PackedRecords) -> dict[str, pa.Array]:
    """Return the columns that differ from record to record, as one copy of the page."""
    arrow, count, of = _pyarrow(), len(records), records.columns()

    def view(type_: Any, buffers: ColumnBuffers) -> pa.Array:
        if buffers is None:
            return arrow.nulls(count, type_)
        parts = [None if part is None else arrow.py_buffer(part) for part in buffers]
        return arrow.Array.from_buffers(type_, count, parts)

    return {
        "sequence_number": view(arrow.string(), of.sequence_numbers),
        "sub_sequence_number": view(arrow.int64(), of.sub_sequence_numbers),
        "partition_key": view(arrow.string(), of.partition_keys),
        "explicit_hash_key": view(arrow.string(), of.explicit_hash_keys),
        "arrived_at": view(arrow.timestamp("us", "UTC"), of.arrival_micros),
        "data": view(arrow.binary(), of.data),
    }


def _pyarrow() -> Any:
    import pyarrow

    return pyarrow

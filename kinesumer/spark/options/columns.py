"""The columns of a source: which there are, and which of them a query asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "stream": "string",
    "shard_id": "string",
    "sequence_number": "string",
    "sub_sequence_number": "bigint",
    "partition_key": "string",
    "explicit_hash_key": "string",
    "data": "binary",
    "arrived_at": "timestamp",
    "stream_arn": "string",
}
"""Every column and its type. A query that gives a schema may take any of them."""

ON_REQUEST = ("stream_arn",)
"""Those that only a given schema brings."""

DEFAULT_SCHEMA = ", ".join(
    f"{name} {type_}" for name, type_ in COLUMNS.items() if name not in ON_REQUEST
)


def requested(schema: StructType) -> tuple[str, ...]:
    """Return a schema's columns, in its order. Raises ConfigurationError."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ConfigurationError(
                f"the schema's column {field.name!r} isn't one of a Kinesis stream; "
                f"there are: {', '.join(COLUMNS)}"
            )
        given, ours = field.dataType.simpleString(), COLUMNS[field.name]
        if given != ours:
            raise ConfigurationError(
                f"the schema's column {field.name!r} is of type {given}; "
                f"it must be {ours}: decode it in the query"
            )
    return tuple(schema.fieldNames())

"""The columns of a source: which there are, and which of them a query asked for."""

from __future__ import annotations

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

"""Make columns of records, as the compiled decoder does."""

from __future__ import annotations

from collections.abc import Sequence

from kinesumer.model.columns import Buffers, RecordColumns
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SOURCE = Source(Fence(ShardKey(ARN, "shardId-000000000000"), 3), 0, HASH_KEYS - 1)


def offsets(parts: Sequence[bytes]) -> bytes:
    """Return Arrow's offsets of values that follow each other."""
    ends = [sum(map(len, parts[:stop])) for stop in range(len(parts) + 1)]
    return b"".join(end.to_bytes(4, "little") for end in ends)


def packed(records: Sequence[Record]) -> RecordColumns:
    """Return records as columns. Either all of them have a partition key, or none."""
    numbers = [record.sequence_number.encode() for record in records]
    keys = [(record.partition_key or "").encode() for record in records]
    data = [record.data for record in records]
    has_keys = any(record.partition_key is not None for record in records)
    micros = [
        round((record.approximate_arrival_timestamp or 0) * 1e6) for record in records
    ]
    buffers = Buffers(
        offsets(numbers),
        b"".join(numbers),
        offsets(keys) if has_keys else b"",
        b"".join(keys),
        offsets(data),
        b"".join(data),
        b"".join(each.to_bytes(8, "little") for each in micros),
    )
    return RecordColumns(buffers, SOURCE)

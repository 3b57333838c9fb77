"""Skip tests without the compiled decoder of CBOR, write pages, and decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kinesumer.model.records import Record
from kinesumer.wire.cbor import Milliseconds, compiled, encode
from kinesumer.wire.page_records import PageRecords
from kinesumer.wire.records import decode_page

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the decoder wasn't compiled: no C compiler"
)


def decoded(body: bytes) -> Any:
    assert compiled is not None
    return compiled.decode(body)


def record(number: int, data: bytes, **more: object) -> dict[str, object]:
    """Return a record of a page, with an arrival time and a partition key."""
    return {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": Milliseconds(1_732_531_200_789 + number % 1000),
        "Data": data,
        "PartitionKey": f"user-{number % 7}",
        **more,
    }


def page(records: list[Any], **more: object) -> bytes:
    rest = {"NextShardIterator": "AAA=", "MillisBehindLatest": 7, **more}
    return encode({"Records": records, **rest})


def packed_records(records: Sequence[Record]) -> PageRecords:
    """Return records as those of a page in CBOR. They have arrival times."""
    rows = []
    for each in records:
        assert each.approximate_arrival_timestamp is not None
        arrived = Milliseconds(round(1000 * each.approximate_arrival_timestamp))
        row = record(0, each.data, ApproximateArrivalTimestamp=arrived)
        row["SequenceNumber"] = each.sequence_number
        row["PartitionKey"] = each.partition_key
        if each.partition_key is None:
            del row["PartitionKey"]
        rows.append(row)
    found = decode_page(page(rows)).records
    assert isinstance(found, PageRecords)
    return found


def entry(**changes: Any) -> dict[str, Any]:
    """Return a record in the format of Kinesis."""
    return {
        "SequenceNumber": "49660000000000000000000000000000000000000000000000000001",
        "ApproximateArrivalTimestamp": 1.732e9,
        "Data": "aGVsbG8=",
        "PartitionKey": "user-1",
        **changes,
    }


def child(first: str, last: str) -> dict[str, Any]:
    """Return a child shard in the format of Kinesis."""
    return {
        "ShardId": "shardId-000000000001",
        "ParentShards": ["shardId-000000000000"],
        "HashKeyRange": {"StartingHashKey": first, "EndingHashKey": last},
    }

"""Measure how fast KPL aggregates are opened and packed without a client.

    python -m benchmarks.deaggregate

Records of 100 bytes are packed into one shard, and opened from the records of boto3 and
of a Lambda event. The consumer's own path begins with the records of a page.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sized
from datetime import UTC, datetime

from benchmarks.report import Report
from kinesumer import Record, kpl
from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.aggregation import open_in_steps

RECORDS = 200_000
REPEATS = 5
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SHARD = "shardId-000000000000"
SHARDS = [
    {
        "ShardId": SHARD,
        "HashKeyRange": {
            "StartingHashKey": "0",
            "EndingHashKey": str(HASH_KEYS - 1),
        },
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
    }
]
SOURCE = Source(Fence(ShardKey(ARN, SHARD), 1), 0, HASH_KEYS - 1)


def main() -> None:
    """Print records per CPU second, the best of some runs."""
    entries = [
        kpl.PutEntry(Data=b"x" * 100, PartitionKey=f"key-{number % 300}")
        for number in range(RECORDS)
    ]
    packed = kpl.aggregate(entries, SHARDS)
    arrived = datetime.now(UTC)
    of_boto3 = [
        {
            "SequenceNumber": str(number),
            "Data": entry["Data"],
            "PartitionKey": entry["PartitionKey"],
            "ApproximateArrivalTimestamp": arrived,
        }
        for number, entry in enumerate(packed)
    ]
    of_lambda = [
        {
            "eventID": f"{SHARD}:{number}",
            "eventSourceARN": ARN,
            "kinesis": {
                "sequenceNumber": str(number),
                "data": base64.b64encode(entry["Data"]).decode(),
                "partitionKey": entry["PartitionKey"],
                "approximateArrivalTimestamp": arrived.timestamp(),
            },
        }
        for number, entry in enumerate(packed)
    ]

    def consume() -> list[Record]:
        page = [
            Record(str(number), entry["Data"], entry["PartitionKey"], 1.5)
            for number, entry in enumerate(packed)
        ]
        steps = open_in_steps(page, SOURCE)
        return [record for step in steps for record in step.opened.records]

    report = Report(f"records of 100 bytes per CPU second, {len(packed)} aggregates")
    for name, call in (
        ("deaggregate(), records of boto3", lambda: kpl.deaggregate(of_boto3)),
        ("deaggregate(), records of Lambda", lambda: kpl.deaggregate(of_lambda)),
        ("the consumer's own path", consume),
        ("aggregate()", lambda: kpl.aggregate(entries, SHARDS)),
    ):
        report.note(name, f"{RECORDS / _seconds(call):,.0f}")
    report.print()


def _seconds(call: Callable[[], Sized]) -> float:
    """Return the CPU time of the fastest of some calls."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        assert len(call()) > 0
        times.append(time.process_time() - began)
    return min(times)


if __name__ == "__main__":
    main()

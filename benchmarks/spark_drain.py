"""Measure how fast a task reads a backlog under AWS's limits per shard.

    python -m benchmarks.spark_drain [RECORDS BYTES]

One task reads eight shards. It runs outside of Spark, so that only the limits slow it
down.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from dataclasses import replace

from pyspark.sql.types import (
    BinaryType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from benchmarks.backlog_server import BYTES_PER_SECOND, KEY_BYTES, number_of
from benchmarks.http_server import served
from benchmarks.report import Report
from benchmarks.spark_read import SHARDS
from kinesumer.model.positions import BEGINNING, After, Position
from kinesumer.model.streams import Stream
from kinesumer.spark.options.parser import Connection, ReadOptions
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.task_reader import read

ARN = f"arn:aws:kinesis:us-east-1:123456789012:stream/orders-{SHARDS}"
SCHEMA = StructType(
    [
        StructField("sequence_number", StringType()),
        StructField("data", BinaryType()),
        StructField("arrived_at", TimestampType()),
    ]
)


def main() -> None:
    """Print one table."""
    records, size = (int(word) for word in sys.argv[1:] or (60_000, 1_000))
    with served("benchmarks.backlog_server", records, size, "limits") as url:
        os.environ |= {
            "AWS_ENDPOINT_URL_KINESIS": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        ranges = tuple(backlog(records, size))
        stream = Stream(ranges[0].stream_arn)
        options = ReadOptions(
            streams=(stream,), connection=Connection(region="us-east-1")
        )
        # Warm up: a worker imports, opens a client and finds credentials only once.
        first = After(Position(number_of(records - 2)), time.time())
        warm = replace(ranges[0], shard_id="shardId-warm", first=first)
        list(read(Task((stream,), (warm,)), options, SCHEMA))
        began = time.monotonic()
        batches = read(Task((stream,), ranges), options, SCHEMA)
        rows = sum(batch.num_rows for batch in batches)
        seconds = time.monotonic() - began
        throttled = throttles(url)
    assert rows == SHARDS * records
    report = Report(f"{SHARDS} × {records:,} × {size:,} B with AWS's limits")
    share = 100 * rows * (size + KEY_BYTES) / SHARDS / seconds / BYTES_PER_SECOND
    report.note("seconds", f"{seconds:.1f}")
    report.at_least("of what the limits allow", share, 95, " %")
    report.note("throttled", str(throttled))
    report.print()


def backlog(records: int, size: int) -> list[ShardRange]:
    """Return one range for each shard, with all records of the server."""
    last = After(Position(number_of(records - 1)), time.time())
    return [
        ShardRange(
            ARN, f"shardId-{number:012}", BEGINNING, last, 86400.0, records * size
        )
        for number in range(SHARDS)
    ]


def throttles(url: str) -> int:
    """Return the number of reads that the server rejected."""
    request = urllib.request.Request(
        url, b"{}", {"X-Amz-Target": "Kinesis_20131202.Throttled"}
    )
    with urllib.request.urlopen(request) as answer:
        return int(json.load(answer)["Throttled"])


if __name__ == "__main__":
    main()

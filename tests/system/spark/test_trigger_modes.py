"""Test real queries on the embedded AWS: trigger modes, restarts, reshards, limits."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Sink:
    """Keeps the rows of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.collect()
        if batch_id in self.batches:
            assert sorted(rows) == sorted(self.batches[batch_id])
        self.batches[batch_id] = rows

    @property
    def data(self) -> list[bytes]:
        return [bytes(row.data) for rows in self.batches.values() for row in rows]


def writer(
    spark: SparkSession, stream: str, sink: Sink, checkpoint: Path, **options: str
) -> DataStreamWriter:
    frame = (
        spark.readStream.format("kinesumer")
        .options(streams=stream, startingPosition="TRIM_HORIZON", **options)
        .load()
    )
    return frame.writeStream.foreachBatch(sink).option(
        "checkpointLocation", str(checkpoint)
    )


def put(
    aws: EmbeddedAws, stream: str, first: int, last: int, filler: bytes = b""
) -> list[bytes]:
    data = [b"%06d" % i + filler for i in range(first, last)]
    for item in data:
        aws.put(stream, item, item[:6].decode())
    return data


def drain(query: DataStreamWriter) -> None:
    """Run a query with Trigger.AvailableNow to its end."""
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(PATIENCE_SECONDS)


def wait_for(data: list[bytes], sink: Sink, query: StreamingQuery) -> None:
    wait_until(lambda: len(sink.data) == len(data) or not query.isActive)
    assert query.isActive, query.exception()


def test_available_now_drains_all_generations_and_ends(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("drained", shards=2)
    data = put(spark_aws, "drained", 0, 60)
    spark_aws.split("drained", "shardId-000000000000")
    data += put(spark_aws, "drained", 60, 100)
    spark_aws.merge("drained", "shardId-000000000002", "shardId-000000000003")
    data += put(spark_aws, "drained", 100, 120)
    sink = Sink()
    query = writer(spark, "drained", sink, tmp_path, maxRowsPerBatch="40")
    drain(query)
    assert sorted(sink.data) == data
    assert max(len(rows) for rows in sink.batches.values()) <= 40
    # Without new records, a second run computes no batch.
    done = len(sink.batches)
    drain(query)
    assert len(sink.batches) == done


def test_one_batch_of_trigger_once_holds_all_that_parents_first_allows(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("once", shards=2)
    sink = Sink()
    data = []
    for first in (0, 100):
        data += put(spark_aws, "once", first, first + 100)
        query = writer(spark, "once", sink, tmp_path).trigger(once=True)
        assert query.start().awaitTermination(PATIENCE_SECONDS)
        assert sorted(sink.data) == data


def test_a_running_query_follows_reshards_runs_no_empty_batch_and_shows_its_lag(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    arn = spark_aws.create_stream("followed", shards=2)
    data = put(spark_aws, "followed", 0, 20)
    sink = Sink()
    start = writer(spark, "followed", sink, tmp_path)
    query = start.trigger(processingTime="0 seconds").start()
    try:
        wait_for(data, sink, query)
        spark_aws.split("followed", "shardId-000000000001")
        data += put(spark_aws, "followed", 20, 40)
        wait_for(data, sink, query)
        quiet = len(sink.batches)
        time.sleep(1.5)  # three triggers
        assert len(sink.batches) <= quiet + 1  # one for the end of the split shard
        progress = query.lastProgress
        assert progress is not None
        shown = progress["sources"][0]["latestOffset"]
        shown = json.loads(shown) if isinstance(shown, str) else shown
        assert shown["streams"][arn]["behind_ms"] == 0
        assert shown["data_losses"] == 0
    finally:
        query.stop()
    data += put(spark_aws, "followed", 40, 60)
    drain(start)
    assert sorted(sink.data) == data


def test_a_bounded_read_takes_what_lies_between_two_times(
    spark: SparkSession, spark_aws: EmbeddedAws
) -> None:
    spark_aws.create_stream("bounded", shards=1)
    data = put(spark_aws, "bounded", 0, 20)
    times = []
    for first in (20, 60):
        times.append(time.time() + 0.01)
        time.sleep(0.02)
        data += put(spark_aws, "bounded", first, first + 20)
        if first == 20:
            spark_aws.split("bounded", "shardId-000000000000")
            data += put(spark_aws, "bounded", 40, 60)
    begin, end = (
        f"AT_TIMESTAMP {datetime.fromtimestamp(at, UTC).isoformat()}" for at in times
    )

    def read(**options: str) -> list[bytes]:
        source = spark.read.format("kinesumer").options(streams="bounded", **options)
        return sorted(bytes(row.data) for row in source.load().collect())

    assert read() == data
    assert read(startingPosition=begin, endingPosition=end) == data[20:60]
    # LATEST begins at the Date of an answer, which Kinesis cuts to whole seconds.
    time.sleep(max(0.0, times[1] + 1.1 - time.time()))
    assert read(startingPosition="LATEST") == []


def test_large_batches_are_read_by_subscriptions_of_one_consumer(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("pushed", shards=2)
    filler = b"x" * 40_000
    data = put(spark_aws, "pushed", 0, 60, filler)
    spark_aws.split("pushed", "shardId-000000000000")
    data += put(spark_aws, "pushed", 60, 120, filler)
    sink = Sink()
    drain(writer(spark, "pushed", sink, tmp_path, fanOut="billing"))
    assert sorted(sink.data) == data
    count = spark_aws.journal.count
    assert count("kinesis", "RegisterStreamConsumer") == 1
    assert count("kinesis", "SubscribeToShard") >= 2

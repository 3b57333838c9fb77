"""A real query on the embedded AWS: every trigger mode, restarts, reshards, limits."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kinesumer.local import EmbeddedAws

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
        """All data read so far."""
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


def put(aws: EmbeddedAws, stream: str, first: int, last: int) -> list[bytes]:
    data = [f"{i:06}".encode() for i in range(first, last)]
    for item in data:
        aws.put(stream, item, item.decode())
    return data


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_available_now_drains_all_generations_and_ends(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("drained", shards=2)
    data = put(spark_aws, "drained", 0, 200)
    spark_aws.split("drained", "shardId-000000000000")
    data += put(spark_aws, "drained", 200, 400)
    spark_aws.merge("drained", "shardId-000000000002", "shardId-000000000003")
    data += put(spark_aws, "drained", 400, 500)
    sink = Sink()
    query = writer(spark, "drained", sink, tmp_path, maxRowsPerBatch="100").trigger(
        availableNow=True
    )
    assert query.start().awaitTermination(120)
    assert sorted(sink.data) == data
    assert max(len(rows) for rows in sink.batches.values()) <= 100
    # Nothing is new: a second run computes no batch.
    done = len(sink.batches)
    assert query.start().awaitTermination(60)
    assert len(sink.batches) == done


def test_one_batch_of_trigger_once_holds_all_that_parents_first_allows(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("once", shards=2)
    data = put(spark_aws, "once", 0, 500)
    sink = Sink()
    for rows in (500, 300):
        query = writer(spark, "once", sink, tmp_path).trigger(once=True)
        assert query.start().awaitTermination(60)
        assert len(sink.data) == len(data)
        data += put(spark_aws, "once", 500, 500 + rows)


def test_a_running_query_follows_reshards_runs_no_empty_batch_and_shows_its_lag(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    arn = spark_aws.create_stream("followed", shards=2)
    data = put(spark_aws, "followed", 0, 50)
    sink = Sink()
    start = writer(spark, "followed", sink, tmp_path).trigger(
        processingTime="0 seconds"
    )
    query = start.start()
    try:
        until(lambda: len(sink.data) == len(data), query)
        spark_aws.split("followed", "shardId-000000000001")
        data += put(spark_aws, "followed", 50, 120)
        until(lambda: len(sink.data) == len(data), query)
        quiet = len(sink.batches)
        time.sleep(3)
        assert len(sink.batches) <= quiet + 1  # the split shard's end
        progress = query.lastProgress
        assert progress is not None
        shown = progress["sources"][0]["latestOffset"]
        shown = json.loads(shown) if isinstance(shown, str) else shown
        assert shown["streams"][arn]["behind_ms"] == 0
        assert shown["data_losses"] == 0
    finally:
        query.stop()
    data += put(spark_aws, "followed", 120, 200)
    query = start.start()
    try:
        until(lambda: len(sink.data) >= len(data), query)
    finally:
        query.stop()
    assert sorted(sink.data) == data


def test_a_bounded_read_takes_what_lies_between_two_times(
    spark: SparkSession, spark_aws: EmbeddedAws
) -> None:
    spark_aws.create_stream("bounded", shards=1)
    put(spark_aws, "bounded", 0, 150)
    time.sleep(0.01)
    begin = time.time()
    time.sleep(0.01)
    wanted = put(spark_aws, "bounded", 150, 400)
    spark_aws.split("bounded", "shardId-000000000000")
    wanted += put(spark_aws, "bounded", 400, 600)
    time.sleep(0.01)
    end = time.time()
    time.sleep(0.01)
    put(spark_aws, "bounded", 600, 700)

    def read(**options: str) -> list[bytes]:
        source = spark.read.format("kinesumer").options(streams="bounded", **options)
        return sorted(bytes(row.data) for row in source.load().collect())

    def moment(seconds: float) -> str:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return f"AT_TIMESTAMP {text}.{int(seconds % 1 * 1e6):06}Z"

    assert read() == [f"{i:06}".encode() for i in range(700)]
    assert read(startingPosition=moment(begin), endingPosition=moment(end)) == wanted
    assert read(startingPosition="LATEST") == []


def test_a_stream_made_anew_fails_the_query_unless_loss_is_allowed(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    spark_aws.create_stream("anew", shards=1)
    put(spark_aws, "anew", 0, 10)
    sink = Sink()
    now = writer(spark, "anew", sink, tmp_path).trigger(availableNow=True)
    assert now.start().awaitTermination(60)
    spark_aws.delete_stream("anew")
    spark_aws.create_stream("anew", shards=2)
    data = put(spark_aws, "anew", 10, 20)
    query = now.start()
    with pytest.raises(Exception, match=r"DataLossError.*recreated.*failOnDataLoss"):
        query.awaitTermination(60)
    allowed = writer(spark, "anew", sink, tmp_path, failOnDataLoss="false")
    query = allowed.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert sorted(sink.data)[10:] == data

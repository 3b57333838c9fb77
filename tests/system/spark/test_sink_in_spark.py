"""Test the sink in Spark with batches and streams, and its error messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kinesumer.testing import EmbeddedAws

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.spark]

DATA = "CAST(id AS STRING) AS data"
ROWS = (DATA, "CONCAT('key-', id % 20) AS partition_key")


def rows_of(spark: SparkSession, stream: str) -> list[tuple[str, str]]:
    read: DataFrame = spark.read.format("kinesumer").option("streams", stream).load()
    rows = read.selectExpr("CAST(data AS STRING) AS data", "partition_key").collect()
    return sorted((row.data, row.partition_key) for row in rows)


def test_a_query_is_put_and_a_stream_is_copied_by_changing_nothing(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    for stream in ("sink-first", "sink-copy"):
        spark_aws.create_stream(stream, shards=2)
    (
        spark.range(100)
        .selectExpr(*ROWS)
        .repartition(2)
        .write.format("kinesumer")
        .mode("append")
        .options(streams="sink-first", ordered="true", aggregate="true")
        .save()
    )
    expected = sorted((str(n), f"key-{n % 20}") for n in range(100))
    assert rows_of(spark, "sink-first") == expected

    query = (
        spark.readStream.format("kinesumer")
        .options(streams="sink-first", startingPosition="TRIM_HORIZON")
        .load()
        .writeStream.format("kinesumer")
        .options(streams="sink-copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert rows_of(spark, "sink-copy") == expected


def test_the_error_of_a_write_names_the_row(
    spark: SparkSession, spark_aws: EmbeddedAws
) -> None:
    spark_aws.create_stream("sink-refused")
    rows = spark.range(3).selectExpr(DATA, "'' AS partition_key")
    writer = rows.write.format("kinesumer").mode("append")
    with pytest.raises(PySparkException, match="partition key ''"):
        writer.option("streams", "sink-refused").save()


def test_the_error_of_a_read_names_the_action_and_the_stream(
    spark: SparkSession, spark_aws: EmbeddedAws
) -> None:
    arn = spark_aws.create_stream("denied")
    spark_aws.put("denied", b"one")
    spark_aws.deny("kinesis:GetRecords", arn)
    message = f"AccessDeniedError: access denied: kinesis:GetRecords on {arn}"
    try:
        with pytest.raises(PySparkException, match=message):
            spark.read.format("kinesumer").option("streams", arn).load().count()
    finally:
        spark_aws.allow()

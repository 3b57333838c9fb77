"""The sink as Spark runs it: batches, streams, and what a user is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesumer.local import EmbeddedAws

pytestmark = [pytest.mark.spark]

ROWS = "CAST(id AS STRING) AS data, CONCAT('key-', id % 20) AS partition_key"


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
        spark.range(500)
        .selectExpr(*ROWS.split(", ", 1))
        .repartition(2)
        .write.format("kinesumer")
        .mode("append")
        .options(streams="sink-first", ordered="true", aggregate="true")
        .save()
    )
    expected = sorted((str(n), f"key-{n % 20}") for n in range(500))
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


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS.replace("'key-'", "''").replace("id % 20", "''"), {}, "partition key ''"),
        (f"{ROWS}, id AS extra", {}, "column extra has no place"),
        (ROWS, {"streams": "a,b"}, "one stream, not into a, b"),
        (ROWS, {"awsAccessKey": "AKIA"}, "option awsaccesskey: no credentials"),
        (ROWS, {"ordred": "true"}, "did you mean ordered"),
    ],
)
def test_what_cant_be_put_is_refused_by_its_name(
    spark: SparkSession,
    spark_aws: EmbeddedAws,
    rows: str,
    options: dict[str, str],
    message: str,
) -> None:
    if not options and "extra" not in rows:
        spark_aws.create_stream("sink-refused")
    query = spark.range(3).selectExpr(*[part.strip() for part in _split(rows)])
    writer = query.write.format("kinesumer").mode("append")
    with pytest.raises(PySparkException, match=message):
        writer.options(**{"streams": "sink-refused", **options}).save()


def _split(rows: str) -> list[str]:
    """Split a list of expressions at the commas outside of parentheses."""
    parts, depth = [""], 0
    for character in rows:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts

"""Test queries under settings and SQL of a session, and with keys that are replaced."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kinesumer.testing import EmbeddedAws, background
from tests.support.aws_keys import KeyFile
from tests.system.spark.processes import Program, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETTINGS = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pyspark.binaryAsBytes": "false",
    "spark.sql.session.collation.default": "UTF8_LCASE",
}
PUSHES = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def stream(spark_aws: EmbeddedAws, request: pytest.FixtureRequest) -> str:
    """A stream of its own with five records."""
    name: str = request.node.name.replace("_", "-")
    spark_aws.create_stream(name, 1)
    for i in range(5):
        spark_aws.put(name, b"x", f"key-{i}")
    return name


def reading(spark: SparkSession, stream: str) -> DataFrame:
    return spark.read.format("kinesumer").option("streams", stream).load()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_a_sessions_settings_change_no_row(spark: SparkSession, stream: str) -> None:
    def rows() -> list[tuple[object, ...]]:
        found = reading(spark, stream)
        assert dict(found.dtypes)["arrived_at"] == "timestamp"
        columns = found.selectExpr("partition_key", "unix_micros(arrived_at)")
        return sorted(tuple(row) for row in columns.collect())

    expected = rows()
    assert len(expected) == 5
    for name, value in SETTINGS.items():
        with setting(spark, name, value):
            assert rows() == expected, name


def test_pushed_filters_change_no_row(spark: SparkSession, stream: str) -> None:
    shard = "shardId-000000000000"
    conditions = {
        f"stream = '{stream}' AND shard_id IN ('{shard}', 'other')": 5,
        "shard_id = 'other'": 0,
        "stream != 'other' AND partition_key = 'key-1'": 1,
        "arrived_at > current_timestamp() - INTERVAL 1 HOUR": 5,
        "arrived_at < timestamp'2020-01-01'": 0,
    }
    for is_on in ("false", "true"):
        with (
            setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"),
            setting(spark, PUSHES, is_on),
        ):
            rows = {c: reading(spark, stream).where(c).count() for c in conditions}
            read = reading(spark, stream).where(f"shard_id = '{shard}'")
            is_left_to_spark = "(shard_id#" in plan_of(read)
        assert rows == conditions
        assert is_left_to_spark == (is_on == "false")
    with setting(spark, PUSHES, "true"):
        read = reading(spark, stream).where(f"shard_id = '{shard}'")
        assert read.rdd.getNumPartitions() == 1


def plan_of(frame: DataFrame) -> str:
    """Return Spark's plan of a query."""
    executed = frame._jdf.queryExecution().executedPlan()
    return str(executed.toString())


def test_sql_reads_a_stream_as_a_view_and_as_a_table(
    spark: SparkSession, stream: str
) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW settings_view USING kinesumer "
        f"OPTIONS (streams '{stream}')"
    )
    assert spark.table("settings_view").count() == 5
    spark.sql(
        "CREATE TABLE settings_table USING kinesumer "
        f"OPTIONS (streams '{stream}') COMMENT 'c' TBLPROPERTIES ('a' = 'b')"
    )
    try:
        query = f"SELECT * FROM settings_table WITH (streams = '{stream}')"
        assert spark.sql(query).count() == 5
        with pytest.raises(PySparkException, match="does not pass the options of"):
            spark.table("settings_table").count()
    finally:
        spark.sql("DROP TABLE settings_table")


QUERY = (sys.executable, "-m", "tests.system.spark.copying_query")


def copied(aws: EmbeddedAws) -> int:
    """Return how many records the stream ``copy`` has, however they were put."""
    state = aws._state.kinesis
    stream = next(s for s in state.streams.values() if s.name == "copy")
    return sum(len(shard.log) for shard in stream.shards.values())


def copy_twenty(aws: EmbeddedAws, query: Program) -> None:
    """Put twenty records, and wait until the query has copied them."""
    expected = copied(aws) + 20
    for place in range(20):
        aws.put("orders", b"x", f"key-{place}")
    query.wait_until(lambda: copied(aws) >= expected, "a copy", 120)


def test_driver_tasks_and_sink_take_the_new_keys(tmp_path: Path) -> None:
    with background(EmbeddedAws()) as aws:
        for name in ("orders", "copy"):
            aws.create_stream(name, shards=2)
        file = KeyFile(aws, tmp_path / "credentials")
        environment = spark_environment(file.environment(), tmp_path)
        command = (*QUERY, str(tmp_path / "checkpoint"))
        with Program(command, environment, tmp_path / "query.log") as query:
            copy_twenty(aws, query)
            # 8 s are longer than the longest pause between two looks.
            for seconds in (0.0, 8.0, 0.0):
                file.rotate(seconds)
                copy_twenty(aws, query)
            assert query.is_running

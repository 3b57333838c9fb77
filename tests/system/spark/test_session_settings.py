"""Test what the settings and the SQL statements of a session change in the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kinesumer.testing import EmbeddedAws

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
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


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

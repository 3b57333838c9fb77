"""Test that rows are in Delta exactly once, with the oldest supported PySpark.

scripts/test runs this test in a separate environment with Delta's jars.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from kinesumer.testing import EmbeddedAws
from tests.system.spark.processes import local_session, set_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytest.importorskip("delta", reason="only in the environment of Delta: scripts/test")

JARS = Path(sys.prefix, "jars")
pytestmark = [pytest.mark.spark]


@pytest.fixture
def session(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    set_environment(monkeypatch)
    started = local_session(
        **{
            "databricks.delta.snapshotPartitions": "2",
            "sql.warehouse.dir": str(tmp_path / "warehouse"),
            "jars": ",".join(map(str, sorted(JARS.glob("*.jar")))),
            "sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "sql.catalog.spark_catalog": (
                "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            ),
        }
    )
    yield started
    started.stop()


def test_this_is_the_oldest_pyspark_that_is_supported() -> None:
    assert pyspark.__version__.startswith("4.2.")


def test_each_record_is_once_in_a_delta_table_across_restarts(
    session: SparkSession, kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def put(first: int, last: int) -> None:
        for number in range(first, last):
            kinesumer_aws.put("orders", str(number).encode(), f"key-{number}")

    def run() -> None:
        read: DataFrame = (
            session.readStream.format("kinesumer")
            .options(streams="orders", startingPosition="TRIM_HORIZON")
            .load()
        )
        query = (
            read.selectExpr("CAST(data AS STRING) AS data", "shard_id")
            .writeStream.format("delta")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(table))
        )
        query.awaitTermination()

    def found() -> list[int]:
        rows = session.read.format("delta").load(str(table)).collect()
        return sorted(int(row.data) for row in rows)

    put(0, 300)
    run()
    assert found() == list(range(300))
    put(300, 400)
    kinesumer_aws.split("orders", "shardId-000000000000")
    put(400, 500)
    run()
    assert found() == list(range(500))

    # Simulate a driver that died after Delta's commit and before Spark's commit. Then
    # the last batch is computed and written again, and Delta recognises the repeat.
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in commits.glob(f"*{last}*"):
        if file.name in (str(last), f".{last}.crc"):
            file.unlink()
    put(500, 600)
    run()
    assert found() == list(range(600))

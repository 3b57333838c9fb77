"""Exactly once into Delta, with the oldest PySpark that is supported.

Runs in an environment of its own, which scripts/test makes: Delta's jars are there.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kinesumer.local import EmbeddedAws

pytest.importorskip("delta", reason="only in the environment of Delta: scripts/test")

JARS = Path(sys.prefix, "jars")
pytestmark = [pytest.mark.spark]


@pytest.fixture
def session(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    """A session with Delta; a JVM keeps the environment that it is started with."""
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, about pandas
        import pyspark.testing.utils  # noqa: F401
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.jars": ",".join(map(str, sorted(JARS.glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": (
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        ),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
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

    # As if the driver had died after Delta's commit and before Spark's own: the last
    # batch is computed and written again, and Delta knows it.
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in commits.glob(f"*{last}*"):
        if file.name in (str(last), f".{last}.crc"):
            file.unlink()
    put(500, 600)
    run()
    assert found() == list(range(600))

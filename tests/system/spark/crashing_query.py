"""Run two exactly-once queries on the same streams, in a driver that tests kill.

One query writes to the file sink. The other query uses ``foreachBatch`` with two
actions: one writes the rows, the other counts them. Each action reads the batch again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.system.spark.processes import Program

FILES, BATCHES, COUNTS = "files", "batches", "counts"
SCHEMA = (
    "stream_arn string, shard_id string, sequence_number string, "
    "sub_sequence_number bigint, data binary"
)
STARTED = "the queries have started"


def start(
    environment: dict[str, str],
    directory: Path,
    log: str = "driver.log",
    *,
    master: str = "local[2]",
    conf: dict[str, str] | None = None,
    batches: bool = False,
    **options: str,
) -> Program:
    """Start a driver. ``batches`` adds the query with ``foreachBatch``."""
    setting = {
        "master": master,
        "directory": str(directory),
        "conf": conf or {},
        "batches": batches,
        "options": {"streams": "orders", **options},
    }
    command = [sys.executable, "-m", __name__, json.dumps(setting)]
    return Program(command, environment, directory / log)


def main() -> None:
    setting = json.loads(sys.argv[1])
    directory = Path(setting["directory"])
    spark = _session(setting)
    files = _rows(spark, setting["options"]).writeStream.format("parquet")
    files = files.option("path", str(directory / FILES))
    files.option("checkpointLocation", str(directory / "checkpoint-files")).start()
    if setting["batches"]:
        _rows(spark, setting["options"]).writeStream.foreachBatch(
            lambda batch, number: write(batch, number, directory)
        ).option("checkpointLocation", str(directory / "checkpoint-batches")).start()
    print(STARTED, flush=True)
    spark.streams.awaitAnyTermination()


def write(batch: DataFrame, number: int, directory: Path) -> None:
    """Write a batch over the files of an earlier attempt, and count its rows."""
    place = directory / BATCHES / str(number)
    batch.write.mode("overwrite").parquet(str(place))
    order = f.crc32(f.concat("shard_id", "sequence_number", "data"))
    found = batch.agg(f.count("*"), f.sum(order)).first()
    assert found is not None
    count = directory / COUNTS / f"{number}.json"
    count.parent.mkdir(exist_ok=True)
    unfinished = count.with_suffix(".new")
    unfinished.write_text(json.dumps([found[0], found[1] or 0]))
    os.replace(unfinished, count)


def _rows(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the rows of the streams, for one query only.

    Queries that share the plan of one DataFrame fail more often.
    """
    stream = spark.readStream.format("kinesumer").schema(SCHEMA)
    return stream.options(startingPosition="TRIM_HORIZON", **options).load()


def _session(setting: dict[str, Any]) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        # The log must be kept, because it tells which batch wrote a file.
        "spark.sql.streaming.fileSink.log.cleanupDelay": "3600000",
        # The test kills many tasks, and these failures must not end a query.
        "spark.task.maxFailures": "20",
        "spark.excludeOnFailure.enabled": "false",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "10ms",
        **setting["conf"],
    }
    builder = SparkSession.builder.master(setting["master"])
    return builder.config(map=settings).getOrCreate()


if __name__ == "__main__":
    main()

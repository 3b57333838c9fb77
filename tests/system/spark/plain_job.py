"""A job as users submit it: it registers nothing, and imports nothing of kinesumer.

Arguments: where to write, and how to connect (``submit`` or Spark Connect's address).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(directory: Path, how: str) -> None:
    """Read the stream in both ways, and copy it."""
    builder = (
        SparkSession.builder if how == "submit" else SparkSession.builder.remote(how)
    )
    spark = builder.getOrCreate()
    options = {"streams": "orders", "startingPosition": "TRIM_HORIZON"}
    batch = spark.read.format("kinesumer").options(**options).load()
    rows = batch.select("partition_key", "data")
    rows.write.format("kinesumer").mode("append").option("streams", "copies").save()
    streamed = spark.readStream.format("kinesumer").options(**options).load()
    query = (
        streamed.select("data")
        .writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(directory / "rows")).collect()
    data = {
        "batch": sorted(row.data.decode() for row in rows.collect()),
        "stream": sorted(row.data.decode() for row in found),
        "progress": query.lastProgress is not None,
    }
    (directory / "found.json").write_text(json.dumps(data))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

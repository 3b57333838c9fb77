"""Copy a stream, in a job that neither imports kinesumer nor registers its format.

Arguments: where to write, the stream to copy, and the address of Spark Connect if the
job uses that. The copy's name ends in -copy.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(directory: str, stream: str, remote: str | None = None) -> None:
    builder = SparkSession.builder
    spark = (builder if remote is None else builder.remote(remote)).getOrCreate()
    rows = spark.read.format("kinesumer").option("streams", stream).load()
    copy = rows.select("partition_key", "data").write.format("kinesumer")
    copy.mode("append").option("streams", f"{stream}-copy").save()
    query = (
        spark.readStream.format("kinesumer")
        .options(streams=f"{stream}-copy", startingPosition="TRIM_HORIZON")
        .load()
        .select("data")
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.lastProgress is not None
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Back to Kinesis: each payment that isn't what the order costs."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

dp.create_sink(
    "alerts_stream",
    "kinesumer",
    {"streams": os.environ.get("ALERTS_STREAM", "alerts")},
)


@dp.append_flow(target="alerts_stream")
def alerts() -> DataFrame:
    alert = f.to_json(f.struct("order_id", "payment_id", "total", "amount"))
    return (
        spark.readStream.table("paid_orders")
        .where("amount <> total")
        .select(
            f.col("order_id").alias("partition_key"), alert.cast("binary").alias("data")
        )
    )

"""From Kinesis to clean tables: each event once, parsed, and none that is late.

Watermarks of tables that the pipeline makes itself are set in SQL (paid_orders.sql):
Python's ``withWatermark`` would look for such a table before it is there.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kinesumer import Stream
from kinesumer.spark import streams_option

spark = SparkSession.active()

ORDERS = os.environ.get("ORDERS_STREAM", "orders")
PAYMENTS = Stream(
    os.environ["PAYMENTS_STREAM_ARN"],
    role_arn=os.environ["PAYMENTS_ROLE_ARN"],
    external_id=os.environ["PAYMENTS_EXTERNAL_ID"],
)
ORDER = "order_id string, placed_at timestamp, country string, total decimal(12, 2)"
PAYMENT = "payment_id string, order_id string, paid_at timestamp, amount decimal(12, 2)"
LATENESS = "10 minutes"
"""How far behind the newest event one may be before it counts as late."""


def records(*streams: str | Stream) -> DataFrame:
    """Return what the streams hold, as text."""
    return (
        spark.readStream.format("kinesumer")
        .option("streams", streams_option(*streams))
        .option("startingPosition", "TRIM_HORIZON")
        .load()
        .withColumn("body", f.decode("data", "UTF-8"))
        .drop("data")
    )


def parsed(stream: str | Stream, schema: str, id_: str, time: str) -> DataFrame:
    """Return a stream's events that can be read, each id once, without late ones."""
    return (
        records(stream)
        .select(f.from_json("body", schema).alias("event"))
        .select("event.*")
        .where(f.col(id_).isNotNull() & f.col(time).isNotNull())
        .withWatermark(time, LATENESS)
        .dropDuplicatesWithinWatermark([id_])
    )


@dp.table(comment="Orders, each once")
def orders() -> DataFrame:
    return parsed(ORDERS, ORDER, "order_id", "placed_at")


@dp.table(comment="Payments, each once; their stream is in another account")
def payments() -> DataFrame:
    return parsed(PAYMENTS, PAYMENT, "payment_id", "paid_at")


@dp.table(comment="Records that can't be read: to be looked at, not to be lost")
def unreadable() -> DataFrame:
    order = f.from_json("body", ORDER)
    payment = f.from_json("body", PAYMENT)
    is_order = order.order_id.isNotNull() & order.placed_at.isNotNull()
    is_payment = payment.payment_id.isNotNull() & payment.paid_at.isNotNull()
    return records(ORDERS, PAYMENTS).where(~(is_order | is_payment))

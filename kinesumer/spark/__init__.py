"""Amazon Kinesis for PySpark: ``format("kinesumer")``.

Importing it finds a Java for PySpark, or says how to get one, and lets Spark's workers
use this interpreter. The format itself needs no import: Spark finds it by itself.
"""

from kinesumer.spark.jvm import prepare
from kinesumer.spark.stream_list import streams_option

__all__ = ["streams_option"]

prepare()

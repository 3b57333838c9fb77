"""Amazon Kinesis for PySpark: ``format("kinesumer")``.

Importing it finds a Java for PySpark, or says how to get one, and lets Spark's workers
use this interpreter. The format itself needs no import: Spark finds it by itself.
"""

from kinesumer.spark.options.stream_list import streams_option
from kinesumer.spark.runtime.jvm import prepare

__all__ = ["streams_option"]

prepare()

"""Amazon Kinesis for PySpark: ``format("kinesumer")``.

Spark finds the format even if this package isn't imported. Importing it sets the
environment so that PySpark finds a Java, and so that Spark's workers use this Python
interpreter. If there is no Java, a warning says how to get one.
"""

from kinesumer.spark.jvm import prepare
from kinesumer.spark.options.streams import streams_option

__all__ = ["streams_option"]

prepare()

"""The name under which Spark finds ``format("kinesumer")`` without registration.

Spark imports every top-level module named ``pyspark_…`` and takes its DefaultSource.
"""

from kinesumer.spark.source import KinesumerDataSource as DefaultSource

__all__ = ["DefaultSource"]

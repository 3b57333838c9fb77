"""``spark.read``: what lies between two places, planned once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from kinesumer.errors import ConfigurationError
from kinesumer.spark.options.parser import FromStore
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.runtime.event_loop import background

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from kinesumer.spark.options.parser import ReadOptions


class BatchReader(DataSourceReader):
    """Reads a bounded piece of the streams. Tasks use a copy, which only reads."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: their bounds are fixed from now on."""
        return [*background().run(self._planned())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return a task's rows."""
        from kinesumer.spark.reading.task_reader import read

        # Where there is nothing to read Spark makes up a partition of its own.
        if not isinstance(partition, Task):
            return iter(())
        return read(partition, self._options, self._schema)

    async def _planned(self) -> list[Task]:
        # Not at the top: tasks need no driver.
        from kinesumer.spark.planning.driver import Driver
        from kinesumer.spark.runtime.sources import sources

        options = self._options
        if isinstance(options.starting, FromStore):
            raise ConfigurationError(
                "option startingPosition=checkpoint is for readStream: a bounded read "
                "doesn't take part in a group"
            )
        driver = Driver(options, sources(options.connection).open)
        return await driver.bounded()

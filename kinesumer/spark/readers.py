"""The readers of ``spark.readStream`` and ``spark.read``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kinesumer.core.batch_ranges import Limits
from kinesumer.errors import ConfigurationError
from kinesumer.spark.filters import ANY_ROW, FilterTaker, PushedFilters, push
from kinesumer.spark.options.parser import FromCheckpoint, ReadOptions
from kinesumer.spark.options.table import requested
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.process import (
    collect_garbage_rarely,
    run_on_loop,
    stop_on_sigterm,
    warn_of_other_loads,
)
from kinesumer.wire.query_offsets import from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kinesumer.spark.mirror import Mirror
    from kinesumer.spark.planning.driver import Driver

# Means that there is no limit. ReadAllAvailable can't be used for this, since Spark
# passes it for the only batch of Trigger.Once.
NO_LIMIT = ReadMaxRows((1 << 63) - 1)


def new_driver(options: ReadOptions) -> Driver:
    """Return a driver that plans the batches of this query on AWS."""
    # Imported late: Spark also loads readers in processes that don't plan batches.
    from kinesumer.spark.planning.driver import Driver
    from kinesumer.spark.process_cache import sources

    shared = sources(options.connection)
    driver = Driver(options, shared.open)
    driver.find_consumer = shared.find_consumer
    return driver


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams batch by batch. Tasks call ``read`` on a pickled copy."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        new_driver: Callable[[ReadOptions], Driver] = new_driver,
    ) -> None:
        requested(schema)  # refuse a wrong schema on the driver, not in each task
        self._options, self._schema = options, schema
        self._new_driver = new_driver
        self._driver: Driver | None = None
        self._mirror: Mirror | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return an empty offset.

        Where the first batch begins is stored in the ``origin`` of its end offset.
        """
        # Spark calls this twice and logs neither answer. So both must be the same.
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set."""
        options = self._options
        if options.max_rows_per_batch is not None:
            return ReadMaxRows(options.max_rows_per_batch)
        if options.max_bytes_per_batch is not None:
            return ReadMaxBytes(options.max_bytes_per_batch)
        return NO_LIMIT

    def prepareForTriggerAvailableNow(self) -> None:
        """Choose where the query ends."""
        run_on_loop(self._opened().fix_targets())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` itself if nothing is new."""
        driver = self._opened()
        # The batch that ended at ``start`` is complete. Spark calls commit() later, or
        # not at all if no batch follows.
        self.commit(start)
        committed = from_json(start)
        if isinstance(limit, ReadAllAvailable):  # the only batch of Trigger.Once
            work = driver.all_there_is(committed)
        else:
            work = driver.latest(committed, self._limits(limit))
        end = run_on_loop(work)
        return start if end is None else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the lag of the streams, for the query's progress."""
        return None if self._driver is None else self._driver.report()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> list[InputPartition]:
        """Return a batch's tasks. After a restart, this may be Spark's first call."""
        driver = self._opened()
        # The two offsets must suffice: Spark's log keeps nothing else of a batch.
        work = driver.partitions(from_json(start), from_json(end))
        return [*run_on_loop(work)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return a task's rows."""
        # Imported late, since only tasks need this slow import.
        from kinesumer.spark.task_reader import read

        assert isinstance(partition, Task)
        return read(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """If the query has an app, store the end of a completed batch for its group."""
        if self._mirror is not None and (offset := from_json(end)):
            self._mirror.committed(offset)

    def stop(self) -> None:
        """Leave the group. Spark ends this process right afterwards."""
        if self._mirror is not None:
            mirror, self._mirror = self._mirror, None
            run_on_loop(mirror.stop())

    def _opened(self) -> Driver:
        """Return the driver. The first call opens it."""
        if self._driver is None:
            if self._options.app is not None:  # otherwise stop() has nothing to do
                stop_on_sigterm()
            collect_garbage_rarely()
            warn_of_other_loads(stream.name for stream in self._options.streams)
            self._driver = run_on_loop(self._open())
        return self._driver

    async def _open(self) -> Driver:
        options = self._options
        driver = self._new_driver(options)
        if options.app is not None:
            from kinesumer.spark.mirror import open_mirror

            self._mirror = await open_mirror(options)
            driver.stored = self._mirror.stored
            driver.apps = self._mirror.apps
        return driver

    def _limits(self, limit: ReadLimit) -> Limits:
        """Return Spark's limit together with the limits of the options."""
        options = self._options
        if isinstance(limit, ReadMaxBytes):
            return Limits(options.max_rows_per_batch, limit.max_bytes)
        if isinstance(limit, ReadMaxRows) and limit != NO_LIMIT:
            return Limits(limit.max_rows, options.max_bytes_per_batch)
        return Limits()


class BatchReader(DataSourceReader):
    """Reads a bounded part of the streams. Tasks call ``read`` on a pickled copy."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        requested(schema)
        self._options, self._schema = options, schema
        self._pushed: PushedFilters = ANY_ROW

    def _take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Return the filters that Spark has to apply. Read only what others permit."""
        self._pushed, rest = push(filters)
        return rest

    pushFilters = FilterTaker(_take_filters)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the read. They don't read records that arrive later."""
        return [*run_on_loop(self._planned())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return a task's rows."""
        from kinesumer.spark.task_reader import read

        # If there are no tasks, Spark starts one itself, with a partition of its own.
        if not isinstance(partition, Task):
            return iter(())
        return read(partition, self._options, self._schema)

    async def _planned(self) -> list[Task]:
        if isinstance(self._options.starting, FromCheckpoint):
            raise ConfigurationError(
                "option startingPosition=checkpoint is for readStream: use another "
                "one, as a bounded read doesn't take part in a group"
            )
        return await new_driver(self._options).bounded(self._pushed)

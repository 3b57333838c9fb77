"""Define the data sources that ``benchmarks.spark_read`` compares."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.backlog_server import number_of
from benchmarks.spark_read import LAYOUTS, SHARDS, TASKS
from kinesumer.model.positions import Position
from kinesumer.model.streams import Stream
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.offsets.model import BEGINNING, After
from kinesumer.spark.options.parser import Connection, ReadOptions
from kinesumer.spark.options.table import DEFAULT_SCHEMA
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.reading.task_reader import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

ARN = f"arn:aws:kinesis:us-east-1:123456789012:stream/orders-{SHARDS}"
BATCH = 10_000


class Ceiling(DataSource):
    """A data source of ready-made batches, as fast as Spark's API allows."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(self.options["layout"], schema)


class CeilingReader(DataSourceReader):
    """Yields one ready-made batch again and again, instead of reading."""

    def __init__(self, layout: str, schema: StructType) -> None:
        self._layout, self._schema = layout, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        layout = LAYOUTS[self._layout]
        batch = ready_made(layout.size, Columns(self._schema).schema)
        for _ in range(layout.rows // TASKS // BATCH):
            yield batch


@cache
def ready_made(size: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns and values of kinesumer's batches."""
    now = datetime.now(UTC)
    columns = {
        "stream": [f"orders-{SHARDS}"] * BATCH,
        "shard_id": ["shardId-000000000000"] * BATCH,
        "sequence_number": [number_of(place) for place in range(BATCH)],
        "partition_key": [f"user-{place % 1000}" for place in range(BATCH)],
        "data": [random.randbytes(size) for _ in range(BATCH)],
        "arrived_at": [now + timedelta(milliseconds=n) for n in range(BATCH)],
    }
    nothing = [None] * BATCH
    arrays = [pa.array(columns.get(f.name, nothing), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Ours(DataSource):
    """A data source that plans its own tasks, but reads with kinesumer's reader."""

    @classmethod
    def name(cls) -> str:
        return "ours"

    def schema(self) -> str:
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return OurReader(self.options["layout"], schema)


class OurReader(DataSourceReader):
    """Plans tasks for the whole backlog, and reads them."""

    def __init__(self, layout: str, schema: StructType) -> None:
        self._layout, self._schema = layout, schema
        self._stream = Stream(ARN)
        self._options = ReadOptions(
            streams=(self._stream,),
            connection=Connection(region="us-east-1"),
            min_fetch_period=0.0,
            max_fetch_rate=1e6,
        )

    def partitions(self) -> list[Task]:
        layout = LAYOUTS[self._layout]
        ranges = backlog(layout.records, layout.size)
        each = SHARDS // TASKS
        return [
            Task((self._stream,), tuple(ranges[first : first + each]))
            for first in range(0, SHARDS, each)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read(partition, self._options, self._schema)


def backlog(records: int, size: int) -> list[ShardRange]:
    """Return one range for each shard, with all records of the server."""
    last = After(Position(number_of(records - 1)), time.time())
    return [
        ShardRange(
            ARN, f"shardId-{number:012}", BEGINNING, last, 86400.0, records * size
        )
        for number in range(SHARDS)
    ]

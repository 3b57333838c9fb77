"""Define the data source of ready-made batches for ``benchmarks.spark_read``."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.backlog_server import number_of
from benchmarks.spark_read import LAYOUTS, READY_MADE, SHARDS, TASKS
from kinesumer.spark.options.table import DEFAULT_SCHEMA
from kinesumer.spark.rows import Columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

BATCH = 10_000


class ReadyMade(DataSource):
    """A data source of ready-made batches, as fast as Spark's API allows."""

    @classmethod
    def name(cls) -> str:
        return READY_MADE

    def schema(self) -> str:
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(self.options["layout"], schema)


class ReadyMadeReader(DataSourceReader):
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

"""Runs a query and a sink as Spark does, including their copies by pickle."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from kinesumer import Stream
from kinesumer.config import STATE_STORE
from kinesumer.spark import streams_option
from kinesumer.spark.readers import NO_LIMIT, StreamReader
from kinesumer.spark.source import KinesumerDataSource
from tests.system.security.conftest import Accounts

SCHEMA = StructType().add("data", BinaryType()).add("partition_key", StringType())


class Query:
    """A query's driver and its tasks."""

    def __init__(self, accounts: Accounts) -> None:
        options = {
            "streams": streams_option(*accounts.streams),
            "app": accounts.app,
            "table": STATE_STORE,
            "startingPosition": "TRIM_HORIZON",
        }
        reader = KinesumerDataSource(options).streamReader(SCHEMA)
        assert isinstance(reader, StreamReader)
        self.for_tasks = pickle.dumps(reader)
        self.reader = reader
        self.offset: dict[str, Any] = reader.initialOffset()

    def batch(self) -> list[bytes]:
        """Read a batch of new rows, as remote tasks do."""
        end = self.reader.latestOffset(self.offset, NO_LIMIT)
        elsewhere: StreamReader = pickle.loads(self.for_tasks)
        rows = [
            row["data"]
            for task in self.reader.partitions(self.offset, end)
            for batch in elsewhere.read(pickle.loads(pickle.dumps(task)))
            for row in batch.to_pylist()
        ]
        self.offset = end
        self.reader.commit(end)
        return rows

    def batches(self, rows: int) -> list[bytes]:
        """Read batches until they have this many rows.

        After a split, the rows of the children are in a later batch than those of the
        parent.
        """
        read: list[bytes] = []
        for _ in range(20):
            read += self.batch() if len(read) < rows else []
        return read


def put(stream: str | Stream) -> None:
    """Put two aggregated rows through a sink, as a remote task does."""
    options = {"streams": streams_option(stream), "aggregate": "true"}
    writer = KinesumerDataSource(options).streamWriter(SCHEMA, overwrite=False)
    rows = pa.table({"data": [b"one", b"two"], "partition_key": ["k", "l"]})
    elsewhere = pickle.loads(pickle.dumps(writer))
    written = pickle.loads(pickle.dumps(elsewhere.write(iter(rows.to_batches()))))
    writer.commit([written], 0)
    assert written.counts.rows == 2

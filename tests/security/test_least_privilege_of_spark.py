"""A query, its mirror and its sink with exactly the documented policies, and less.

Without Spark: what it asks of a source and a sink is asked here, copies by pickle
included, so that the same calls are made.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from kinesumer import AccessDeniedError, Stream
from kinesumer.spark import reading, streams_option
from kinesumer.spark.background import background
from kinesumer.spark.source import KinesumerDataSource
from kinesumer.spark.sources import close_sources
from kinesumer.spark.stream_reader import NO_LIMIT, StreamReader
from kinesumer.wire.state_table import STATE_STORE
from tests.security.conftest import READING, WRITING, Accounts
from tests.security.documents import Grant, grants

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = StructType().add("data", BinaryType()).add("partition_key", StringType())
NOT_CALLED = {
    # A query is alone: nobody watches, so nobody prunes what died long ago.
    Grant(
        "consumer", "dynamodb:Query", "${TABLE_ARN}/index/index-client-key-last-update"
    ),
    # Only rows of shards that Kinesis forgot; looked for each ten minutes.
    Grant("consumer", "dynamodb:DeleteItem", "${TABLE_ARN}"),
}
READ = [grant for grant in grants(*READING.values()) if grant not in NOT_CALLED]


@pytest.fixture(autouse=True)
def _no_connections_are_left() -> Iterator[None]:
    yield
    background().run(close_sources())
    loop = reading._worker(os.getpid()).loop
    loop.run_until_complete(close_sources())


class Query:
    """A query's driver and its tasks."""

    def __init__(self, accounts: Accounts) -> None:
        options = {
            "streams": streams_option(*accounts.streams),
            "app": "app",
            "table": STATE_STORE,
            "startingPosition": "TRIM_HORIZON",
        }
        reader = KinesumerDataSource(options).streamReader(SCHEMA)
        assert isinstance(reader, StreamReader)
        self.for_tasks = pickle.dumps(reader)
        self.reader = reader
        self.offset: dict[str, Any] = reader.initialOffset()

    def batch(self) -> list[bytes]:
        """Read what is new, as tasks elsewhere do."""
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
        """Read so many rows: after a split, the children's come a batch later."""
        read: list[bytes] = []
        for _ in range(20):
            read += self.batch() if len(read) < rows else []
        return read


def put(accounts: Accounts, stream: str | Stream) -> None:
    """Put two rows by a sink, as aggregates, as tasks elsewhere do."""
    options = {"streams": streams_option(stream), "aggregate": "true"}
    writer = KinesumerDataSource(options).streamWriter(SCHEMA, overwrite=False)
    rows = pa.table({"data": [b"one", b"two"], "partition_key": ["k", "l"]})
    elsewhere = pickle.loads(pickle.dumps(writer))
    written = pickle.loads(pickle.dumps(elsewhere.write(iter(rows.to_batches()))))
    writer.commit([written], 0)
    assert written.counts.rows == 2


def test_a_query_works_with_exactly_the_policies_of_a_consumer(
    accounts: Accounts,
) -> None:
    accounts.enforce(READING)
    query = Query(accounts)
    accounts.put(5)
    rows = query.batches(accounts.count)
    accounts.aws.split("orders", accounts.aws.open_shards("orders")[0])
    accounts.put(5)
    rows += query.batches(accounts.count - len(rows))
    assert sorted(map(int, rows)) == list(range(1, accounts.count + 1))
    query.reader.stop()
    called, denied = accounts.calls()
    assert called == {grant.action for grant in READ}
    assert not denied


@pytest.mark.parametrize("removed", READ, ids=str)
def test_a_query_names_the_one_action_that_it_lacks(
    accounts: Accounts, removed: Grant
) -> None:
    accounts.enforce(READING, removed)
    accounts.put(1)
    query = Query(accounts)
    with pytest.raises(AccessDeniedError) as raised:
        query.batch()
    assert accounts.named(removed, raised.value)
    accounts.aws.allow()
    query.reader.stop()


def test_a_sink_works_with_exactly_the_policies_of_a_producer(
    accounts: Accounts,
) -> None:
    accounts.enforce(WRITING)
    for stream in accounts.streams:
        put(accounts, stream)
    called, denied = accounts.calls()
    assert called == {grant.action for grant in grants(*WRITING.values())}
    assert not denied


@pytest.mark.parametrize("removed", grants(*WRITING.values()), ids=str)
def test_a_sink_names_the_one_action_that_it_lacks(
    accounts: Accounts, removed: Grant
) -> None:
    accounts.enforce(WRITING, removed)
    with pytest.raises(AccessDeniedError) as raised:
        for stream in accounts.streams:
            put(accounts, stream)
    assert accounts.named(removed, raised.value)

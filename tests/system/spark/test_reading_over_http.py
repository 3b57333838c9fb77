"""Tasks read over HTTP, in a process that outlives them as Spark's workers do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kinesumer.local import EmbeddedAws, background
from kinesumer.model.positions import Position
from kinesumer.model.streams import Stream
from kinesumer.spark.offsets.model import After
from kinesumer.spark.options.parser import Connection, ReadOptions
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.reading import task_reader
from kinesumer.spark.runtime.sources import close_sources
from tests.system.spark.reading_bench import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARD = "shardId-000000000000"
ROWS = schema("sequence_number", "partition_key", "data")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """An AWS, and a worker of its own."""
    with background(EmbeddedAws()) as embedded:
        for name, value in embedded.environment().items():
            monkeypatch.setenv(name, value)
        yield embedded
        loop = task_reader._worker(os.getpid()).loop
        loop.run_until_complete(close_sources())
        loop.close()
        task_reader._worker.cache_clear()


def test_tasks_follow_each_other_in_one_process(aws: EmbeddedAws) -> None:
    arn = aws.create_stream("orders")
    numbers = [aws.put("orders", b"%d" % n, f"k-{n}")[1] for n in range(50)]
    middle = After(Position(numbers[19]), 2e9)
    stream = Stream(arn)
    options = ReadOptions(streams=(stream,), connection=Connection(region="us-east-1"))

    def read(first: After, last: After) -> list[dict[str, object]]:
        task = Task((stream,), (ShardRange(arn, SHARD, first, last, 86400.0),))
        batches = task_reader.read(task, options, ROWS)
        return [row for batch in batches for row in batch.to_pylist()]

    tip = After(Position(numbers[-1]), 2e9)
    rows = read(After(Position(numbers[0]), 2e9), middle) + read(middle, tip)
    assert [row["sequence_number"] for row in rows] == numbers[1:]
    assert [row["data"] for row in rows] == [b"%d" % n for n in range(1, 50)]
    assert [row["partition_key"] for row in rows] == [f"k-{n}" for n in range(1, 50)]

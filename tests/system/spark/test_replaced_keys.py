"""Test that a query goes on when the keys in the credentials file are replaced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kinesumer.testing import EmbeddedAws, background
from tests.support.aws_keys import KeyFile
from tests.system.spark.processes import Program, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = (sys.executable, "-m", "tests.system.spark.copying_query")


def copied(aws: EmbeddedAws) -> int:
    """Return how many records the stream ``copy`` has, however they were put."""
    state = aws._state.kinesis
    stream = next(s for s in state.streams.values() if s.name == "copy")
    return sum(len(shard.log) for shard in stream.shards.values())


def copy_twenty(aws: EmbeddedAws, query: Program) -> None:
    """Put twenty records, and wait until the query has copied them."""
    expected = copied(aws) + 20
    for place in range(20):
        aws.put("orders", b"x", f"key-{place}")
    query.wait_until(lambda: copied(aws) >= expected, "a copy", 120)


def test_driver_tasks_and_sink_take_the_new_keys(tmp_path: Path) -> None:
    with background(EmbeddedAws()) as aws:
        for name in ("orders", "copy"):
            aws.create_stream(name, shards=2)
        file = KeyFile(aws, tmp_path / "credentials")
        environment = spark_environment(file.environment(), tmp_path)
        command = (*QUERY, str(tmp_path / "checkpoint"))
        with Program(command, environment, tmp_path / "query.log") as query:
            copy_twenty(aws, query)
            file.rotate()
            copy_twenty(aws, query)
            file.rotate(8.0)  # longer than the longest pause between two looks
            copy_twenty(aws, query)
            file.rotate()
            copy_twenty(aws, query)
            assert query.is_running

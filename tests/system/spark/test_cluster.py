"""Test that workers of a cluster read the same rows if tasks are copied or lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import Program, spark_environment
from tests.system.spark.standalone import EXECUTOR_MEMORY, Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHARDS = 4
RECORDS = 6_000
FIRST_SHARD = "shardId-000000000000"
LARGE = b"x" * 40_000
SECOND_ATTEMPT = re.compile(r"Running task \d+\.1 in stage")


def test_tasks_that_are_copied_or_lost_change_no_row(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    """The cluster runs one query after the other, because its start takes long."""
    environment = spark_environment(kinesumer_aws.environment(), tmp_path)
    with Cluster(tmp_path, environment) as cluster:

        def start(stream: str, shards: int, **options: Any) -> Program:
            (tmp_path / stream).mkdir()
            return crashing_query.start(
                environment,
                tmp_path / stream,
                master=cluster.url,
                conf={"spark.executor.memory": EXECUTOR_MEMORY},
                streams=stream,
                maxPartitions=str(shards),
                **options,
            )

        kinesumer_aws.create_stream("payments", 2)
        with start("payments", 2, fanOut="billing") as driver:
            _copy_a_task(kinesumer_aws, driver, tmp_path)
        arn = kinesumer_aws.create_stream("orders", SHARDS)
        producer = Producer(kinesumer_aws)
        producer.put(arn, RECORDS)
        # Slow the batch down, so that a worker can be killed during it.
        slow = kinesumer_aws.fault(
            "latency", operation="GetRecords", probability=0.5, latency_seconds=0.5
        )
        with start("orders", SHARDS) as driver:
            _lose_a_worker(cluster, driver, tmp_path / "orders")
            kinesumer_aws.clear_faults(slow)
            producer.put(arn, RECORDS)
            driver.wait_until(
                lambda: output.count(tmp_path / "orders") >= 2 * RECORDS,
                "all rows",
                PATIENCE_SECONDS,
            )
            assert "Lost executor" in driver.log.read_text()
    found = output.file_sink(tmp_path / "orders")
    assert output.faults(found, producer.records[arn], {}) == []


def _copy_a_task(aws: EmbeddedAws, driver: Program, directory: Path) -> None:
    """Wait until Spark runs a task twice. It must repeat no row, nor keep a connection.

    While one subscription stalls, its task is slow, so Spark starts a copy of it.
    """
    stall = aws.fault("stall", shard=FIRST_SHARD, latency_seconds=300.0)
    data: list[bytes] = []
    rows = directory / "payments"
    while not _has_copied_a_task(directory):
        for number in range(len(data), len(data) + 100):
            data.append(b"%06d" % number + LARGE)
            aws.put("payments", data[-1], str(number))
        driver.wait_until(
            lambda: output.count(rows) >= len(data), "rows", PATIENCE_SECONDS
        )
    pushing = aws._gateway.pushes._connections
    driver.wait_until(
        lambda: all(each and each.is_closing() for each in [*pushing.values()]),
        "end of all subscriptions",
        PATIENCE_SECONDS,
    )
    aws.clear_faults(stall)
    assert aws.journal.count("kinesis", "SubscribeToShard") >= 2
    assert sorted(row.data for row in output.file_sink(rows)) == data


def _lose_a_worker(cluster: Cluster, driver: Program, directory: Path) -> None:
    """Kill a worker in the middle of a batch."""
    victim = cluster.workers[0]
    driver.wait_until(
        lambda: _is_in_a_batch(directory) and _is_at_work(victim),
        "task on the worker",
        PATIENCE_SECONDS,
    )
    victim.kill()


def _has_copied_a_task(directory: Path) -> bool:
    """Return whether an executor has begun the second attempt at a task."""
    logs = directory.glob("worker-*/app-*/*/stderr")
    return any(SECOND_ATTEMPT.search(log.read_text()) for log in logs)


def _is_in_a_batch(directory: Path) -> bool:
    """Return whether a batch is running: its end is logged, but it isn't committed."""
    checkpoint = directory / "checkpoint-files"
    done = {path.name for path in (checkpoint / "commits").glob("[0-9]*")}
    return any(p.name not in done for p in (checkpoint / "offsets").glob("[0-9]*"))


def _is_at_work(worker: Program) -> bool:
    return any(member.is_python_worker for member in worker.members())

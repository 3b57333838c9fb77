"""Test that another worker of a cluster reads the same rows if a worker dies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import spark_environment
from tests.system.spark.standalone import EXECUTOR_MEMORY, Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.testing import EmbeddedAws
    from tests.system.spark.processes import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHARDS = 4
RECORDS = 6_000
PATIENCE_SECONDS = 240.0
FIRST_SHARD = "shardId-000000000000"
LARGE = b"x" * 40_000
SECOND_ATTEMPT = re.compile(r"Running task \d+\.1 in stage")


def test_a_worker_killed_in_a_batch_changes_no_row(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    arn = kinesumer_aws.create_stream("orders", SHARDS)
    producer = Producer(kinesumer_aws)
    producer.put(arn, RECORDS)
    # Slow the batch down, so that a worker can be killed during it.
    slow = kinesumer_aws.fault(
        "latency", operation="GetRecords", probability=0.5, latency_seconds=0.5
    )
    environment = spark_environment(kinesumer_aws.environment(), tmp_path)
    with (
        Cluster(tmp_path, environment) as cluster,
        crashing_query.start(
            environment,
            tmp_path,
            master=cluster.url,
            conf={"spark.executor.memory": EXECUTOR_MEMORY},
            maxPartitions=str(SHARDS),
        ) as driver,
    ):
        victim = cluster.workers[0]
        driver.wait_until(
            lambda: _is_in_a_batch(tmp_path) and _is_at_work(victim),
            "task on the worker",
            PATIENCE_SECONDS,
        )
        victim.kill()
        kinesumer_aws.clear_faults(slow)
        producer.put(arn, RECORDS)
        driver.wait_until(
            lambda: output.count(tmp_path) >= 2 * RECORDS, "all rows", PATIENCE_SECONDS
        )
        assert "Lost executor" in driver.log.read_text()
    faults = output.faults(output.file_sink(tmp_path), producer.records[arn], {})
    assert faults == []


def test_a_speculative_copy_repeats_no_row_and_keeps_no_subscription(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    kinesumer_aws.create_stream("orders", 2)
    # While one subscription stalls, its task is slow, so Spark starts a copy of it.
    kinesumer_aws.fault("stall", shard=FIRST_SHARD, latency_seconds=300.0)
    data: list[bytes] = []
    environment = spark_environment(kinesumer_aws.environment(), tmp_path)
    with (
        Cluster(tmp_path, environment) as cluster,
        crashing_query.start(
            environment,
            tmp_path,
            master=cluster.url,
            conf={"spark.executor.memory": EXECUTOR_MEMORY},
            maxPartitions="2",
            fanOut="billing",
        ) as driver,
    ):
        while not _has_copied_a_task(tmp_path):
            for number in range(len(data), len(data) + 100):
                data.append(b"%06d" % number + LARGE)
                kinesumer_aws.put("orders", data[-1], str(number))
            driver.wait_until(
                lambda: output.count(tmp_path) >= len(data), "rows", PATIENCE_SECONDS
            )
        pushing = kinesumer_aws._gateway._pushes._connections
        driver.wait_until(
            lambda: all(each and each.is_closing() for each in [*pushing.values()]),
            "end of all subscriptions",
            PATIENCE_SECONDS,
        )
    assert kinesumer_aws.journal.count("kinesis", "SubscribeToShard") >= 2
    assert sorted(row.data for row in output.file_sink(tmp_path)) == data


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

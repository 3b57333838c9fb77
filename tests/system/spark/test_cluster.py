"""Test that another worker of a cluster reads the same rows if a worker dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import spark_environment
from tests.system.spark.standalone import EXECUTOR_MEMORY, Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.local import EmbeddedAws
    from tests.system.spark.processes import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHARDS = 4
RECORDS = 6_000
PATIENCE_SECONDS = 240.0


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


def _is_in_a_batch(directory: Path) -> bool:
    """Return whether a batch is running: its end is logged, but it isn't committed."""
    checkpoint = directory / "checkpoint-files"
    done = {path.name for path in (checkpoint / "commits").glob("[0-9]*")}
    return any(p.name not in done for p in (checkpoint / "offsets").glob("[0-9]*"))


def _is_at_work(worker: Program) -> bool:
    return any(member.is_python_worker for member in worker.members())

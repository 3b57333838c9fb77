"""A standalone cluster: what a worker's death interrupts is read again, the same."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import Program, spark_environment
from tests.system.spark.standalone import EXECUTOR_MEMORY, Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.local import EmbeddedAws

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
    # Long enough a batch to be killed in.
    slow = kinesumer_aws.fault(
        "latency", operation="GetRecords", probability=0.5, latency_seconds=0.5
    )
    environment = spark_environment(kinesumer_aws.environment(), tmp_path)
    with (
        Cluster(tmp_path, environment) as cluster,
        _driver(cluster, environment, tmp_path) as driver,
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


def _driver(cluster: Cluster, environment: dict[str, str], directory: Path) -> Program:
    setting = {
        "master": cluster.url,
        "directory": str(directory),
        "conf": {"spark.executor.memory": EXECUTOR_MEMORY},
        "batches": False,
        "options": {"streams": "orders", "maxPartitions": str(SHARDS)},
    }
    command = [sys.executable, "-m", crashing_query.__name__, json.dumps(setting)]
    return Program(command, environment, directory / "driver.log")


def _is_in_a_batch(directory: Path) -> bool:
    """Tell whether a batch's end is logged, but the batch isn't done."""
    checkpoint = directory / "checkpoint-files"
    done = {path.name for path in (checkpoint / "commits").glob("[0-9]*")}
    return any(p.name not in done for p in (checkpoint / "offsets").glob("[0-9]*"))


def _is_at_work(worker: Program) -> bool:
    return any(member.is_python_worker for member in worker.members())

"""Test that a query on kinesis-local reads each row once despite a SIGKILL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from kinesumer.model.streams import ShardKey
from tests.support.servers import kinesis_local
from tests.system.chaos.backends import Endpoint
from tests.system.process.producer import Producer
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import Program, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 1_000
SECONDS = 240.0


def test_every_row_once_from_kinesis_local(tmp_path: Path) -> None:
    with kinesis_local() as url, Endpoint(url, url) as aws:
        arn = aws.create_stream("orders", 2)
        environment = spark_environment(aws.environment(), tmp_path)
        producer = Producer(aws)
        producer.put(arn, RECORDS)
        with crashing_query.start(environment, tmp_path) as driver:
            _wait(driver, tmp_path, RECORDS)
            aws.split(arn, aws.open_shards(arn)[0])
            producer.put(arn, RECORDS)
        with crashing_query.start(environment, tmp_path) as driver:
            _wait(driver, tmp_path, 2 * RECORDS)
        found = list(output.file_sink(tmp_path))
        parents = parents_of(arn, aws.shards(arn))
        assert output.faults(found, producer.records[arn], parents) == []
        assert len({row.shard for row in found}) == 4


def parents_of(
    arn: str, shards: Iterable[Mapping[str, str]]
) -> dict[ShardKey, list[ShardKey]]:
    """Return the parents of each shard that ListShards returned."""
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        ShardKey(arn, shard["ShardId"]): [
            ShardKey(arn, shard[name]) for name in names if name in shard
        ]
        for shard in shards
    }


def _wait(driver: Program, directory: Path, rows: int) -> None:
    driver.wait_until(lambda: output.count(directory) >= rows, "all rows", SECONDS)

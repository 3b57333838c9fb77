"""Test that queries read the stream of a table, together with a Kinesis stream."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kinesumer.testing import EmbeddedAws, TableStreamSettings
from tests.system.spark.test_trigger_modes import Sink, drain, writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Visits:
    """The table "visits", whose stream has several shards, and the stream "clicks"."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self._aws, self.control = aws, aws.table_streams
        self._dynamodb: Any = boto3.client(
            "dynamodb",
            endpoint_url=aws.url,
            region_name="us-east-1",
            aws_access_key_id=aws.account().access_key_id,
            aws_secret_access_key=aws.account().secret_access_key,
        )
        self.control.settings = TableStreamSettings(partitions=3)
        self._dynamodb.create_table(
            TableName="visits",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        aws.create_stream("clicks", 2)
        self.versions = 0

    def change(self) -> None:
        """Write a version of ten items, and put as many records into the stream."""
        for number in range(10):
            item = {"id": {"S": f"i{number}"}, "version": {"N": str(self.versions)}}
            self._dynamodb.put_item(TableName="visits", Item=item)
            self._aws.put("clicks", b"click", f"{number}")
        self.versions += 1


def version_of(row: Any) -> str:
    """Return the item of a row, with its version."""
    image = json.loads(bytes(row.data))["dynamodb"]["NewImage"]
    return f"{image['id']['S']} {image['version']['N']}"


def test_each_change_is_a_row_once_over_roll_overs_and_restarts(
    spark: SparkSession, spark_aws: EmbeddedAws, tmp_path: Path
) -> None:
    visits, sink = Visits(spark_aws), Sink()
    query = writer(spark, "table/visits,clicks", sink, tmp_path / "query")
    for generation in range(4):
        visits.change()
        if generation % 2:
            visits.control.roll_over("visits")
        visits.change()
        drain(query)
        shard, *_ = visits.control.open_shards("visits")
        visits.control.split("visits", shard)
    rows = [row for batch in sink.batches.values() for row in batch]
    of_table = [row for row in rows if row.stream == "table/visits"]
    seen = Counter(version_of(row) for row in of_table)
    expected = [f"i{n} {v}" for n in range(10) for v in range(visits.versions)]
    assert sorted(seen) == sorted(expected)
    assert set(seen.values()) == {1}
    assert {row.partition_key for row in of_table} == {
        f'{{"id":"i{number}"}}' for number in range(10)
    }
    assert len(rows) - len(of_table) == 10 * visits.versions

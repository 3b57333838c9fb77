"""The same query on a Kinesis that isn't ours: a split, a SIGKILL, each row once."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from tests.integration.contract.servers import kinesis_local
from tests.system.process.producer import Produced
from tests.system.spark import crashing_query, output
from tests.system.spark.processes import Program, spark_environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 1_000
SECONDS = 240.0
KEYS = 50
DUMMY = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def test_every_row_once_from_kinesis_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kinesis_local() as url:
        aws = {**DUMMY, "AWS_ENDPOINT_URL": url}
        for name, value in aws.items():
            monkeypatch.setenv(name, value)
        stream = _Stream(boto3.client("kinesis"), "orders")
        environment = spark_environment(aws, tmp_path)
        stream.put(RECORDS)
        with _driver(environment, tmp_path) as driver:
            _wait(driver, tmp_path, RECORDS)
            stream.split()
            stream.put(RECORDS)
        with _driver(environment, tmp_path) as driver:
            _wait(driver, tmp_path, 2 * RECORDS)
        rows = list(output.file_sink(tmp_path))
        assert output.faults(rows, stream.produced, stream.parents()) == []
        assert len({row.shard for row in rows}) == 4


class _Stream:
    """A stream of two shards, and what was put to it."""

    def __init__(self, kinesis: Any, name: str) -> None:
        self.produced: list[Produced] = []
        self._kinesis, self._name = kinesis, name
        kinesis.create_stream(StreamName=name, ShardCount=2)
        self._until_active()
        summary = kinesis.describe_stream_summary(StreamName=name)
        self._arn = summary["StreamDescriptionSummary"]["StreamARN"]

    def put(self, count: int) -> None:
        first = len(self.produced)
        numbers = range(first, first + count)
        for place in range(0, count, 500):
            self._put(numbers[place : place + 500])

    def split(self) -> None:
        shard = self._shards()[0]
        hashes = shard["HashKeyRange"]
        middle = (int(hashes["StartingHashKey"]) + int(hashes["EndingHashKey"])) // 2
        self._kinesis.split_shard(
            StreamName=self._name,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str(middle),
        )
        self._until_active()

    def parents(self) -> dict[ShardKey, list[ShardKey]]:
        return {
            self._key(shard["ShardId"]): [self._key(shard["ParentShardId"])]
            for shard in self._shards()
            if "ParentShardId" in shard
        }

    def _put(self, numbers: range) -> None:
        answer = self._kinesis.put_records(
            StreamName=self._name,
            Records=[
                {"Data": f"{n} {_key(n)}".encode(), "PartitionKey": _key(n)}
                for n in numbers
            ],
        )
        for number, result in zip(numbers, answer["Records"], strict=True):
            shard = self._key(result["ShardId"])
            position = Position(result["SequenceNumber"])
            self.produced.append(Produced(number, _key(number), shard, position))

    def _key(self, shard_id: str) -> ShardKey:
        return ShardKey(self._arn, shard_id)

    def _shards(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._kinesis.list_shards(StreamName=self._name)[
            "Shards"
        ]
        return found

    def _until_active(self) -> None:
        while True:
            summary = self._kinesis.describe_stream_summary(StreamName=self._name)
            if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                return
            time.sleep(0.05)


def _key(number: int) -> str:
    return f"key-{number % KEYS}"


def _driver(environment: dict[str, str], directory: Path) -> Program:
    setting = {
        "master": "local[2]",
        "directory": str(directory),
        "conf": {},
        "batches": False,
        "options": {"streams": "orders"},
    }
    command = [sys.executable, "-m", crashing_query.__name__, json.dumps(setting)]
    return Program(command, environment, directory / "driver.log")


def _wait(driver: Program, directory: Path, rows: int) -> None:
    driver.wait_until(lambda: output.count(directory) >= rows, "all rows", SECONDS)

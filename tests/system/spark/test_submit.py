"""Other ways to Spark find the format by themselves: spark-submit, Spark Connect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from tests.system.spark import plain_job
from tests.system.spark.processes import SPARK_HOME, Program, spark_environment

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = str(Path(plain_job.__file__))
CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.sql.shuffle.partitions=1",
)
SUBMIT = [
    *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"),
    *(part for conf in CONF for part in ("--conf", conf)),
    JOB,
]
RECORDS = [f"record {number}" for number in range(50)]
SECONDS = 240.0


@pytest.mark.parametrize(
    ("command", "how"),
    [(SUBMIT, "submit"), ([sys.executable, JOB], "local[2]")],
    ids=["spark-submit", "spark-connect"],
)
def test_nothing_has_to_be_registered(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, command: list[str], how: str
) -> None:
    kinesumer_aws.create_stream("orders", 2)
    kinesumer_aws.create_stream("copies", 2)
    for text in RECORDS:
        kinesumer_aws.put("orders", text.encode(), text)
    environment = spark_environment(kinesumer_aws.environment(), tmp_path)
    log = tmp_path / "job.log"
    with Program([*command, str(tmp_path), how], environment, log) as job:
        assert job.wait(SECONDS) == 0, job.tail()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["batch"] == found["stream"] == sorted(RECORDS)
    assert found["progress"]
    assert sorted(copied()) == sorted(RECORDS)


def copied() -> list[str]:
    kinesis = boto3.client("kinesis")
    found: list[str] = []
    for shard in kinesis.list_shards(StreamName="copies")["Shards"]:
        which = {"StreamName": "copies", "ShardId": shard["ShardId"]}
        first = kinesis.get_shard_iterator(**which, ShardIteratorType="TRIM_HORIZON")
        page = kinesis.get_records(ShardIterator=first["ShardIterator"])
        found += [record["Data"].decode() for record in page["Records"]]
    return found

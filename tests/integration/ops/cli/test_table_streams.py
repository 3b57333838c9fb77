"""Test the commands with the stream of a table, which processes consume together."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from kinesumer.testing import EmbeddedAws, TableStreamSettings
from tests.support.cli import COMMAND, Run, error_text, report
from tests.support.clock import PATIENCE_SECONDS

ITEMS = [f"item-{number}" for number in range(12)]
TABLE = "table/customers"


class Fleet:
    """A table and a Kinesis stream, and processes that consume both."""

    def __init__(self, aws: EmbeddedAws, folder: Path) -> None:
        self.aws, self._folder = aws, folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._dynamodb: Any = boto3.client("dynamodb")
        self.versions = 0
        self.control = aws.table_streams
        self.control.settings = TableStreamSettings(partitions=4)
        self._dynamodb.create_table(
            TableName="customers",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        aws.create_stream("orders", 2)

    def change(self) -> None:
        """Write a version of each item, and put as many records into the stream."""
        for item in ITEMS:
            values = {"id": {"S": item}, "version": {"N": str(self.versions)}}
            self._dynamodb.put_item(TableName="customers", Item=values)
            self.aws.put("orders", f"{item} {self.versions}".encode(), item)
        self.versions += 1

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process."""
        number = len(self.processes)
        options = ("--app=a", "--start=TRIM_HORIZON", f"--client-id=c{number}")
        with (self._folder / str(number)).open("wb") as file:
            process = subprocess.Popen(
                [*COMMAND, "consume", TABLE, "orders", *options], stdout=file
            )
        self.processes.append(process)
        return process

    def outputs(self) -> list[list[dict[str, Any]]]:
        """Return the records that each process has written."""
        outputs = []
        for number in range(len(self.processes)):
            whole = (self._folder / str(number)).read_bytes().rpartition(b"\n")[0]
            outputs.append([json.loads(line) for line in whole.splitlines()])
        return outputs

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how often each version of an item came from each stream."""
        return Counter(version_of(r) for output in self.outputs() for r in output)

    def wait(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + 2 * PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < until, self.counts()
            time.sleep(0.2)

    def read_all(self) -> None:
        """Wait until every version of every item came from both streams."""
        wanted = 2 * len(ITEMS) * self.versions
        self.wait(lambda: len(self.counts()) == wanted)


def version_of(record: dict[str, Any]) -> tuple[str, str]:
    """Return the stream of a record, and the item with its version."""
    if record["stream"] != TABLE:
        return record["stream"], record["data"]
    image = json.loads(record["data"])["dynamodb"]["NewImage"]
    return TABLE, f"{image['id']['S']} {image['version']['N']}"


@pytest.fixture
def fleet(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Fleet]:
    aws.create_table()
    fleet = Fleet(aws, tmp_path)
    yield fleet
    for process in fleet.processes:
        process.kill()
        process.wait()


@pytest.mark.process
def test_three_processes_read_ten_generations_through_a_kill_a_join_and_a_leave(
    fleet: Fleet,
) -> None:
    killed, leaving, _ = (fleet.start() for _ in range(3))
    calm: Counter[tuple[str, str]] = Counter()
    for generation in range(10):
        fleet.change()
        if generation == 4:
            killed.kill()
        fleet.read_all()
        if generation == 3:
            calm = fleet.counts()
        if generation == 6:
            fleet.start()
        if generation == 8:
            leaving.send_signal(signal.SIGTERM)
        fleet.control.roll_over("customers")
    fleet.change()
    fleet.read_all()
    assert set(calm.values()) == {1}
    seen = fleet.counts()
    # After the kill, the records since its last checkpoint come again.
    assert all(n == 1 for (_, text), n in seen.items() if int(text.split()[1]) > 4)
    for output in fleet.outputs():
        newest: defaultdict[tuple[str, str], int] = defaultdict(int)
        repeats = 0
        for stream, text in map(version_of, output):
            item, version = text.split()
            repeats += int(version) < newest[stream, item]
            newest[stream, item] = max(newest[stream, item], int(version))
        assert repeats == 0


@pytest.mark.process
def test_the_commands_name_the_stream_of_a_table(fleet: Fleet, run: Run) -> None:
    fleet.change()
    fleet.start()
    fleet.read_all()
    caught_up = "table/customers (000000000000, us-east-1): caught up"
    fleet.wait(lambda: caught_up in run("status", "--app=a").output)
    streams = report(run("status", "--app=a", "--json"))["streams"]
    [shards] = [s["shards"] for s in streams if ":dynamodb:" in s["stream_arn"]]
    assert [shard["share"] for shard in shards] == [0.25] * 4
    lag = run("lag", "--app=a")
    assert "table/customers" in lag.output
    assert "keeps records for 24.0 h" in lag.output
    doctor = run("doctor", "--app=a", "--json")
    assert not [
        each
        for each in json.loads(doctor.stdout)["findings"]
        if each["severity"] == "critical"
    ]
    tail = subprocess.run(
        [*COMMAND, "tail", TABLE, "--start=TRIM_HORIZON", "--until=now"],
        capture_output=True,
        check=True,
    )
    assert len(tail.stdout.splitlines()) == 12
    seek = run("seek", "--app=a", "--stream", TABLE, "--to=TRIM_HORIZON", "--yes")
    assert "moved 4 shards" in seek.output
    fleet.wait(lambda: Counter(s for s, _ in fleet.counts().elements())[TABLE] == 24)


@pytest.mark.process
def test_positions_are_copied_to_another_app(
    fleet: Fleet, run: Run, tmp_path: Path
) -> None:
    fleet.change()
    process = fleet.start()
    fleet.read_all()
    process.send_signal(signal.SIGTERM)
    process.wait()
    fleet.change()
    file = str(tmp_path / "positions.json")
    exported = run("export", "--app=a", "-o", file, "--stream", TABLE)
    assert exported.exit_code == 0, exported.output
    assert "written and verified" in run("import", file, "--app=b", "--yes").output
    left = subprocess.run(
        [*COMMAND, "consume", TABLE, "--app=b", "--limit=12"],
        capture_output=True,
        check=True,
    )
    found = [version_of(json.loads(line)) for line in left.stdout.splitlines()]
    assert sorted(found) == sorted((TABLE, f"{item} 1") for item in ITEMS)


def test_what_a_table_can_not_do_is_refused_in_one_line(fleet: Fleet, run: Run) -> None:
    for command in (("fan-out", "list", TABLE), ("produce", TABLE)):
        assert "is the stream of a DynamoDB table" in error_text(run(*command))
    assert "No table 'none'" in error_text(run("tail", "table/none"))
    assert "use table/NAME" in error_text(run("tail", "table/a"))
    assert "DynamoDB pushes no records" in error_text(
        run("consume", TABLE, "--app=a", "--fan-out=billing")
    )

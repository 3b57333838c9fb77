"""Test a query's driver and ordinary clients as processes with one state store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinesumer.ops.cli.main import cli
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS

CLIENT = (
    "kinesumer.ops.cli consume orders --app billing --output text --start TRIM_HORIZON"
)
QUERY = (
    "tests.system.spark.query_process {} streams=orders app=billing "
    "table=kinesumer-state-store startingPosition=checkpoint"
)
Process = subprocess.Popen[str]


class Processes:
    """The processes of a test. Remaining processes are killed at the end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._all: list[Process] = []

    def client(self) -> Process:
        return self._start(CLIENT)

    def query(self) -> Process:
        return self._start(QUERY.format(self._log))

    def _start(self, module: str) -> Process:
        command = [sys.executable, "-m", *module.split()]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self._all.append(process)
        return process

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.communicate()


@pytest.fixture
def processes(kinesumer_aws: EmbeddedAws, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path / "offset.json")
    yield started
    started.end()


def read_until(process: Process, last: str) -> list[str]:
    """Return the records that a process reads until the last one."""
    assert process.stdout is not None
    found: list[str] = []
    while last not in found:
        found.append(process.stdout.readline().strip())
        assert found[-1], process.communicate(timeout=PATIENCE_SECONDS)
    return found


def refusal(process: Process) -> str:
    """Return the error of a process that isn't allowed to start."""
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    return errors


def put(aws: EmbeddedAws, *texts: str) -> None:
    for text in texts:
        aws.put("orders", text.encode())


def test_a_group_moves_from_clients_to_a_query_and_back(
    kinesumer_aws: EmbeddedAws, processes: Processes
) -> None:
    kinesumer_aws.create_stream("orders")
    put(kinesumer_aws, "1", "2")
    client = processes.client()
    assert read_until(client, "2") == ["1", "2"]
    assert "clients of app 'billing' are alive" in refusal(processes.query())
    client.kill()

    put(kinesumer_aws, "3")
    query = processes.query()  # waits until the client's lease has expired
    assert read_until(query, "3")[-1] == "3"
    put(kinesumer_aws, "4")
    assert read_until(query, "4") == ["4"]
    status = CliRunner().invoke(cli, ["status", "--app", "billing", "--json"])
    shown = json.loads(status.stdout)
    [member] = shown["members"]
    assert (member["client_id"], member["kind"]) == ("spark-query", "query")
    assert member["shards"] == 1
    assert shown["problems"] == []
    assert "a Spark query holds app 'billing'" in refusal(processes.client())
    for _ in range(2):  # Spark sends the signal twice
        query.terminate()
    query.communicate(timeout=PATIENCE_SECONDS)

    put(kinesumer_aws, "5")
    assert read_until(processes.client(), "5") == ["5"]

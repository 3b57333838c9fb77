"""A query's driver and plain clients as real processes, on one state store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.local import EmbeddedAws, background

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 60
TABLE = "kinesumer-state-store"
COMMAND = [sys.executable, "-m", "kinesumer.cli"]
QUERY = [sys.executable, "-m", "tests.system.spark.query_process"]
Process = subprocess.Popen[str]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """An embedded AWS with a state store, which new processes find."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "KINESUMER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with background(EmbeddedAws()) as embedded:
        for name, value in embedded.environment().items():
            monkeypatch.setenv(name, value)
        embedded.create_table(TABLE)
        yield embedded


class Processes:
    """The processes of a test; those that are left over are killed."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._all: list[Process] = []

    def client(self) -> Process:
        return self._start(
            *COMMAND,
            *("consume", "orders", "--app", "billing", "--output", "text"),
            *("--start", "TRIM_HORIZON"),
        )

    def query(self) -> Process:
        options = "streams=orders", "app=billing", f"table={TABLE}"
        return self._start(
            *QUERY, str(self._log), *options, "startingPosition=checkpoint"
        )

    def _start(self, *command: str) -> Process:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self._all.append(process)
        return process

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.communicate()


@pytest.fixture
def processes(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path / "offset.json")
    yield started
    started.end()


def lines(process: Process, count: int) -> list[str]:
    """Return the next lines of its standard output."""
    assert process.stdout is not None
    found = [process.stdout.readline().strip() for _ in range(count)]
    assert all(found), process.communicate(timeout=PATIENCE_SECONDS)
    return found


def stop(process: Process, number: int = signal.SIGTERM) -> str:
    """End a process; return what it wrote to standard error."""
    process.send_signal(number)
    return process.communicate(timeout=PATIENCE_SECONDS)[1]


def refused(process: Process) -> str:
    """Wait for a process that has to fail; return why."""
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    return errors


def status() -> dict[str, Any]:
    command = [*COMMAND, "status", "--app", "billing", "--json"]
    answer: dict[str, Any] = json.loads(subprocess.check_output(command))
    return answer


def member(found: dict[str, Any]) -> tuple[str, str, int]:
    [only] = found["members"]
    return only["client_id"], only["kind"], only["shards"]


def put(aws: EmbeddedAws, *texts: str) -> None:
    for text in texts:
        aws.put("orders", text.encode())


def take_over(process: Process, last: str) -> list[str]:
    """Return what it reads until the last record."""
    found: list[str] = []
    while last not in found:
        found += lines(process, 1)
    return found


def test_a_group_moves_from_clients_to_a_query_and_back(
    aws: EmbeddedAws, processes: Processes
) -> None:
    aws.create_stream("orders")
    put(aws, "1", "2")
    client = processes.client()
    assert lines(client, 2) == ["1", "2"]
    assert "clients of app 'billing' are alive" in refused(processes.query())
    stop(client)

    put(aws, "3")
    query = processes.query()
    assert lines(query, 1) == ["3"]
    put(aws, "4")
    assert lines(query, 1) == ["4"]
    found = status()
    assert member(found) == ("spark-query", "query", 1)
    assert found["problems"] == []
    assert "a Spark query holds app 'billing'" in refused(processes.client())
    query.terminate()
    stop(query)  # Spark sends it twice

    put(aws, "5")
    client = processes.client()
    assert take_over(client, "5") == ["5"]
    stop(client)


def test_nothing_is_lost_when_either_side_is_killed(
    aws: EmbeddedAws, processes: Processes
) -> None:
    aws.create_stream("orders")
    put(aws, "1")
    client = processes.client()
    assert lines(client, 1) == ["1"]
    stop(client, signal.SIGKILL)

    put(aws, "2")
    query = processes.query()
    assert take_over(query, "2")[-1] == "2"
    stop(query, signal.SIGKILL)

    put(aws, "3")
    assert take_over(processes.client(), "3")[-1] == "3"

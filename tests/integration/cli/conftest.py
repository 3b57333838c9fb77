"""The embedded AWS, and fixtures that run the command against it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import pytest
from click.testing import CliRunner

from kinesumer.admin.connect import connect
from kinesumer.aws.kinesis import open_source
from kinesumer.cli.main import cli
from kinesumer.cli.options import DEFAULT_TABLE
from kinesumer.core.lineage import Origin, first_rows
from kinesumer.local import EmbeddedAws, background
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start, Stream
from kinesumer.wire import writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from click.testing import Result

TIMEOUT_SECONDS = 30
COMMAND = [sys.executable, "-m", "kinesumer.cli"]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove AWS, kinesumer and OpenTelemetry settings from the environment."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "KINESUMER_", "OTEL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # The command's own signal handlers and logging end with it.
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def aws(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """Start an embedded AWS, and point the environment to it."""
    with background(EmbeddedAws()) as embedded:
        for name, value in embedded.environment().items():
            monkeypatch.setenv(name, value)
        yield embedded


class Run(Protocol):
    """Runs the command in this process."""

    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture
def run(environment: None) -> Run:
    """Run the command in this process; the result has output, stderr, exit_code."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return call


Process = subprocess.Popen[bytes]


@pytest.fixture
def start(environment: None) -> Iterator[Callable[..., Process]]:
    """Start the command as a process. It is killed at the end of the test."""
    started: list[Process] = []

    def call(*arguments: str) -> Process:
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def error_text(result: Result) -> str:
    """Return an error's only line."""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def lines(process: Process, count: int) -> list[bytes]:
    """Return the next lines of a process's standard output."""
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert all(found), process.communicate()
    return found


def finished(process: Process) -> tuple[bytes, bytes]:
    """Wait for the end of a process; return the rest of its output and errors."""
    return process.communicate(timeout=TIMEOUT_SECONDS)


@pytest.fixture
def orders(aws: EmbeddedAws) -> EmbeddedAws:
    """Create a table, and a stream of two shards with ten records."""
    aws.create_table()
    aws.create_stream("orders", 2)
    for number in range(10):
        aws.put("orders", b"order %d" % number, f"customer {number}")
    return aws


@pytest.fixture
def stopped_app(aws: EmbeddedAws) -> EmbeddedAws:
    """Let app a have read ten records in two shards of stream orders."""
    aws.create_table()
    store_positions(aws, "a")
    return aws


def store_positions(aws: EmbeddedAws, app: str) -> dict[str, str]:
    """Store positions after ten records; return the last record of each shard."""
    aws.create_stream("orders", 2)
    put = dict(
        aws.put("orders", b"order %d" % number, f"customer {number}")
        for number in range(10)
    )
    asyncio.run(_store(app, put))
    return put


async def _store(app: str, last: Mapping[str, str]) -> None:
    async with connect(DEFAULT_TABLE, None) as (clients, store):
        source = await open_source(clients, Stream("orders"))
        info = await source.describe()
        stream = StreamRow(info.arn, info.created_at, Start.TRIM_HORIZON)
        await store.write(writes.create_group(app, "made by hand"))
        await store.write(writes.create_stream(app, stream))
        for row in first_rows(Origin(stream), await source.list_shards()):
            read = row._replace(position=Position(last[row.key.shard_id]))
            assert (await store.write(writes.create_shard(app, read))).applied
        assert (await store.write(writes.baseline(app, stream))).applied

"""Provide an embedded AWS, and fixtures that run the command with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinesumer.aws.kinesis import open_source
from kinesumer.config import STATE_STORE
from kinesumer.core.lineage import Origin, first_rows
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start, Stream
from kinesumer.ops.cli.main import cli
from kinesumer.ops.group.connect import connect
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire import shard_writes, writes
from tests.support.clock import PATIENCE_SECONDS

Process = subprocess.Popen[bytes]
Run = Callable[..., Result]
Starter = Callable[..., Process]

COMMAND = [sys.executable, "-m", "kinesumer.ops.cli"]
SETTINGS = ("AWS_", "KINESUMER_", "OTEL_")
NO_FILES = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
# A class of the library, a call of a function, or an argument with its value.
PYTHON = re.compile(
    r"\b(?:Config|Kinesumer|Start|Stream)[.(]|\w\(\)"
    r"|(?<![\w-])[a-z]+(?:_[a-z]+)*=(?=['\"\d…])"
)
CONSUME = ("consume", "orders", "--app=a", "--start=TRIM_HORIZON", "--client-id=one")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove AWS, kinesumer and OpenTelemetry settings from the environment."""
    for name in list(os.environ):
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
    for name, value in NO_FILES.items():
        monkeypatch.setenv(name, value)
    # Undo the command's changes of signal handlers and logging.
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def aws(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """Start an embedded AWS, and point the environment to it."""
    with background(EmbeddedAws(table=None)) as embedded:
        for name, value in embedded.environment().items():
            monkeypatch.setenv(name, value)
        yield embedded


@pytest.fixture
def run(environment: None) -> Run:
    """Run the command in this process. The result has output, stderr and exit_code."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    return call


@pytest.fixture
def start(environment: None) -> Iterator[Starter]:
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


def consuming(start: Starter, *options: str, count: int = 10) -> Process:
    """Return a process that has consumed the records of stream orders."""
    process = start(*CONSUME, *options)
    lines(process, count)
    return process


def report(result: Result, status: int = 0) -> Any:
    """Return the JSON that the command printed."""
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def error_text(result: Result, status: int | None = None) -> str:
    """Return a failed command's error: a single line without names of Python.

    If ``status`` is given, check that it is the exit status.
    """
    assert status in (None, result.exit_code), result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert not PYTHON.search(lines[0]), lines[0]
    return lines[0]


def lines(process: Process, count: int) -> list[bytes]:
    """Return the next lines of a process's standard output."""
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    assert all(found), process.communicate()
    return found


def finished(process: Process) -> tuple[bytes, bytes]:
    """Wait until a process ends. Return the rest of its output and errors."""
    return process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture
def orders(aws: EmbeddedAws) -> EmbeddedAws:
    """Create a table, and a stream of two shards with ten records."""
    aws.create_table()
    put_orders(aws)
    return aws


def put_orders(aws: EmbeddedAws) -> dict[str, str]:
    """Create stream orders with ten records. Return each shard's last number."""
    aws.create_stream("orders", 2)
    return dict(
        aws.put("orders", b"order %d" % number, f"customer {number}")
        for number in range(10)
    )


@pytest.fixture
def stopped_app(aws: EmbeddedAws) -> EmbeddedAws:
    """Store positions as if app a had read ten records of stream orders."""
    aws.create_table()
    store_positions(aws, "a")
    return aws


def store_positions(aws: EmbeddedAws, app: str) -> dict[str, str]:
    """Store positions after ten records; return the last record of each shard."""
    put = put_orders(aws)
    asyncio.run(_store(app, put))
    return put


async def _store(app: str, last: Mapping[str, str]) -> None:
    async with connect(STATE_STORE, None) as (clients, store):
        source = await open_source(clients, Stream("orders"))
        info = await source.describe()
        stream = StreamRow(info.arn, info.created_at, Start.TRIM_HORIZON)
        await store.write(writes.create_group(app, "made by hand"))
        await store.write(writes.create_stream(app, stream))
        for row in first_rows(Origin(stream), await source.list_shards()):
            read = row._replace(position=Position(last[row.key.shard_id]))
            assert (await store.write(shard_writes.create_shard(app, read))).applied
        assert (await store.write(writes.baseline(app, stream))).applied

"""Test that the programs, tests and queries of the guides run as printed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinesumer.spark.options.parser import ReadOptions, connection_from, parse_read
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.support.doc_pages import ROOT, snippet
from tests.support.snippets import evaluated

TESTS = [
    ("docs/testing.md", "test_orders_are_counted"),
    ("docs/cross-account.md", "test_reads_through_a_role"),
]


@pytest.mark.parametrize(("page", "name"), TESTS)
async def test_tests(kinesumer_aws: EmbeddedAws, page: str, name: str) -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet(page, name), names)
    test: Callable[[EmbeddedAws], Awaitable[None]] = names[name]
    await asyncio.wait_for(test(kinesumer_aws), PATIENCE_SECONDS)


async def test_the_unit_tests_of_a_handler() -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/testing.md", "import batch, record"), names)
    await names["test_an_order_is_handled"]()
    names["test_a_batch_has_one_shard"]()


async def test_the_stream_of_a_table(kinesumer_aws: EmbeddedAws) -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/testing.md", "create_table("), names)
    test = names["test_shards_of_a_table_roll_over_and_split"]
    await asyncio.to_thread(test, kinesumer_aws)
    assert len(kinesumer_aws.table_streams.open_shards("customers")) == 3


async def test_faults(aws: EmbeddedAws) -> None:
    await evaluated(snippet("docs/testing.md", "outage("), {"kinesumer_aws": aws})


class SparkReader:
    """Spark's reader, which parses the options where Spark would load the data."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def format(self, name: str) -> SparkReader:
        assert name == "kinesumer"
        return self

    def option(self, name: str, value: str) -> SparkReader:
        self.options[name] = value
        return self

    def load(self) -> ReadOptions:
        return parse_read(self.options, connection_from(self.options))


QUERIES = [
    ("README.md", "spark.readStream"),
    ("docs/spark.md", "spark.readStream"),
    ("docs/spark.md", "spark.read.format"),
]


@pytest.mark.parametrize(("page", "part"), QUERIES)
async def test_options_of_spark(
    page: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    names = {"spark": SimpleNamespace(readStream=SparkReader(), read=SparkReader())}
    await evaluated(snippet(page, part), names)
    assert any(isinstance(value, ReadOptions) for value in names.values())


Process = subprocess.Popen[str]
Starter = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Start a command, as Popen does. Its process is ended after the test."""
    started: list[Process] = []

    def call(command: list[str] | str, **options: Any) -> Process:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def first_lines(process: Process, count: int) -> list[str]:
    """Return the first lines that a process prints."""
    timer = threading.Timer(PATIENCE_SECONDS, process.kill)
    timer.start()
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    timer.cancel()
    assert all(found), process.communicate()
    return found


PROGRAMS = [
    ("docs/quickstart.md", "asyncio.run(main())"),
    ("docs/quickstart.md", "import kinesumer.blocking"),
]


@pytest.mark.parametrize(("page", "part"), PROGRAMS)
def test_programs(aws: EmbeddedAws, page: str, part: str, start: Starter) -> None:
    command = [sys.executable, "-c", snippet(page, part)]
    process = start(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert all("shardId-" in line for line in first_lines(process, 3))


def test_the_quickstart_without_aws(tmp_path: Path, start: Starter) -> None:
    """The commands need only the installed package."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    section = page.partition("## Without AWS")[2].partition("\n## ")[0]
    serve, *others = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    (tmp_path / "kinesumer").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m kinesumer.ops.cli "$@"\n'
    )
    (tmp_path / "kinesumer").chmod(0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "KINESUMER_"))
    }
    environment |= {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    run = partial(start, shell=True, env=environment, cwd=tmp_path)
    local = run(f"exec {serve.replace('--port 4567', '--port 0')}")
    for line in first_lines(local, 6):
        name, _, value = line.removeprefix("export ").strip().partition("=")
        environment[name] = value
    produce, consume = others
    run(f"exec {produce}")
    found = first_lines(run(f"exec {consume}"), 100)
    assert len(set(found)) == 100


def test_the_readme_and_the_quickstart_say_how_to_install_from_source() -> None:
    """The package is not on PyPI yet, so no page may say to install it by name."""
    for name in ("README.md", "docs/quickstart.md"):
        page = (ROOT / name).read_text()
        assert "pip install ." in page
        assert "from a checkout" in " ".join(page.split())
        assert "pip install kinesumer" not in page

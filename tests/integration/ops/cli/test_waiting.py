"""Test what ``consume`` and ``produce`` show on a terminal while they run."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.ops.cli.conftest import (
    COMMAND,
    CONSUME,
    TIMEOUT_SECONDS,
    finished,
    lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.testing import EmbeddedAws
    from tests.integration.ops.cli.conftest import Process, Starter


class Errors:
    """Processes whose standard error is a terminal."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self._processes: list[Process] = []
        self.text = ""

    def start(self, *arguments: str) -> Process:
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=self._theirs
        )
        self._processes.append(process)
        return process

    def until(self, words: str) -> None:
        """Read until the text appears on the terminal."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while words not in self.text:
            left_seconds = max(0.0, deadline - time.monotonic())
            assert select.select([self._ours], [], [], left_seconds)[0], self.text
            self.text += os.read(self._ours, 65536).decode()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Errors]:
    errors = Errors()
    yield errors
    errors.close()


def test_consume_says_on_a_terminal_what_it_waits_for(
    aws: EmbeddedAws, terminal: Errors, start: Starter
) -> None:
    aws.create_table()
    aws.create_stream("orders", shards=2)
    shown = terminal.start(*CONSUME)
    piped = start("consume", "orders", "--app=b", "--start=TRIM_HORIZON")
    terminal.until("waiting for records from orders… (client one, 2 shards)")
    aws.put("orders", b"{}", "key")
    for process in (shown, piped):
        [line] = lines(process, 1)
        assert json.loads(line)["data"] == "{}"
        process.send_signal(signal.SIGTERM)
    assert finished(piped)[1].startswith(b"leaving: ")
    terminal.until("leaving: ")
    finished(shown)


def test_produce_counts_sample_records_on_a_terminal(
    aws: EmbeddedAws, terminal: Errors
) -> None:
    aws.create_stream("orders")
    process = terminal.start("produce", "orders", "--generate=100/s")
    terminal.until(" records made (Ctrl-C ends) … 1 s")
    process.send_signal(signal.SIGINT)
    assert b" lines put as " in finished(process)[0]

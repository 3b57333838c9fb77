"""Test that programs with ``stop_signals=True`` leave at a signal, and stop at two."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS

INT, TERM = signal.SIGINT, signal.SIGTERM


@contextmanager
def program(aws: EmbeddedAws, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and wait until it has its first record."""
    aws.create_stream("orders", shards=1)
    aws.put("orders", b"one", "key")
    command = [sys.executable, "-m", "tests.integration.client.programs", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        timer = threading.Timer(PATIENCE_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "one\n"
            yield process
        finally:
            timer.cancel()
            process.kill()


def assert_left() -> None:
    """Assert that the record is done, and that the client has left."""
    info = subprocess.check_output(
        [sys.executable, "-m", "kinesumer.ops.cli", "status", "--app=app", "--json"]
    )
    status = json.loads(info)
    assert status["members"] == []
    assert status["streams"][0]["millis_behind_latest"] == 0


@pytest.mark.process
@pytest.mark.parametrize("full", [[], ["FULL"]])
@pytest.mark.parametrize(
    ("main", "number"),
    [("loop", TERM), ("run", INT), ("blocking_loop", TERM), ("blocking_run", INT)],
)
def test_a_signal_lets_the_client_leave_even_without_descriptors_and_the_program_end(
    kinesumer_aws: EmbeddedAws, main: str, number: signal.Signals, full: list[str]
) -> None:
    """No module can be imported then, either."""
    with program(kinesumer_aws, main, *full) as process:
        process.send_signal(number)
        output, errors = process.communicate()
    assert (output, process.returncode) == ("ended\n", 0), errors
    assert errors == "" or full
    assert_left()


@pytest.mark.process
@pytest.mark.parametrize(
    ("main", "number", "status"),
    [
        ("loop", TERM, -TERM),
        ("run", INT, -INT),
        ("blocking_loop", INT, -INT),
    ],
)
def test_a_second_signal_stops_at_once(
    kinesumer_aws: EmbeddedAws, main: str, number: signal.Signals, status: int
) -> None:
    with program(kinesumer_aws, main, "STUCK") as process:
        process.send_signal(number)
        time.sleep(0.4)  # two signals within 0.2 seconds count as one
        assert process.poll() is None
        process.send_signal(number)
        output, errors = process.communicate()
    assert (output, process.returncode) == ("", status)
    assert ("KeyboardInterrupt" in errors) == (number is INT)

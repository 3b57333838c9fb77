"""Test the example, which ``faststream run`` runs, and its own test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS, wait_until
from tests.support.crowd import EXAMPLES

FOLDER = EXAMPLES / "faststream"
pytestmark = pytest.mark.process


def test_the_command_runs_the_example_and_sigterm_hands_its_shards_over(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    for stream in ("orders", "invoices"):
        kinesumer_aws.create_stream(stream, shards=2)
    kinesumer_aws.put("orders", b'{"customer": "ann", "total": 100}', "ann")
    kinesumer_aws.put("orders", b"no JSON", "bob")
    with subprocess.Popen(
        [sys.executable, "-m", "faststream", "run", "app:app"],
        cwd=FOLDER,
        env={**os.environ, "DEAD_LETTERS": str(letters)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        timer = threading.Timer(PATIENCE_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            # FastStream logs each message there, too.
            assert any(line == "ann pays 119.0\n" for line in process.stdout)
            wait_until(letters.exists, "a dead letter is written")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
        finally:
            timer.cancel()
            process.kill()
    assert process.returncode == 0, errors
    assert "shut down gracefully" in errors
    assert json.loads(letters.read_text())["partition_key"] == "bob"
    # Nothing is left to the end of a lease, and all positions are stored.
    command = [sys.executable, "-m", "kinesumer.ops.cli", "status", "--json"]
    status = json.loads(subprocess.check_output([*command, "--app=billing"]))
    assert status["members"] == []
    assert [each["millis_behind_latest"] for each in status["streams"]] == [0, 0]


def test_the_test_of_the_example_needs_no_aws() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_app.py"],
        cwd=FOLDER,
        env={name: os.environ[name] for name in os.environ if "AWS" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout

"""Test short runs of the demo, and the end of its child processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import COMMAND
from tests.support.clock import PATIENCE_SECONDS, wait_until

DEMO_SECONDS = 180
# A low load: a demo spends most of its time on processes, faults and waiting anyway.
FEW = ("--rate=60", "--shards=2")
SMALL = ("demo", "--plain", "--clients=1", "--shards=1", "--rate=10")

pytestmark = [pytest.mark.process, pytest.mark.slow]


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo", *options],
        capture_output=True,
        text=True,
        timeout=2 * DEMO_SECONDS,
        check=False,
    )


def test_the_demo_is_good(environment: None) -> None:
    done = demo("--seconds=20", "--plain", *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "GOOD: nothing was lost, and every bound was kept." in done.stdout
    for text in ("split shard", "start client-4", "SIGKILL", "merge shards", "SIGTERM"):
        assert text in done.stdout


def test_a_closed_pipe_ends_the_demo_quietly(environment: None) -> None:
    done = subprocess.run(
        f"{' '.join([*COMMAND, *SMALL])} | head -n 1",
        shell=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert b"start client-1" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_child_process_outlives_the_demo(
    environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    # The demo's processes are found by this directory in their environment.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = subprocess.Popen(
        [*COMMAND, *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: len(processes_of(tmp_path)) >= 2)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    wait_until(lambda: processes_of(tmp_path) == [])
    assert b"Traceback" not in errors
    assert process.returncode == {2: 130, 15: 143, 9: -9}[number]


def processes_of(directory: Path) -> list[str]:
    """Return the ids of live processes with this directory as TMPDIR."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("no /proc to look for processes in")
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            with open(f"/proc/{pid}/stat") as file:
                is_zombie = ") Z " in file.read()
        except OSError:
            continue
        if f"TMPDIR={directory}".encode() in text and not is_zombie:
            found.append(pid)
    return [pid for pid in found if pid != str(os.getpid())]


@pytest.mark.spark
def test_the_demo_with_a_spark_query(environment: None) -> None:
    done = demo("--seconds=20", "--plain", "--spark", *FEW)
    assert "kill Spark's driver (SIGKILL" in done.stdout, done.stdout + done.stderr
    for fault in ("lost", "written twice", "out of order", "never produced"):
        kept = rf"^Spark: {fault} +0 +0 +kept$"
        assert re.search(kept, done.stdout, re.MULTILINE), done.stdout
    # Don't check how long shards pause: JVMs that start meanwhile slow them down.
    _, _, broken = done.stdout.partition("NOT GOOD")
    assert "Spark" not in broken, broken


def test_the_demo_without_pyspark_names_the_extra(
    environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "pyspark.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'pyspark'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = demo("--spark")
    assert done.returncode != 0
    assert "pip install 'kinesumer[spark]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1

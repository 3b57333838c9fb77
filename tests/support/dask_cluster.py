"""Run Dask's scheduler and workers as processes on 127.0.0.1."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.clock import wait_until


@contextmanager
def dask_scheduler(folder: Path, file: Path) -> Iterator[str]:
    """Run a scheduler without workers on a free port. Yield its address.

    It imports modules from a folder, and writes the file when it listens.
    """
    options = ["--host", "127.0.0.1", "--port", "0"]
    options += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with _running("scheduler", *options, cwd=folder):
        wait_until(lambda: file.exists() and file.read_text(), "Dask's scheduler")
        yield json.loads(file.read_text())["address"]


@contextmanager
def dask_worker(address: str, folder: Path) -> Iterator[None]:
    """Run a worker with two threads, which imports modules from a folder."""
    options = ["--nthreads", "2", "--no-nanny", "--no-dashboard"]
    with _running("worker", address, *options, cwd=folder):
        yield


@contextmanager
def _running(*command: str, cwd: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        process.kill()
        _, errors = process.communicate()
        sys.stderr.write(errors)

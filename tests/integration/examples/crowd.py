"""Processes of an example that are killed, and that are stopped and go on too late."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from tests.integration.examples.loading import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 60.0


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for something that has to happen."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"it doesn't happen: {what}"
        time.sleep(0.05)


class Crowd:
    """Processes of one example, gone when the block ends."""

    def __init__(self, example: str, stream: str) -> None:
        self._example, self._stream = example, stream
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def start(self, stop_in: str = "store", call: int = 0) -> subprocess.Popen[str]:
        """Start one more, which may stop itself at a call of a function.

        Later ones have lower client ids: they soon notice when those before them die.
        """
        worker = [sys.executable, "-m", "tests.integration.examples.worker"]
        client_id = f"client-{9 - len(self._processes)}"
        process = subprocess.Popen(
            [*worker, self._example, stop_in, str(call), client_id, self._stream],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process


def is_stopped(process: subprocess.Popen[str]) -> bool:
    """Tell whether a process has stopped itself."""
    assert process.poll() is None, process.communicate()[1]
    options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def ended(process: subprocess.Popen[str]) -> str:
    """Wait until a process has failed; return what it said."""
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, errors
    return errors

"""Starts processes as forks of a server that has imported the library once.

Starting Python and importing the library takes half a second of CPU time. Fleets start
hundreds of processes, so these share one import.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.system.process.preload"])
# Scenarios run on several threads, and each start of a process polls all the others.
# If two threads polled one process, only one of them would get its exit status.
_LOCK = threading.Lock()


class ForkedProcess:
    """A process that calls a function, with some methods of ``subprocess.Popen``."""

    def __init__(
        self,
        target: Callable[..., int | None],
        arguments: tuple[Any, ...],
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._process = CONTEXT.Process(
            target=_run, args=(target, arguments, str(log), dict(environment))
        )
        log.touch()
        with _LOCK:
            self._process.start()
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        if self.returncode is None:
            with _LOCK:
                self.returncode = self._process.exitcode
        return self.returncode

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        while (status := self.poll()) is None:
            time.sleep(0.005)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def _run(
    target: Callable[..., int | None],
    arguments: tuple[Any, ...],
    log: str,
    environment: Mapping[str, str],
) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(output, standard.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(target(*arguments))

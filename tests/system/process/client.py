"""One client process of a fleet, forked from a server that has imported the library.

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

from kinesumer.testing.trial.journal import Handled, Journal, now
from tests.system.process import worker
from tests.system.process.cable import Cable
from tests.system.process.worker import Note, Settings, notes_path


class Client:
    def __init__(
        self,
        settings: Settings,
        log: Path,
        cables: dict[str, Cable],
        environment: Mapping[str, str],
    ) -> None:
        self.client_id = settings.client_id
        self.log = log
        self.cables = cables
        self._is_read = False
        self._handled = Journal(Path(settings.journal), Handled)
        self._notes = Journal(Path(notes_path(settings)), Note)
        orders, self._orders = CONTEXT.Pipe(duplex=False)
        self.process = ForkedProcess(worker.main, (settings, orders), log, environment)
        orders.close()

    # --- what is done to it ----------------------------------------------------------

    def order(self, **orders: Any) -> None:
        """Change the handler's behaviour. Without arguments it becomes normal again."""
        if not self._orders.closed:
            with suppress(BrokenPipeError):  # the process has ended
                self._orders.send(worker.Orders(**orders))

    def kill(self) -> float:
        self.process.kill()
        return now()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        self.process.kill()
        self._orders.close()
        for cable in self.cables.values():
            cable.close()
        self.cables = {}

    # --- what it did -----------------------------------------------------------------

    @property
    def handled(self) -> list[Handled]:
        self._follow()
        return self._handled.lines

    @property
    def events(self) -> list[Note]:
        self._follow()
        return self._notes.lines

    @property
    def failure(self) -> str:
        failed = [e.text for e in self.events if e.name == "failed"]
        return failed[-1] if failed else ""

    def has(self, name: str) -> bool:
        return any(event.name == name for event in self.events)

    def _follow(self) -> None:
        if not self._is_read:
            # Poll before reading: an ended process writes nothing more.
            self._is_read = self.process.poll() is not None
            self._handled.follow()
            self._notes.follow()


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
        while (status := self.poll()) is None:
            time.sleep(0.005)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
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

"""Run an embedded AWS in this process, and each client in its own process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from benchmarks.http_server import TLS_DIRECTORY, served
from kinesumer.testing import EmbeddedAws, background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


PATIENCE_SECONDS = 60.0


class Fleet:
    """Starts worker processes, and kills those that still run at the end."""

    def __init__(
        self, aws: EmbeddedAws, stack: ExitStack, environment: dict[str, str]
    ) -> None:
        self.aws = aws
        self._stack, self._environment = stack, environment
        # Lets further servers use the certificate that the workers trust.
        self.tls_environment: dict[str, str] = {}

    def use_tls(self, directory: str) -> None:
        """Let workers use TLS, with a certificate in this directory."""
        front = served("benchmarks.tls_server", self.aws.url, directory)
        self._environment["AWS_ENDPOINT_URL"] = self._stack.enter_context(front)
        self._environment["AWS_CA_BUNDLE"] = str(Path(directory, "cert.pem"))
        self.tls_environment[TLS_DIRECTORY] = directory

    def start(self, app: str, streams: str, what: str, **environment: str) -> Worker:
        """Start a worker; ``what`` names its task."""
        return self.run("benchmarks.worker", app, streams, what, **environment)

    def run(self, module: str, *arguments: str, **environment: str) -> Worker:
        """Start a process that runs a module."""
        variables = {**os.environ, **self._environment, **environment}
        worker = Worker([module, *arguments], variables)
        self._stack.callback(worker.end)
        return worker


class Worker:
    """One worker process."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

        self._lines: Queue[str] = Queue()
        # Read continuously, since a worker would block on a full pipe.
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def line(self, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """Return the next line that the worker prints. Raises queue.Empty if late."""
        return self._lines.get(timeout=patience_seconds)

    def leave(self) -> list[str]:
        """Let the worker leave the group, and return its remaining lines."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._reading.join()
        return self.printed()

    def terminate(self) -> list[str]:
        """Send SIGTERM, wait until the worker ends, and return its remaining lines."""
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._reading.join()
        return self.printed()

    def printed(self) -> list[str]:
        """Return the lines that are left of what the worker printed."""
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def end(self) -> None:
        """Kill the worker if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reading.join()


@contextmanager
def producing(
    aws: EmbeddedAws, streams: Iterable[str], per_second: float
) -> Iterator[None]:
    """Put records at this average rate while the block runs.

    The intervals and keys are random. A record's data is the time of its put.
    """
    names, draw = list(streams), random.Random(1)

    def put() -> float:
        share = draw.expovariate(1.0)
        aws.put(draw.choice(names), repr(time.time()).encode(), str(draw.random()))
        return share

    with repeating(put, per_second):
        yield


@contextmanager
def repeating(work: Callable[[], float], per_second: float) -> Iterator[None]:
    """Do the work on a thread while the block runs, so that its results add up.

    Their sum grows by ``per_second`` each second.
    """
    stop = threading.Event()

    def repeat() -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += work() / per_second

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def fleet(*, tls: bool = False) -> Iterator[Fleet]:
    """Yield a fleet without workers, on an embedded AWS with only a state store.

    With ``tls``, the workers reach all services through TLS 1.3.
    """
    with background(EmbeddedAws()) as aws, ExitStack() as stack:
        aws.create_table("state")
        made = Fleet(aws, stack, aws.environment())
        if tls:
            made.use_tls(stack.enter_context(tempfile.TemporaryDirectory()))
        yield made

"""An embedded AWS in this process, and clients in processes of their own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from queue import Queue
from typing import TYPE_CHECKING, Any

from kinesumer.local import EmbeddedAws, background

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PATIENCE_SECONDS = 60.0


class Fleet:
    """Starts workers, and ends those that are left."""

    def __init__(self, aws: EmbeddedAws, stack: ExitStack) -> None:
        self.aws = aws
        self._stack = stack

    def start(self, app: str, streams: str, what: str, **environment: str) -> Worker:
        """Start a worker."""
        worker = Worker(
            [app, streams, what],
            {**os.environ, **self.aws.environment(), **environment},
        )
        self._stack.callback(worker.end)
        return worker


class Worker:
    """One worker process."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

        self._lines: Queue[str] = Queue()
        # Read all the time: a worker whose lines nobody takes would stand still.
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def line(self) -> str:
        """Return the next line that it says. Raises queue.Empty after a while."""
        return self._lines.get(timeout=PATIENCE_SECONDS)

    def leave(self) -> list[str]:
        """Let it leave the group; return all lines that nobody has taken."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._reading.join()
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def end(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reading.join()


@contextmanager
def producing(
    aws: EmbeddedAws, streams: Iterable[str], per_second: float
) -> Iterator[None]:
    """Put records at a rate, at random moments and with random keys; each holds the
    time at which it was put."""
    stop, names, draw = threading.Event(), list(streams), random.Random(1)

    def produce() -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += draw.expovariate(per_second)
            aws.put(draw.choice(names), repr(time.time()).encode(), str(draw.random()))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def fleet() -> Iterator[Fleet]:
    """Give an empty embedded AWS with a state store."""
    with background(EmbeddedAws()) as aws, ExitStack() as stack:
        aws.create_table("state")
        yield Fleet(aws, stack)

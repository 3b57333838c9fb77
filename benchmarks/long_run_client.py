"""Run one client process of the long run, which measures its own resources.

    python -m benchmarks.long_run_client APP STREAMS NUMBERS SAMPLES SECONDS

Appends the number in each record to the file NUMBERS. Every SECONDS, appends a line of
JSON to the file SAMPLES. On a line of standard input, the client leaves and a new one
starts in the same process. SIGTERM or the end of the input ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from kinesumer import Kinesumer, Start

ESTABLISHED = "01"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Consumer:
    """Consumes until it is told to end."""

    def __init__(self, app: str, streams: str, numbers: str) -> None:
        self._app, self._streams = app, streams.split(",")
        self._path = Path(numbers)
        self._numbers = array("I")
        self._client: Kinesumer | None = None
        self._over = False
        self._leaving: asyncio.Task[None] | None = None
        # The number of clients that this process has started, one after the other.
        self.clients = 0
        self.records = 0

    async def run(self) -> None:
        """Run one client after the other."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.end)
        listening = asyncio.create_task(self._listen())
        while not self._over:
            await self._consume()
        self.flush()
        listening.cancel()

    async def _consume(self) -> None:
        self.clients += 1
        async with Kinesumer(self._app, table="state") as self._client:
            records = self._client.consume(self._streams, start=Start.TRIM_HORIZON)
            async for record in records:
                self._numbers.append(int(record.data))

    async def _listen(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            self._leave()
        self.end()

    def end(self) -> None:
        """Leave the group, and start no other client."""
        self._over = True
        self._leave()

    def _leave(self) -> None:
        if self._client is not None:
            self._leaving = asyncio.create_task(self._client.leave())

    def flush(self) -> None:
        """Append the record numbers collected since the last flush to the file."""
        with self._path.open("ab") as file:
            self._numbers.tofile(file)
        self.records += len(self._numbers)
        del self._numbers[:]


def sample() -> dict[str, int]:
    """Return how many resources of each kind this process has now."""
    everything: list[Any] = gc.get_objects()
    # Compare exact types, since isinstance() would load lazy objects. The result has
    # the tasks of all threads' loops.
    tasks = [one for one in everything if type(one) is asyncio.Task]
    descriptors, connected = len(os.listdir("/proc/self/fd")) - 1, connections()
    return {
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES,
        "descriptors": descriptors,
        "others": descriptors - connected,
        "tasks": sum(not task.done() for task in tasks),
        "threads": threading.active_count(),
        "connections": connected,
        "objects": len(everything),
    }


def connections() -> int:
    """Return how many established TCP connections this process has."""
    mine = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # the listing's own descriptor, now closed
            continue
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(f[3] == ESTABLISHED and f"socket:[{f[9]}]" in mine for f in fields)


async def watch(consumer: Consumer, path: str, seconds: float) -> None:
    """Append a sample to a file at every interval, forever."""
    while True:
        await asyncio.sleep(seconds)
        consumer.flush()
        more = {"clients": consumer.clients, "records": consumer.records}
        write(path, {"at": time.time(), **more, **sample()})


def write(path: str, line: dict[str, float]) -> None:
    """Append a line of JSON to a file."""
    with Path(path).open("a") as file:
        file.write(json.dumps(line) + "\n")


async def main() -> None:
    """Run until told to end."""
    app, streams, numbers, samples, seconds = sys.argv[1:]
    consumer = Consumer(app, streams, numbers)
    running = asyncio.create_task(consumer.run())
    watching = asyncio.create_task(watch(consumer, samples, float(seconds)))
    await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        watching.result()
    watching.cancel()
    await running


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(asctime)s %(process)d %(message)s")
    asyncio.run(main())

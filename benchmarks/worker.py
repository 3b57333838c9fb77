"""Run one client in its own process, for the benchmark that starts it.

    python -m benchmarks.worker APP STREAMS WHAT

STREAMS are names, separated by commas; ``NAME@CONSUMER`` is read by fan-out. WHAT
determines the output:

- ``each`` prints a line per record: seconds since 1970, stream, shard id, data.
- ``first`` prints the seconds from the client's start to its first record.
- ``caught-up`` prints the CPU seconds used in IDLE_SECONDS without records, how many of
  these were in the kernel, and the resident bytes.
- ``idle`` prints the same for shards that have had no record for a long time.
- ``steady:SHARDS`` prints the CPU seconds used in IDLE_SECONDS, the resident bytes, the
  sockets, all file descriptors, and the records of these seconds. They begin some time
  after the client has claimed so many shards.
- ``never`` prints the peak of the resident bytes while user code asks for one record.

A line on standard input lets the client leave.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kinesumer import Kinesumer, Start, Stream
from kinesumer.core import pacing

if TYPE_CHECKING:
    from kinesumer import Records

IDLE_SECONDS = 20.0
# After the last claim. Shards without records are then read at the lowest rate.
SETTLED_SECONDS = 25.0
NEVER_SECONDS = 12.0


def say(*words: object) -> None:
    """Print a line and flush."""
    print(*words, flush=True)


async def each(records: Records) -> None:
    """Print a line for each record."""
    async for record in records:
        say(time.time(), record.stream, record.shard_id, record.data.decode())


async def first(records: Records) -> None:
    """Print the seconds to the first record, and continue to consume."""
    began = time.monotonic()
    async for _ in records:
        say(time.monotonic() - began)
        break
    async for _ in records:
        pass


async def caught_up(records: Records) -> None:
    """Print the cost of waiting while shards are read as often as if caught up."""
    pacing.IDLE_AFTER_SECONDS = 1e9
    await wait(records)


async def wait(records: Records) -> None:
    """Print the cost of waiting, measured when all shards should be claimed."""
    waiting = asyncio.ensure_future(anext(aiter(records)))
    await asyncio.sleep(8)
    began = os.times()
    await asyncio.sleep(IDLE_SECONDS)
    ended = os.times()
    user, system = ended.user - began.user, ended.system - began.system
    say(user + system, system, resident_bytes())
    waiting.cancel()


async def idle(records: Records) -> None:
    """Print the cost of waiting while shards are read at the lowest rate."""
    pacing.IDLE_AFTER_SECONDS = 0.5
    await wait(records)


async def steady(records: Records, client: Kinesumer, shards: int) -> None:
    """Print the cost of consuming, measured after this number of shards is claimed."""
    seen = 0

    async def count() -> None:
        nonlocal seen
        async for _ in records:
            seen += 1

    counting = asyncio.ensure_future(count())
    while len(client.assignment()) < shards:
        await asyncio.sleep(1)
    await asyncio.sleep(SETTLED_SECONDS)
    began, before = os.times(), seen
    await asyncio.sleep(IDLE_SECONDS)
    ended, after = os.times(), seen
    cpu = ended.user - began.user + ended.system - began.system
    say(cpu, resident_bytes(), *open_files(), after - before)
    counting.cancel()


async def never(records: Records) -> None:
    """Print the peak memory while user code doesn't ask for a second record."""
    waiting = asyncio.ensure_future(anext(aiter(records)))
    most, until = 0, time.monotonic() + NEVER_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        most = max(most, resident_bytes())
    say(most)
    waiting.cancel()


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def open_files() -> tuple[int, int]:
    """Return the number of this process's sockets, and of all its file descriptors."""
    files = list(Path("/proc/self/fd").iterdir())
    return sum(file.is_socket() for file in files), len(files)


TASKS = {
    "each": each,
    "first": first,
    "caught-up": caught_up,
    "idle": idle,
    "never": never,
}


def as_stream(text: str) -> Stream:
    """Return a stream from NAME or NAME@CONSUMER."""
    name, _, consumer = text.partition("@")
    return Stream(name, fan_out=consumer or None)


async def main() -> None:
    """Run one client."""
    app, streams, what = sys.argv[1:]
    what, _, shards = what.partition(":")
    async with Kinesumer(app, table="state") as client:
        named = [as_stream(text) for text in streams.split(",")]
        records = client.consume(named, start=Start.TRIM_HORIZON)
        if what == "steady":
            task = asyncio.ensure_future(steady(records, client, int(shards)))
        else:
            task = asyncio.ensure_future(TASKS[what](records))
        told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await client.leave()
        await task


if __name__ == "__main__":
    asyncio.run(main())

"""Run one client in its own process, as the benchmark that starts it says.

    python -m benchmarks.worker APP STREAMS WHAT

WHAT is ``each`` (a line per record: seconds since 1970, stream, shard id, data),
``first`` (seconds from its start to the first record), ``caught-up`` (CPU seconds of
IDLE_SECONDS, thereof in the kernel, resident bytes), ``idle`` (the same, without a
record for long) or ``never`` (resident bytes, at most, of a consumer that asks once). A
line on standard input lets the client leave.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kinesumer import Kinesumer, Start
from kinesumer.core import pacing

if TYPE_CHECKING:
    from kinesumer import Records

IDLE_SECONDS = 20.0
NEVER_SECONDS = 12.0


def say(*words: object) -> None:
    """Print a line and flush."""
    print(*words, flush=True)


async def each(records: Records) -> None:
    """Report every record."""
    async for record in records:
        say(time.time(), record.stream, record.shard_id, record.data.decode())


async def first(records: Records) -> None:
    """Report the time of the first record, and continue."""
    began = time.monotonic()
    async for _ in records:
        say(time.monotonic() - began)
        break
    async for _ in records:
        pass


async def caught_up(records: Records) -> None:
    """Report the cost of waiting shortly after records arrived."""
    pacing.IDLE_AFTER_SECONDS = 1e9
    await wait(records)


async def wait(records: Records) -> None:
    """Report the cost of waiting after all shards are claimed."""
    waiting = asyncio.ensure_future(anext(aiter(records)))
    await asyncio.sleep(8)
    began = os.times()
    await asyncio.sleep(IDLE_SECONDS)
    ended = os.times()
    user, system = ended.user - began.user, ended.system - began.system
    say(user + system, system, resident_bytes())
    waiting.cancel()


async def idle(records: Records) -> None:
    """Report the cost of waiting while shards are read least often."""
    pacing.IDLE_AFTER_SECONDS = pacing.IDLE_SLOWING_SECONDS = 0.5
    await wait(records)


async def never(records: Records) -> None:
    """Report the size of the process while no second record is requested."""
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


TASKS = {
    "each": each,
    "first": first,
    "caught-up": caught_up,
    "idle": idle,
    "never": never,
}


async def main() -> None:
    """Run one client."""
    app, streams, what = sys.argv[1:]
    async with Kinesumer(app, table="state") as client:
        records = client.consume(streams.split(","), start=Start.TRIM_HORIZON)
        task = asyncio.ensure_future(TASKS[what](records))
        told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await client.leave()
        await task


if __name__ == "__main__":
    asyncio.run(main())

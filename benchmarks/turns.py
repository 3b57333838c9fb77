"""Simulate how long records of quiet shards wait beside a shard with a backlog.

    python -m benchmarks.turns

A client has ten shards in virtual time. One has a backlog, and the others get a record
each second. User code holds the event loop for 10 ms with each record. "turns" is the
library's rule. Without it, the shard whose batches began to wait first goes on until
none is left. The figures are the median and the longest time from a quiet record's
arrival to user code.
"""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.report import Report
from kinesumer.core.turns import Turns
from kinesumer.testing.simulation.run import reduce_logging
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer import Record

SHARDS, BACKLOG, WORK_SECONDS = 10, 10_000, 0.01
SETTLE_SECONDS, OVER_SECONDS = 10.0, 60.0


def main() -> None:
    """Print the waits with turns, and without."""
    reduce_logging()
    report = Report("wait of a record in a quiet shard")
    report.note("turns", delays())
    with patch.object(Turns, "begin", lambda *_: None):
        report.note("no turns", delays())
    report.print()


def delays() -> str:
    """Return the median and the longest wait."""
    found: list[float] = []

    @in_virtual_time
    async def measure(world: World) -> None:
        first, *quiet = world.kinesis.create_stream("many", SHARDS).open
        for _ in range(BACKLOG):
            world.put("old", stream="many", hash_key=first.shard.first_hash)

        async def handle(record: Record) -> None:
            if record.data == b"new":
                arrived = record.approximate_arrival_timestamp or 0.0
                found.append(world.clock.wall() - arrived)
            await client.machine.busy(WORK_SECONDS)

        client = world.client("c1", "many", handle=handle)
        await world.until(lambda: client.seen)
        await asyncio.sleep(SETTLE_SECONDS)
        for _ in range(int(OVER_SECONDS)):
            for shard in quiet:
                world.put("new", stream="many", hash_key=shard.shard.first_hash)
                await asyncio.sleep(1 / len(quiet))
        await world.until(lambda: len(found) == len(quiet) * OVER_SECONDS, 600)
        client.kill()

    measure()
    return f"median {median(found):.2f} s, at most {max(found):.2f} s"


if __name__ == "__main__":
    main()

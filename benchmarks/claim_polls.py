"""Simulate how long shards pause in a planned move, and the read units of a minute.

    python -m benchmarks.claim_polls

Ten shards get ten records a second each, and calls of the state store take 10 ms. A
second client joins and gets half of the shards, in eight runs at different moments. The
pause of a shard is the longest time between two of its records. Then no shard moves for
ten minutes.
``benchmarks.with_constants`` with constants of ``coordination.lease_coordinator``
shows other intervals.
"""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.blocked_loop import Slow
from benchmarks.report import Report
from kinesumer.testing.simulation.run import reduce_logging
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer import Record

SHARDS, RECORD_SECONDS = 10, 0.1
SETTLE_SECONDS, CALM_MINUTES = 30.0, 10
LATER_SECONDS = [0.25 * run for run in range(8)]


def main() -> None:
    """Print the pauses and the read units."""
    reduce_logging()
    report = Report(f"{SHARDS // 2} of {SHARDS} shards move to a client that joins")
    moved: list[float] = []
    units: list[float] = []
    for later in LATER_SECONDS:
        in_virtual_time(_measure)(moved, units, later)
    report.note("pause of a shard", f"median {median(moved):.2f} s, {max(moved):.2f} s")
    report.note("read units of a calm minute", f"{median(units):,.0f}")
    report.print()


async def _measure(
    world: World, moved: list[float], units: list[float], later: float
) -> None:
    last: dict[str, float] = {}
    pauses: dict[str, float] = {}

    async def note(record: Record) -> None:
        now, shard_id = world.clock.now(), record.shard_id
        pause = now - last.get(shard_id, now)
        pauses[shard_id] = max(pauses.get(shard_id, 0.0), pause)
        last[shard_id] = now

    world.kinesis.create_stream("moved", SHARDS)
    world.loop.create_task(_produce(world))
    store = Slow(world.table)
    world.client("c1", "moved", handle=note, store=store)
    await world.until(lambda: len(last) == SHARDS)
    await asyncio.sleep(SETTLE_SECONDS + later)
    pauses.clear()
    second = world.client("c2", "moved", handle=note, store=store)
    await asyncio.sleep(SETTLE_SECONDS)
    moved += [pauses[shard_id] for shard_id in second.held]
    before = world.table.usage.read_units
    await asyncio.sleep(60 * CALM_MINUTES)
    units.append((world.table.usage.read_units - before) / CALM_MINUTES)


async def _produce(world: World) -> None:
    shards = list(world.kinesis.stream("moved").open)
    while True:
        for shard in shards:
            world.put("x", stream="moved", hash_key=shard.shard.first_hash)
        await asyncio.sleep(RECORD_SECONDS)


if __name__ == "__main__":
    main()

"""Simulate clients that can't reach Kinesis, by how soon their shards move.

    python -m benchmarks.unreachable

Two clients share ten shards, and each shard gets a record a second. In the first case
one client can't reach Kinesis for five minutes, in the second one for 20 s, and in the
third one both can't for 20 s. Each line has a value of ``unreachable_after_seconds``,
the longest time from a record's arrival to user code, and the claims of shards after
the start. "never" means that a client keeps its shards.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.report import Report
from kinesumer.testing.simulation.run import reduce_logging
from tests.support.faulty import FaultySource
from tests.support.world import Client, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer import Record

SHARDS = 10
CASES = {
    "one client can't reach Kinesis for 300 s": (1, 300.0),
    "one client can't reach Kinesis for 20 s": (1, 20.0),
    "both clients can't reach Kinesis for 20 s": (2, 20.0),
}
RULES = {"5 s": 5.0, "30 s": 30.0, "never": 1e9}
SETTLE_SECONDS = 60.0


def main() -> None:
    """Print a table for each case."""
    reduce_logging()
    for case, (clients, seconds) in CASES.items():
        report = Report(case)
        for rule, after in RULES.items():
            in_virtual_time(_measure)(report, rule, after, clients, seconds)
        report.print()


async def _measure(
    world: World, report: Report, rule: str, after: float, down: int, seconds: float
) -> None:
    sources: list[FaultySource] = []
    delays = [0.0]

    async def note(record: Record) -> None:
        arrived = record.approximate_arrival_timestamp
        delays.append(world.clock.wall() - (arrived or 0.0))

    def source(name: str) -> FaultySource:
        sources.append(FaultySource(world.kinesis.source(name)))
        return sources[-1]

    world.kinesis.create_stream("shared", SHARDS)
    producer = world.loop.create_task(_produce(world))
    clients = [
        world.client(
            name,
            "shared",
            source=source,
            handle=note,
            unreachable_after_seconds=after,
        )
        for name in ("c1", "c2")
    ]
    await world.until(lambda: all(client.held for client in clients))
    await asyncio.sleep(SETTLE_SECONDS)
    delays[:] = [0.0]
    claims = _claims(world)
    await _cut_off(sources[:down], seconds)
    await asyncio.sleep(SETTLE_SECONDS)
    claims = _claims(world) - claims
    report.note(rule, f"at most {max(delays):.0f} s, {claims} claims")
    await _end(producer, clients)


async def _cut_off(sources: list[FaultySource], seconds: float) -> None:
    for source in sources:
        source.down = True
    await asyncio.sleep(seconds)
    for source in sources:
        source.down = False


def _claims(world: World) -> int:
    """Return how often the shards were claimed."""
    return sum(row.epoch for row in world.shard_rows("shared").values())


async def _produce(world: World) -> None:
    shards = list(world.kinesis.stream("shared").open)
    while True:
        for shard in shards:
            world.put("x", stream="shared", hash_key=shard.shard.first_hash)
        await asyncio.sleep(1)


async def _end(producer: asyncio.Task[None], clients: list[Client]) -> None:
    producer.cancel()
    for client in clients:
        client.kill()
    await asyncio.gather(producer, return_exceptions=True)


if __name__ == "__main__":
    main()

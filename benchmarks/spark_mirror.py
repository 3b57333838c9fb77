"""Simulate what the copy of a Spark query's positions in the state store costs.

    python -m benchmarks.spark_mirror

A query with a trigger each second reads 100 shards with new records, in virtual time.
Its positions are written at most once in five seconds, or after every batch. Then
the query dies, and a client takes over the group.
"""

from __future__ import annotations

import asyncio

from benchmarks.report import Report
from kinesumer.model.streams import HASH_KEYS
from tests.support.mirrored_query import Query
from tests.support.world import World, in_virtual_time

SHARDS, SECONDS = 100, 60
RULE_SECONDS, EACH_BATCH_SECONDS = 5.0, 0.01


def main() -> None:
    """Print the table."""
    report = Report(f"a query of {SHARDS} shards, with a batch each second")
    for name, interval in (
        ("written each 5 s", RULE_SECONDS),
        ("written after each batch", EACH_BATCH_SECONDS),
    ):
        writes, repeated, waited = run(interval)
        report.note(f"{name}: writes in a minute", f"{writes:,}")
        report.note(f"{name}: records repeated after a crash", f"{repeated:,}")
        report.note(f"{name}: wait of the client", f"{waited:.0f} s")
    report.print()


def run(interval_seconds: float) -> tuple[int, int, float]:
    """Return the writes, the repeated records, and the wait after a crash."""
    found = [(0, 0, 0.0)]

    @in_virtual_time
    async def measure(world: World) -> None:
        world.kinesis.create_stream("many", SHARDS)
        query = await Query(
            world, None, "many", commit_interval_seconds=interval_seconds
        ).start()
        await batch(world, query)
        await asyncio.sleep(10.0)
        query.store.sent.clear()
        for _ in range(SECONDS):
            await batch(world, query)
            await asyncio.sleep(1.0)
        writes = len(query.store.writes("sequence_number"))
        query.kill()
        killed = world.clock.now()
        client = world.client("c1", "many")
        await world.until(lambda: client.held, 60.0)
        waited = world.clock.now() - killed
        await asyncio.sleep(20.0)
        found[0] = writes, len(client.texts), waited

    measure()
    return found[0]


async def batch(world: World, query: Query) -> None:
    """Put a record into each shard, and read a batch."""
    for place in range(SHARDS):
        world.put("x", stream="many", hash_key=place * HASH_KEYS // SHARDS)
    await query.batch()


if __name__ == "__main__":
    main()

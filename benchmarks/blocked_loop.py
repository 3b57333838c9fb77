"""Simulate a client whose user code blocks the event loop, with and without slices.

    python -m benchmarks.blocked_loop

User code holds the event loop for some seconds with each record. Then another client,
with half of the shards, is killed. Kinesis and the state store are in memory and answer
after 20 ms. This prints, in virtual time, how long it takes until all shards have
delivered a record, with the slices of time that the event loop gets after a long hold,
and without.
"""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.report import Report
from kinesumer.runtime import clock
from kinesumer.testing.simulation.run import reduce_logging
from tests.support.world import Client, World, in_virtual_time

SHARDS = 10
RECORDS = 50
LATENCY_SECONDS = 0.02
SLICE_SECONDS = clock.MAX_YIELD_SECONDS


class Slow:
    """Calls the methods of a port 20 ms later."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def call(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(LATENCY_SECONDS)
            return await method(*args, **options)

        return call if asyncio.iscoroutinefunction(method) else method


def run(hold_seconds: float) -> float:
    """Return how long after the kill all shards had delivered a record."""
    found = [0.0]

    @in_virtual_time
    async def measure(world: World) -> None:
        stream = world.kinesis.create_stream("orders", SHARDS)
        for shard in list(stream.shards.values()):
            for number in range(RECORDS):
                world.put(str(number), hash_key=shard.first_hash)

        async def hold(_: object) -> None:
            await first.machine.busy(hold_seconds)

        async def wait(_: object) -> None:
            await asyncio.Event().wait()

        first, second = (
            world.client(
                name,
                source=lambda name: Slow(world.kinesis.source(name)),
                store=Slow(world.table),
                handle=handle,
            )
            for name, handle in (("c1", hold), ("c2", wait))
        )
        await world.until(lambda: first.seen and second.seen)
        await asyncio.sleep(60)
        second.kill()
        killed_at = world.clock.now()
        await world.until(lambda: len(shards_of(first)) == SHARDS, seconds=600)
        found[0] = world.clock.now() - killed_at

    measure()
    return found[0]


def shards_of(client: Client) -> set[str]:
    """Return the shards of which a client has delivered records."""
    return {record.shard_id for record in client.seen}


def main() -> None:
    """Print one table."""
    reduce_logging()
    report = Report("Half of the shards move to a client whose event loop is blocked")
    for hold_seconds in (0.1, 0.5, 1.0, 2.0):
        for what, most in (("slices", SLICE_SECONDS), ("none", 0.0)):
            clock.MAX_YIELD_SECONDS = most
            figure = f"{run(hold_seconds):,.0f} s"
            report.note(f"user code holds for {hold_seconds:g} s, {what}", figure)
    report.print()


if __name__ == "__main__":
    main()

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
import random
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report
from kinesumer import Kinesumer
from kinesumer.model.streams import Start
from kinesumer.runtime import clock
from kinesumer.testing.memory import MemoryKinesis, MemoryStore, memory_ports
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.run import reduce_logging

if TYPE_CHECKING:
    from kinesumer.testing.simulation.machine import Machine

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


class Fleet:
    """Two clients of one app. User code of the first one blocks its event loop."""

    def __init__(self, loop: VirtualLoop, hold_seconds: float) -> None:
        self.loop, self.hold_seconds = loop, hold_seconds
        self.kinesis, self.store = (
            MemoryKinesis(loop.services),
            MemoryStore(loop.services),
        )
        self.ids = count()
        stream = self.kinesis.create_stream("orders", SHARDS)
        for shard in list(stream.shards.values()):
            for number in range(RECORDS):
                self.kinesis.put("orders", b"%d" % number, "key", shard.first_hash)
        self.seen: dict[str, set[str]] = {"c1": set(), "c2": set()}

    async def consume(self, name: str, machine: Machine) -> None:
        """Consume with a client; the second one keeps its first record for ever."""

        async def open_source(_: object) -> Any:
            return Slow(self.kinesis.source("orders"))

        def new_id() -> str:
            return f"id-{next(self.ids)}"

        draws = random.Random(name)
        ports = memory_ports(machine, draws, new_id, Slow(self.store), open_source)
        client = Kinesumer("app", client_id=name, _ports=ports)
        async with client:
            async for record in client.consume("orders", start=Start.TRIM_HORIZON):
                self.seen[name].add(record.shard_id)
                if name == "c2":
                    await asyncio.Event().wait()
                await machine.busy(self.hold_seconds)

    async def measure(self) -> float:
        """Kill the second client. Return when the first has delivered of all shards."""
        machines = {name: self.loop.machine(name) for name in ("c1", "c2")}
        for name, machine in machines.items():
            self.loop.spawn(machine, self.consume(name, machine))
        while not all(self.seen.values()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        machines["c2"].kill()
        killed_at = self.loop.services.now()
        while len(self.seen["c1"]) < SHARDS:
            await asyncio.sleep(0.01)
        return self.loop.services.now() - killed_at


def run(hold_seconds: float) -> float:
    """Return how long after the kill all shards had delivered a record."""
    loop = VirtualLoop(random.Random(1))
    return loop.run(Fleet(loop, hold_seconds).measure())


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

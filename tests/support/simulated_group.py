"""Simulate single scenarios in small groups, without clock errors or random faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.convergence import check_settled
from kinesumer.testing.simulation.invariants.base import Ownership, ShardTrace
from kinesumer.testing.simulation.simulation import Simulation


async def steady(sim: Simulation, seconds: float = 20.0) -> None:
    """Start all clients, put records, and wait until the group is stable."""
    flow(sim)
    await sim.start_all()
    await asyncio.sleep(seconds)


def flow(sim: Simulation, every_seconds: float = 0.05) -> None:
    """Put records into all open shards repeatedly, while ``sim.producing``."""

    async def put() -> None:
        while sim.producing:
            sim.put_everywhere()
            await asyncio.sleep(every_seconds)

    sim.loop.spawn(sim.loop.services, put())


async def settle(sim: Simulation, seconds: float = 15.0) -> None:
    """Wait until the last records are done, and check that the group has settled."""
    await finish(sim, seconds)
    check_settled(sim)


async def finish(sim: Simulation, seconds: float = 15.0) -> None:
    """Wait until the last records are done."""
    sim.producing = False
    await asyncio.sleep(seconds)


async def outage(sim: Simulation, service: str, seconds: float) -> None:
    """Lose all requests to a service for some seconds."""
    for process in sim.processes:
        process.networks[service].set(lost=1.0)
    await asyncio.sleep(seconds)
    for process in sim.processes:
        process.networks[service].clear()


def traces(sim: Simulation) -> list[ShardTrace]:
    """Return the trace of each shard."""
    return list(sim.checker.shards.values())


def ownerships(sim: Simulation) -> Iterator[tuple[ShardTrace, Ownership]]:
    """Yield all ownerships of each shard, in order of their epochs."""
    for trace in traces(sim):
        for ownership in trace.ownerships.values():
            yield trace, ownership


def held_by(sim: Simulation, process: Process) -> list[ShardTrace]:
    """Return the shards that a process owns now."""
    name = process.client_id
    return [t for t in traces(sim) if t.row and t.row.get("owner_id") == name]


def pauses(sim: Simulation, since: float) -> list[float]:
    """Return for each change of owner how long the shard delivered no records."""
    found = []
    for trace in traces(sim):
        for epoch, ownership in trace.ownerships.items():
            before = trace.ownerships.get(epoch - 1)
            if before is None or ownership.claimed_at < since:
                continue
            assert before.ended_at is not None
            assert ownership.started_at is not None
            found.append(ownership.started_at - before.ended_at)
    return found


def leader(sim: Simulation) -> Process:
    """Return the process that leads."""
    assert sim.leader is not None
    return sim.leader

"""Small worlds for single scenarios: clocks agree, and nothing goes wrong by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kinesumer.simulation.scenarios import Scenario
from kinesumer.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kinesumer.simulation.client import Process
    from kinesumer.simulation.trace import Ownership, ShardTrace

Play = "Callable[[Simulation], Coroutine[Any, Any, None]]"


def simulate(
    play: Callable[[Simulation], Coroutine[Any, Any, None]],
    seed: int = 1,
    **scenario: Any,
) -> Simulation:
    """Play a scenario; the checker's violations are raised."""
    sim = Simulation(Scenario(**{"drift": 0.0, **scenario}), seed)
    sim.run(play)
    assert not sim.loop.failures
    return sim


async def steady(sim: Simulation, seconds: float = 20.0) -> None:
    """Start everybody and let the group come to rest, with records flowing."""
    flow(sim)
    await sim.start_all()
    await asyncio.sleep(seconds)


def flow(sim: Simulation, every_seconds: float = 0.05) -> None:
    """Put a record into each open shard, again and again, while ``producing``."""

    async def put() -> None:
        while sim.producing:
            for name in sim.streams:
                for shard in sim.kinesis.stream(name).open:
                    sim.put(name, shard.shard.first_hash)
            await asyncio.sleep(every_seconds)

    sim.background.append(asyncio.get_running_loop().create_task(put()))


async def finish(sim: Simulation, seconds: float = 15.0) -> None:
    """Let the last records be done."""
    sim.producing = False
    await asyncio.sleep(seconds)


def traces(sim: Simulation) -> list[ShardTrace]:
    """Return what happened to each shard."""
    return list(sim.checker.shards.values())


def ownerships(sim: Simulation) -> Iterator[tuple[ShardTrace, Ownership]]:
    """Return all epochs of all shards, in order."""
    for trace in traces(sim):
        for ownership in trace.ownerships.values():
            yield trace, ownership


def held_by(sim: Simulation, process: Process) -> list[ShardTrace]:
    """Return the shards that a process owns now."""
    return [
        trace
        for trace in traces(sim)
        if trace.row is not None and trace.row.get("owner_id") == process.client_id
    ]


def pauses(sim: Simulation, since: float) -> list[float]:
    """Return for how long shards delivered nothing when they changed hands."""
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
    (row,) = sim.store.rows(f"leader#{sim.scenario.app}")
    return next(p for p in sim.living if p.client_id == row["client_id"])

"""Let a simulated group come to rest before a test disturbs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kinesumer.testing.simulation.convergence import raise_violation
from kinesumer.testing.simulation.invariants.liveness import (
    LivenessMonitor,
    LossLogHandler,
)
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

Upset = Callable[[Simulation, LivenessMonitor], Awaitable[None]]

SCENARIO = Scenario(members=2, shards=(4,), faults="none")


def settle(upset: Upset, scenario: Scenario = SCENARIO) -> None:
    """Let a group come to rest, disturb it, and raise the first violation."""

    async def play(sim: Simulation) -> None:
        monitor.begin(())
        await sim.start_all()
        for _ in range(50):
            sim.put("stream-0")
        await asyncio.sleep(30)
        await upset(sim, monitor)
        raise_violation(sim)

    sim = Simulation(scenario, seed=1)
    monitor = LivenessMonitor(sim)
    with LossLogHandler([monitor]):
        sim.run(play)

"""The final phases of runs with a KCL fleet."""

from __future__ import annotations

import asyncio

from kinesumer.testing.bounds import crash_bound
from kinesumer.testing.simulation.convergence import FLEET_SECONDS
from kinesumer.testing.simulation.final_phases import (
    DISTURBANCES,
    SLOWEST_CLOCK,
    Ending,
    check_arrivals,
    flow,
    nothing,
)
from kinesumer.testing.simulation.simulation import Simulation

# When a KCL worker's lease has expired, a client needs some seconds to notice that, to
# leave the lease to the others a second long, to claim it and to read. KCL workers read
# a shard once a second.
TAKE_SECONDS = 5.0


async def worker_pair(sim: Simulation) -> None:
    """Disturb a fleet twice, and check that all records come in time (L16)."""
    flowing = flow(sim)
    await asyncio.sleep(1)
    began, streams = sim.loop.services.wall(), {sim.arn(name) for name in sim.streams}
    for kind in sim.random.choices(list(DISTURBANCES), k=2):
        if sum(process.stays for process in sim.living) < 2:
            sim.start_process()
        DISTURBANCES[kind](sim)
        await asyncio.sleep(FLEET_SECONDS * sim.random.random())
    await check_arrivals(sim, streams, began, 2 * FLEET_SECONDS, 2 * FLEET_SECONDS)
    flowing.cancel()
    await asyncio.sleep(FLEET_SECONDS)


async def worker_death(sim: Simulation) -> None:
    """Kill a client or KCL worker, and check that clients continue in time (L1)."""
    for share in (0.0, 0.0, 1.0):
        sim.other_version_share = share
        sim.start_process()
    await asyncio.sleep(FLEET_SECONDS)
    flowing = flow(sim)
    await asyncio.sleep(1)
    began, streams = sim.loop.services.wall(), {sim.arn(name) for name in sim.streams}
    victim = sim.random.choice(sim.living)
    victim.kill()
    bound = sim.config.kcl_failover_seconds
    if victim.is_member:
        bound = crash_bound(sim.config, led=True)
    limit = bound / SLOWEST_CLOCK + TAKE_SECONDS
    await check_arrivals(sim, streams, began, FLEET_SECONDS, limit)
    flowing.cancel()
    await asyncio.sleep(FLEET_SECONDS)


FLEET: dict[str, Ending] = {
    phase.__name__: phase for phase in (nothing, worker_pair, worker_death)
}

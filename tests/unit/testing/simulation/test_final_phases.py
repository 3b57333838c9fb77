"""Test which processes the final phases count on."""

from __future__ import annotations

import asyncio

from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation


def test_a_process_that_will_be_killed_or_leaves_does_not_stay() -> None:
    async def play(sim: Simulation) -> None:
        await sim.start_all()
        await asyncio.sleep(10)
        killed, leaving, left = sim.processes
        killed.kill()
        leaving.leave()
        assert killed.alive
        assert [p.stays for p in sim.processes] == [False, False, True]
        killed.end_faults()
        assert killed.stays
        assert left.stays

    Simulation(Scenario(members=3, shards=(4,)), seed=1).run(play)

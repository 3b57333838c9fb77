"""Test that clients and simulated KCL workers share the leases of a fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from kinesumer.testing.simulation.fleet_phases import FLEET
from kinesumer.testing.simulation.run import Run, draw_run, execute_run, parse_rates
from kinesumer.testing.simulation.scenarios import scenario_for
from kinesumer.testing.simulation.simulation import Simulation

KCL = scenario_for("kcl", 1)
DENSE = "fleet:6,crash:1,stall:1,deploy:1,split:2,merge:2"


@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_survives_faults_deploys_and_reshards(seed: int) -> None:
    outcome = execute_run(draw_run(KCL, seed, 1.5, parse_rates(DENSE)))
    assert not outcome.violation
    assert outcome.delivered > 500


@pytest.mark.parametrize("ending", FLEET)
def test_a_fleet_at_rest_keeps_each_final_phases_limits(ending: str) -> None:
    assert not execute_run(Run(KCL, 1, 0.1, (), ending)).violation


def test_a_seed_of_a_fleet_replays_exactly() -> None:
    run = draw_run(KCL, 7, 1.0, parse_rates(DENSE))
    first, second = execute_run(run), execute_run(run)
    first.cpu_seconds = second.cpu_seconds = 0.0
    assert first == second


def owners(sim: Simulation) -> Counter[str]:
    return Counter(str(row["leaseOwner"]) for row in sim.leases.rows("lease"))


def test_clients_replace_workers_of_the_kcl_and_are_replaced() -> None:
    sim = Simulation(replace(KCL, members=3, faults="none"), 1)

    async def replace_all() -> None:
        for process in sim.living:
            sim.start_process()
            await asyncio.sleep(30)
            process.leave()
            await asyncio.sleep(60)
        assert {*owners(sim)} == {process.client_id for process in sim.living}

    async def play(sim: Simulation) -> None:
        sim.other_version_share = 1.0
        await sim.start_all()
        producing = asyncio.create_task(sim.produce())
        await asyncio.sleep(60)
        assert not sim.members
        sim.other_version_share = 0.0
        await replace_all()
        assert len(sim.members) == 3
        sim.other_version_share = 1.0
        await replace_all()
        assert not sim.members
        sim.producing = False
        await producing
        await asyncio.sleep(10)

    sim.run(play)
    for trace in sim.checker.shards.values():
        assert trace.done_until == len(trace.log) > 0

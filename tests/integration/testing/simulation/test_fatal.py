"""Test that a client ends if it can't start, or can't use its stream or id any more.

``test_seeds`` uses the faults of ``final_phases.FATAL``, which end whole groups.
"""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import ClientIdInUseError, StreamMissingError
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated import simulated_group
from tests.support.simulated_group import steady


@simulated_group(shards=(4,))
async def test_a_stream_that_is_deleted_ends_every_client(sim: Simulation) -> None:
    await steady(sim)
    sim.producing = False
    sim.checker.is_disabled = True
    sim.kinesis.delete_stream("stream-0")
    await asyncio.sleep(60)
    for process in sim.processes:
        assert isinstance(process.ended_with, StreamMissingError)


@simulated_group()
async def test_a_second_live_process_with_one_id_gets_an_error_and_the_first_goes_on(
    sim: Simulation,
) -> None:
    await steady(sim)
    first = sim.processes[0]
    second = sim.start_process(first.client_id)
    await asyncio.sleep(30)
    assert isinstance(second.refused, ClientIdInUseError)
    assert first.alive
    assert not sim.checker.dead


@simulated_group(static_ids=True)
async def test_a_restarted_process_with_its_old_id_takes_its_old_place(
    sim: Simulation,
) -> None:
    await steady(sim)
    victim = sim.processes[1]
    victim.machine.kill()
    sim.start_process(victim.client_id)
    await asyncio.sleep(30)
    for trace in sim.checker.shards.values():
        names = [owned.machine.name for owned in trace.ownerships.values()]
        last = trace.ownerships[max(trace.ownerships)]
        moved = len({*names}) > 1 and last.claimed_at > 20
        assert not moved or last.machine.name == victim.client_id


@pytest.mark.parametrize("step", range(0, 60, 6))
@simulated_group(members=1, shards=(4,))
async def test_a_process_killed_at_any_step_of_its_start_blocks_nobody(
    sim: Simulation, step: int
) -> None:
    doomed = sim.start_process()
    doomed.machine.after_steps(step, doomed.machine.kill)
    await asyncio.sleep(0.3)
    await steady(sim, 40)
    assert len(sim.checker.shards) == 4
    assert all(t.ownerships for t in sim.checker.shards.values())

"""Test that takeovers, hand-overs and the like are in time and at a limited cost."""

from __future__ import annotations

import asyncio
import statistics

import pytest

from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated import simulated_group
from tests.support.simulated_group import (
    flow,
    held_by,
    outage,
    ownerships,
    pauses,
    settle,
    steady,
    traces,
)


async def require_short_pauses(sim: Simulation) -> None:
    """Check that shards move, with short pauses, to where the plan has them now."""
    since = sim.loop.real
    await asyncio.sleep(20)
    await settle(sim)
    found = pauses(sim, since)
    assert found
    assert statistics.median(found) < 0.5
    assert sim.checker.redelivered == 0


@pytest.mark.parametrize("assignor", ["range", "load"])
@simulated_group()
async def test_l2_a_join_ends_in_the_plan_without_a_record_repeated(
    sim: Simulation, assignor: str
) -> None:
    await steady(sim)
    sim.start_process()
    await require_short_pauses(sim)


@simulated_group()
async def test_l2_a_leave_ends_in_the_plan_without_a_record_repeated(
    sim: Simulation,
) -> None:
    await steady(sim)
    sim.processes[1].leave()
    await require_short_pauses(sim)
    assert not sim.processes[1].alive


@pytest.mark.parametrize("static_ids", [False, True])
@pytest.mark.parametrize("seed", range(2))
@simulated_group(members=4, shards=(16,))
async def test_l2_shards_hardly_pause_when_a_fleet_is_restarted_one_by_one(
    sim: Simulation, seed: int, static_ids: bool
) -> None:
    async def restart(sim: Simulation, process: Process) -> None:
        process.leave()
        while process.alive:
            await asyncio.sleep(0.05)
        sim.start_process(process.client_id if static_ids else None)

    await steady(sim, 20 + sim.random.random())
    began = sim.loop.real
    async with asyncio.TaskGroup() as restarts:
        for process in sim.living:
            restarts.create_task(restart(sim, process))
            await asyncio.sleep(3)
    for _ in range(2):
        sim.start_process()
        await asyncio.sleep(1)
    await asyncio.sleep(20)
    await settle(sim)
    assert max(pauses(sim, began)) < 1
    assert sim.checker.redelivered == 0


@simulated_group(members=2, shards=(2,))
async def test_l4_a_child_in_another_clients_range_delivers_as_soon(
    sim: Simulation,
) -> None:
    """The boundary between the two clients' ranges is inside the merged shard."""
    await steady(sim)
    merged = sim.merge("stream-0", "shardId-000000000000", "shardId-000000000001")
    await asyncio.sleep(20)
    children = sim.split("stream-0", merged)
    await asyncio.sleep(10)
    arn = sim.arn("stream-0")
    ended = sim.checker.shards[arn, merged].ended_at
    assert ended is not None
    firsts = [sim.checker.shards[arn, child].ownerships[1] for child in children]
    assert len({ownership.session for ownership in firsts}) == 2
    for first in firsts:
        assert first.started_at is not None
        assert first.started_at - ended < 2


@pytest.mark.parametrize("seconds", [5.0, 60.0, 600.0, 3600.0])
@simulated_group(shards=(3,), seed=4, min_read_interval_seconds=2.0)
async def test_l5_an_outage_of_the_whole_store_fences_nobody(
    sim: Simulation, seconds: float
) -> None:
    await steady(sim)
    if seconds > 1000:
        sim.producing = False
    await outage(sim, "store", seconds)
    await asyncio.sleep(10)
    await settle(sim)
    assert not sim.checker.dead
    assert sim.checker.takeovers == 0
    assert sim.checker.redelivered == 0


@simulated_group(shards=(8, 8))
async def test_a_first_record_comes_soon_after_a_start_on_an_empty_table(
    sim: Simulation,
) -> None:
    flow(sim)
    for _ in range(3):
        sim.start_process()
    await asyncio.sleep(10)
    firsts = [t.started_at for _, t in ownerships(sim) if t.started_at is not None]
    assert min(firsts) < 3
    assert len(firsts) >= 16


@simulated_group(members=6, shards=(12,), together=True)
async def test_clients_that_start_together_settle_in_a_few_moves(
    sim: Simulation,
) -> None:
    await steady(sim, 60)
    await settle(sim)
    assert max(len(trace.ownerships) for trace in traces(sim)) <= 3


# Read rarely to save time: reads of Kinesis don't use the state store.
@pytest.mark.parametrize(("members", "shards"), [(3, (16,)), (10, (100,))])
@simulated_group(together=True, min_read_interval_seconds=2.0)
async def test_i13_the_store_costs_what_the_protocol_says(
    sim: Simulation, members: int, shards: tuple[int, ...]
) -> None:
    minutes = 3
    flow(sim, every_seconds=2.0)
    await sim.start_all()
    await asyncio.sleep(60)
    before = sim.store.usage.write_units, sim.store.usage.read_units
    await asyncio.sleep(60 * minutes)
    writes = (sim.store.usage.write_units - before[0]) / minutes
    reads = (sim.store.usage.read_units - before[1]) / minutes
    assert writes <= 1.05 * (60 * members / 2 + 12 * sum(shards))
    assert reads <= {3: 110, 10: 1.05 * 159}[members]
    assert sim.kinesis.throttled == 0


@simulated_group(shards=(64,))
async def test_i13_idle_shards_cost_nothing(sim: Simulation) -> None:
    await sim.start_all()
    await asyncio.sleep(120)
    before = sim.store.usage.write_units
    await asyncio.sleep(300)
    assert sim.store.usage.write_units - before <= 1.05 * 5 * (60 * 3 / 2)


@simulated_group(members=2, shards=(8,), config={"max_shards": 3})
async def test_shards_beyond_all_limits_are_reported_and_read_once_a_client_joins(
    sim: Simulation,
) -> None:
    await steady(sim)
    counts = [len(held_by(sim, process)) for process in sim.processes]
    assert counts == [3, 3]
    snapshot = await read_snapshot(sim.store, sim.scenario.app)
    (arn,) = snapshot.shards
    assert len(snapshot.unassignable(arn)) == 2
    sim.start_process()
    await asyncio.sleep(20)
    snapshot = await read_snapshot(sim.store, sim.scenario.app)
    assert not snapshot.unconsumed(arn)
    # A split makes one shard more than the owner of its parent may own.
    sim.split("stream-0", held_by(sim, sim.processes[0])[0].shard_id)
    await asyncio.sleep(60)
    await settle(sim)


@simulated_group(members=3, shards=(9,), assignor="load", together=True)
async def test_a_busy_shard_moves_its_neighbours_to_other_clients(
    sim: Simulation,
) -> None:
    await sim.start_all()
    (name,) = sim.streams
    first = sim.kinesis.stream(name).open[0].shard.first_hash
    for _ in range(450):
        sim.put_everywhere()
        sim.put(name, first, bytes(100_000))
        await asyncio.sleep(0.1)
    counts = [len(held_by(sim, process)) for process in sim.processes]
    assert counts[0] == 1
    await settle(sim)

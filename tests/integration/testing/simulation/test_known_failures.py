"""Test scenarios in which other libraries failed, as their users have reported."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.convergence import check_settled
from kinesumer.testing.simulation.invariants.base import ShardTrace
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated import simulated_group
from tests.support.simulated_group import (
    finish,
    flow,
    held_by,
    leader,
    outage,
    settle,
    steady,
    traces,
)


def shard(sim: Simulation, number: int, name: str = "stream-0") -> ShardTrace:
    return sim.checker.shards[sim.arn(name), f"shardId-{number:012}"]


def owner_of(sim: Simulation, trace: ShardTrace) -> Process:
    return next(process for process in sim.living if trace in held_by(sim, process))


@pytest.mark.parametrize("parent_is_slow", [True, False])
@simulated_group(shards=(4,))
async def test_no_record_is_lost_or_early_when_shards_split_and_merge(
    sim: Simulation, parent_is_slow: bool
) -> None:
    await steady(sim)
    if parent_is_slow:
        owner_of(sim, shard(sim, 1)).user_code.slow_until = sim.loop.real + 30
    low, high = sim.split("stream-0", "shardId-000000000001")
    child = sim.merge("stream-0", low, high)
    sim.merge("stream-0", child, "shardId-000000000002")
    sim.split("stream-0", "shardId-000000000003")
    await asyncio.sleep(90)
    await settle(sim)
    assert sim.checker.redelivered == 0


@simulated_group(config={"max_processing_seconds": 60.0})
async def test_a_shard_whose_user_code_is_stuck_goes_to_another_client(
    sim: Simulation,
) -> None:
    await steady(sim)
    stuck = leader(sim)
    held = held_by(sim, stuck)
    stuck.user_code.hang()
    await asyncio.sleep(90)
    assert all(owner_of(sim, trace) is not stuck for trace in held)
    await finish(sim, 1)


@pytest.mark.parametrize("seed", range(0, 90, 6))
@pytest.mark.parametrize("who", ["giver", "taker"])
@simulated_group(members=1, shards=(4,))
async def test_a_hand_over_goes_on_whichever_side_dies_at_any_step(
    sim: Simulation, who: str, seed: int
) -> None:
    await steady(sim, 12)
    sides = {"giver": sim.processes[0], "taker": sim.start_process()}
    # The plan follows two seconds after the join, and then the hand-over.
    await asyncio.sleep(3 + seed / 30)
    victim = sides[who].machine
    victim.after_steps(seed, victim.kill)
    await asyncio.sleep(25)
    await settle(sim, 5)


@simulated_group()
async def test_a_zombies_late_commits_are_refused(sim: Simulation) -> None:
    await steady(sim)
    zombie = leader(sim)
    held = held_by(sim, zombie)
    zombie.machine.freeze(30)
    await asyncio.sleep(60)
    await settle(sim)
    assert all(len(trace.ownerships) > 1 for trace in held)
    assert sim.checker.takeovers > 0
    assert sim.checker.redelivered <= 100 * sim.checker.takeovers


@simulated_group(shards=(2,))
async def test_a_shard_ends_though_its_last_record_was_committed_long_before(
    sim: Simulation,
) -> None:
    await steady(sim)
    sim.producing = False
    await asyncio.sleep(60)
    sim.split("stream-0", "shardId-000000000000")
    sim.split("stream-0", "shardId-000000000001")
    await asyncio.sleep(5)
    flow(sim)
    check_settled(sim)


@simulated_group(shards=(3,))
async def test_iterators_that_expire_leave_no_gap_and_repeat_nothing(
    sim: Simulation,
) -> None:
    await steady(sim)
    await outage(sim, "kinesis", 400)  # an iterator lives for 300 s
    await asyncio.sleep(60)
    await settle(sim)
    assert sim.checker.takeovers == 0


@simulated_group()
async def test_the_whole_fleet_comes_back_to_a_backlog(sim: Simulation) -> None:
    await steady(sim)
    for process in sim.processes:
        process.machine.kill()
    await asyncio.sleep(60)
    for _ in range(3):
        sim.start_process()
    await asyncio.sleep(40)
    await settle(sim)


@simulated_group()
async def test_a_stop_ends_in_time_though_the_store_does_not_answer(
    sim: Simulation,
) -> None:
    await steady(sim)
    process = sim.processes[1]
    process.store.network.set(lost=1.0)
    process.leave()
    await asyncio.sleep(60)
    assert not process.alive


@simulated_group(start=Start.LATEST, shards=(4,))
async def test_a_quiet_shards_first_record_survives_its_first_owners_death(
    sim: Simulation,
) -> None:
    """If each owner began at LATEST, records before the first commit would be lost."""
    await sim.start_all()
    await asyncio.sleep(20)
    trace = shard(sim, 3)
    victim = owner_of(sim, trace)
    victim.machine.kill()
    sim.put("stream-0", HASH_KEYS - 1)
    await asyncio.sleep(30)
    assert trace.done_until == len(trace.log) == 1


@simulated_group(shards=(2, 4))
async def test_a_stream_that_nobody_asks_for_any_more_is_left(sim: Simulation) -> None:
    await steady(sim)
    for process in sim.processes:
        process.refresh(("stream-0",))
    await asyncio.sleep(10)
    left = [t for (arn, _), t in sim.checker.shards.items() if arn.endswith("-1")]
    delivered = [sum(trace.delivered) for trace in left]
    await asyncio.sleep(10)
    assert delivered == [sum(trace.delivered) for trace in left]
    assert not any(trace.row and trace.row.get("owner") for trace in left)
    for process in sim.processes:
        process.refresh(("stream-0", "stream-1"))
    await asyncio.sleep(20)
    await settle(sim)
    assert sim.checker.redelivered == 0


@simulated_group(shards=(4, 4))
async def test_another_streams_reshard_pauses_nothing(sim: Simulation) -> None:
    await steady(sim)
    before = {trace: len(trace.ownerships) for trace in traces(sim)}
    sim.split("stream-1", "shardId-000000000001")
    await asyncio.sleep(20)
    assert before == {trace: len(trace.ownerships) for trace in before}


@simulated_group()
async def test_a_client_that_cannot_reach_kinesis_gives_its_shards_to_the_others(
    sim: Simulation,
) -> None:
    await steady(sim)
    cut_off = sim.processes[1]
    assert held_by(sim, cut_off)
    cut_off.kinesis_network.set(lost=1.0)
    await asyncio.sleep(60)
    assert not held_by(sim, cut_off)
    cut_off.kinesis_network.clear()
    await asyncio.sleep(60)
    assert held_by(sim, cut_off)
    await settle(sim)
    assert sim.checker.takeovers == 0


@simulated_group()
async def test_a_client_whose_event_loop_is_blocked_keeps_its_shards(
    sim: Simulation,
) -> None:
    await steady(sim)
    blocked = sim.processes[1]
    held = held_by(sim, blocked)
    blocked.machine.block(120)
    await asyncio.sleep(125)
    assert held_by(sim, blocked) == held
    await settle(sim, 30)
    assert not sim.checker.dead
    assert sim.checker.redelivered == 0


@simulated_group()
async def test_a_leader_whose_event_loop_is_blocked_still_notices_deaths(
    sim: Simulation,
) -> None:
    await steady(sim)
    leads = leader(sim)
    victim, heir = (p for p in sim.processes if p is not leads)
    lost = held_by(sim, victim)
    leads.machine.block(120)
    await asyncio.sleep(5)
    victim.kill()
    await asyncio.sleep(20)
    assert leader(sim) is leads
    assert any(shard in held_by(sim, heir) for shard in lost)
    await settle(sim, 120)


@simulated_group(
    shards=(1000,), members=2, together=True, min_read_interval_seconds=2.0
)
async def test_a_thousand_shards_are_claimed_and_read(sim: Simulation) -> None:
    await sim.start_all()
    await asyncio.sleep(30)
    for place in range(1000):
        sim.put("stream-0", place * HASH_KEYS // 1000 + 1)
    await asyncio.sleep(10)
    check_settled(sim)

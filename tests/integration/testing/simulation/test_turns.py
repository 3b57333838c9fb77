"""Test how soon user code gets a claimed shard's records while it blocks the loop."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.core.turns import TURN_SECONDS
from kinesumer.runtime.clock import MAX_YIELD_SECONDS
from kinesumer.testing.simulation.simulation import Simulation
from tests.integration.testing.simulation.scenario import held_by, simulate, steady

# The longest time that a record takes in user code.
BLOCK_SECONDS = 2.0
# The longest time from one slice of the event loop to the next.
STEP_SECONDS = BLOCK_SECONDS + TURN_SECONDS + MAX_YIELD_SECONDS
CLAIMED = 3
# The response to the claim, and those to up to three requests for records, wait for a
# slice each. Then the shard waits for the turns of those that were claimed with it.
MOST_SECONDS = (4 + CLAIMED) * STEP_SECONDS


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("concurrency", [0, 1, 4])
def test_a_claimed_shards_first_records_wait_for_a_few_calls_only(
    seed: int, concurrency: int
) -> None:
    async def play(sim: Simulation) -> None:
        await steady(sim)
        other, blocked = sim.processes
        assert len(held_by(sim, blocked)) == CLAIMED
        # Records arrive much faster than they are handled.
        blocked.user_code.block_each(BLOCK_SECONDS, 1e6)
        await asyncio.sleep(60)
        other.leave()
        await asyncio.sleep(60)
        sim.end_faults()
        sim.producing = False

    sim = simulate(play, seed, members=2, shards=(6,), concurrency=concurrency)
    waits = {
        trace.shard_id: ownership.started_at - ownership.claimed_at
        for trace in sim.checker.shards.values()
        for ownership in trace.ownerships.values()
        if ownership.claimed_at > 80 and ownership.started_at is not None
    }
    assert len(waits) == CLAIMED
    assert max(waits.values()) <= MOST_SECONDS

"""Test handlers, callbacks, deadly records and turns of user code under faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.core.work_queue import OrderedWork
from kinesumer.handlers import stream_callers
from kinesumer.runtime.clock import MAX_YIELD_SECONDS
from kinesumer.testing.simulation.run import (
    Outcome,
    draw_run,
    execute_run,
    parse_rates,
    play,
)
from kinesumer.testing.simulation.scenarios import CALLBACKS, Scenario
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated import simulated_group
from tests.support.simulated_group import held_by, ownerships, steady

FAULTS = "crash:2,stall:1:30,store_cut:1,split,merge,deploy:1,fail:2,hang:0.5"


def handled(minutes: float, *, concurrency: int, batches: bool = False) -> Outcome:
    """Simulate handlers that sometimes fail or hang, in clients that may crash."""
    scenario = Scenario(
        "handlers",
        members=4,
        shards=(3, 2),
        concurrency=concurrency,
        batches=batches,
        aggregated=0.2,
        config={"max_processing_seconds": 20.0},
    )
    return execute_run(draw_run(scenario, 3, minutes, parse_rates(FAULTS)))


def played(scenario: Scenario, seed: int, minutes: float, faults: str) -> Simulation:
    """Return the simulation of a run that violates nothing."""
    simulation = Simulation(scenario, seed)
    run = draw_run(scenario, seed, minutes, parse_rates(faults))
    play(simulation, Outcome(run))
    return simulation


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_record_is_lost_nor_passed_by_a_checkpoint(
    concurrency: int, *, batches: bool
) -> None:
    outcome = handled(1, concurrency=concurrency, batches=batches)
    assert not outcome.violation
    assert outcome.takeovers > 1
    assert outcome.handovers > 5


def test_a_record_marked_before_it_is_handled_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class MarksTooEarly(OrderedWork[Any, Any]):
        def begin(self) -> Any:
            work = super().begin()
            if work is not None:
                self.shard.progress.mark_offsets(work.offsets)
            return work

    monkeypatch.setattr(stream_callers, "OrderedWork", MarksTooEarly)
    assert handled(5, concurrency=1).predicate in ("I2", "I10", "lost")


def test_two_workers_at_one_key_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class ForgetsKeys(OrderedWork[Any, Any]):
        """Lets each worker begin the next record, whatever the others handle."""

        def __init__(self, shard: Any, new_work: Any, **_: object) -> None:
            super().__init__(shard, new_work)

        def put(self, batch: FetchedBatch) -> None:
            for record in batch.records:
                super().put(replace(batch.with_records([record]), end=None))

        def begin(self) -> Any:
            others, self.in_hand = self.in_hand, set()
            work = super().begin()
            self.in_hand |= others
            return work

    monkeypatch.setattr(stream_callers, "KeyedWork", ForgetsKeys)
    assert handled(2, concurrency=4).predicate == "I9"


CALLBACK_WAYS: list[dict[str, Any]] = [
    {},
    {"batches": True},
    {"commit": "manual", "aggregated": 0.2},
    {"commit": "manual", "batches": True, "tasks": 3},
    {"concurrency": 1},
    {"concurrency": 4},
]
CALLBACK_FAULTS = (
    "crash,stall:1:30,store_cut:1,store_down:0.5:20,split,merge,deploy:1,seek,pause,"
    "fail:2,hang:0.5"
)


def test_calls_and_records_keep_their_order_under_faults() -> None:
    counts: Counter[str] = Counter()
    # One run alone does not have all reasons.
    for seed, way in enumerate(CALLBACK_WAYS):
        simulation = played(replace(CALLBACKS, **way), seed, 2, CALLBACK_FAULTS)
        counts += simulation.checker.calls.counts
    assert counts["moved"] > 30
    assert {"ended", "lost", "paused", "seeked"} <= counts.keys()


POISON_WAYS: list[dict[str, Any]] = [
    {"batches": True},
    {"concurrency": 4},
    {"fan_out": 1.0, "subscription_seconds": 20},
    {"commit": "manual", "aggregated": 0.2},
    {"commit": "manual", "batches": True, "tasks": 3},
    {"commit": "manual", "fan_out": 0.5},
]


@pytest.mark.parametrize("way", POISON_WAYS, ids=str)
def test_no_other_record_is_named_or_set_aside_under_faults(
    way: dict[str, Any],
) -> None:
    scenario = Scenario("deadly", shards=(4, 2), **way)
    assert played(scenario, 3, 2, "all,poison:1").deadly.named


def test_no_task_gets_an_isolated_record_while_another_task_has_one() -> None:
    way: dict[str, Any] = {"commit": "manual", "batches": True, "tasks": 3}
    scenario = Scenario("deadly", members=2, shards=(6,), **way)
    deadly = played(scenario, 2, 3, "poison:2,crash:0.5").deadly
    assert deadly.named
    assert deadly.most_deaths == 5


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
@simulated_group(members=2, shards=(6,))
async def test_a_claimed_shards_first_records_wait_for_a_few_calls_only(
    sim: Simulation, seed: int, concurrency: int
) -> None:
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
    waits = {
        trace.shard_id: ownership.started_at - ownership.claimed_at
        for trace, ownership in ownerships(sim)
        if ownership.claimed_at > 80 and ownership.started_at is not None
    }
    assert len(waits) == CLAIMED
    assert max(waits.values()) <= MOST_SECONDS

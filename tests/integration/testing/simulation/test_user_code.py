"""Test that, under faults, ``run()`` loses no record and skips no unhandled one."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.core.work_queue import KeyedWork, OrderedWork
from kinesumer.testing.simulation.run import Outcome, draw_run, execute_run, parse_rates
from kinesumer.testing.simulation.scenarios import Scenario

FAULTS = "crash:2,stall:1:30,store_cut:1,split,merge,deploy:1,fail:2,hang:0.5"


def simulated(minutes: float, *, concurrency: int, batches: bool = False) -> Outcome:
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


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_record_is_lost_nor_passed_by_a_checkpoint(
    concurrency: int, *, batches: bool
) -> None:
    outcome = simulated(1, concurrency=concurrency, batches=batches)
    assert not outcome.violation
    assert outcome.takeovers > 1
    assert outcome.handovers > 5


def test_a_record_marked_before_it_is_handled_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = OrderedWork._take

    def too_early(queue: OrderedWork[Any, Any]) -> object:
        work = take(queue)
        if work is not None:
            queue.shard.progress.mark_offsets(work.offsets)
        return work

    monkeypatch.setattr(OrderedWork, "_take", too_early)
    assert simulated(5, concurrency=1).predicate in ("I2", "I10", "lost")


def test_two_workers_at_one_key_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = KeyedWork._take

    def forgets_busy_keys(queue: KeyedWork[Any, Any]) -> object:
        work = take(queue)
        if work is not None:
            for key in work.keys:
                assert not queue._busy.pop(key).records
            work.keys = ()
        return work

    monkeypatch.setattr(KeyedWork, "_take", forgets_busy_keys)
    assert simulated(2, concurrency=4).predicate == "I9"

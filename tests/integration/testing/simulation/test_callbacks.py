"""Test that callbacks enclose the records of each shard under faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from kinesumer.testing.simulation.run import Outcome, draw_run, parse_rates, play
from kinesumer.testing.simulation.scenarios import CALLBACKS
from kinesumer.testing.simulation.simulation import Simulation

WAYS: list[dict[str, Any]] = [
    {},
    {"batches": True},
    {"commit": "manual", "aggregated": 0.2},
    {"commit": "manual", "batches": True, "tasks": 3},
    {"concurrency": 1},
    {"concurrency": 4},
]
FAULTS = (
    "crash,stall:1:30,store_cut:1,store_down:0.5:20,split,merge,deploy:1,seek,pause,"
    "fail:2,hang:0.5"
)


def test_calls_and_records_keep_their_order_under_faults() -> None:
    counts: Counter[str] = Counter()
    for seed, way in enumerate(WAYS):  # one run alone does not have all reasons
        scenario = replace(CALLBACKS, **way)
        simulation = Simulation(scenario, seed)
        play(simulation, Outcome(draw_run(scenario, seed, 2, parse_rates(FAULTS))))
        counts += simulation.checker.calls.counts
    assert counts["moved"] > 30
    assert {"ended", "lost", "paused", "seeked"} <= counts.keys()

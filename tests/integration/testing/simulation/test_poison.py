"""Test that deaths name only records that kill, with all faults and ways to consume."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.testing.simulation.run import Outcome, draw_run, parse_rates, play
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

WAYS: list[dict[str, Any]] = [
    {"batches": True},
    {"concurrency": 4},
    {"fan_out": 1.0, "subscription_seconds": 20},
    {"commit": "manual", "aggregated": 0.2},
    {"commit": "manual", "batches": True, "tasks": 3},
    {"commit": "manual", "fan_out": 0.5},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_other_record_is_named_or_set_aside_under_faults(
    way: dict[str, Any],
) -> None:
    scenario = Scenario("deadly", shards=(4, 2), **way)
    simulation = Simulation(scenario, 3)
    rates = parse_rates("all,poison:1")
    play(simulation, Outcome(draw_run(scenario, 3, 2, rates)))
    assert simulation.deadly.named


def test_no_task_gets_an_isolated_record_while_another_task_has_one() -> None:
    way: dict[str, Any] = {"commit": "manual", "batches": True, "tasks": 3}
    scenario = Scenario("deadly", members=2, shards=(6,), **way)
    simulation = Simulation(scenario, 2)
    rates = parse_rates("poison:2,crash:0.5")
    play(simulation, Outcome(draw_run(scenario, 2, 3, rates)))
    assert simulation.deadly.named
    assert simulation.deadly.most_deaths == 5

"""Test that the histories of drawn groups keep every rule."""

from __future__ import annotations

from itertools import islice

import pytest

from kinesumer.testing.simulation.run import Run
from tests.system.night.histories import check_run, draw

RUNS = list(islice(filter(None, (draw(seed, 1.0) for seed in range(100, 200))), 5))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"seed {run.seed}")
def test_the_history_of_a_drawn_group_keeps_every_rule(run: Run) -> None:
    faults = check_run(run).faults

    assert {rule: found for rule, found in faults.items() if found} == {}

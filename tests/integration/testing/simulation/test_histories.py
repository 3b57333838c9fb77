"""Test that the histories of drawn groups keep every rule."""

from __future__ import annotations

import pytest

from tests.system.night.histories import check_run, draw

SEEDS = (100, 204, 208, 225, 231)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_history_of_a_drawn_group_keeps_every_rule(seed: int) -> None:
    run = draw(seed, minutes=1.0)
    assert run is not None

    faults = check_run(run).faults

    assert {rule: found for rule, found in faults.items() if found} == {}

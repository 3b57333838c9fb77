"""Test that the models keep their properties, and that mistakes in them are found."""

from __future__ import annotations

import pytest

from tests.system.model.checker import (
    Run,
    Size,
    has_checker,
    read_runs,
    search,
    search_part,
)

RUNS, MISTAKES = read_runs()
pytestmark = pytest.mark.skipif(not has_checker(), reason="SPIN isn't installed")


@pytest.mark.parametrize(
    "run", [run for run in RUNS if run.size is Size.SMALL], ids=lambda run: run.name
)
def test_the_protocol_keeps_its_properties(run: Run) -> None:
    result = search(run)
    assert result.violation == ""
    assert result.states


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda run: run.name)
def test_a_mistake_in_the_protocol_is_found(mistake: Run) -> None:
    assert "assertion violated" in search(mistake).violation


def test_a_search_of_a_part_finds_a_mistake() -> None:
    run = next(run for run in RUNS if run.size is Size.PARTIAL)
    mistake = next(one for one in MISTAKES if one.model == run.model)
    found = search_part(run._replace(mistake=mistake.mistake), seed=1, minutes=1)
    assert "assertion violated" in found.violation

"""Dense simulated minutes: everything goes wrong, and no predicate is broken.

Other seeds: ``python -m kinesumer.simulation --count 200 --jobs 2``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kinesumer.simulation.final_phases import AT_REST, FATAL
from kinesumer.simulation.limit_faults import KINDS
from kinesumer.simulation.run import Run, draw_dense_run, draw_run, execute_run
from kinesumer.simulation.scenarios import Scenario, scenario_for
from kinesumer.simulation.schedule import parse_rates

RUN = (sys.executable, "-m", "kinesumer.simulation")


def simulate(*arguments: str, hash_seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [*RUN, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


@pytest.mark.slow
def test_two_hundred_groups_survive_ten_dense_minutes() -> None:
    output = simulate(
        "--seed", "0", "--count", "200", "--shape", "each", "--jobs", "2", "--quiet"
    )
    assert "200 runs" in output
    assert " 0 violations" in output


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_survives_each_kind_of_fault_alone(kind: str) -> None:
    outcome = execute_run(
        draw_run(scenario_for("latest", 1), 1, 3.0, parse_rates(kind))
    )
    assert not outcome.violation
    assert outcome.faults[kind] > 5


@pytest.mark.parametrize("kind", FATAL)
def test_a_group_ends_with_each_kind_of_fault_that_nobody_survives(kind: str) -> None:
    outcome = execute_run(draw_run(scenario_for("mixed", 1), 1, 0.1, parse_rates(kind)))
    assert not outcome.violation
    assert outcome.faults == {kind: 1}


@pytest.mark.parametrize("ending", AT_REST)
@pytest.mark.parametrize("name", ["mixed", "sticky"])
def test_a_group_does_in_time_what_it_owes_at_rest(ending: str, name: str) -> None:
    run = Run(scenario_for(name, 1), 1, 0.1, (), ending)
    assert not execute_run(run).violation


def test_a_seed_replays_exactly() -> None:
    first, second = (execute_run(draw_dense_run(7, minutes=2)) for _ in range(2))
    first.cpu_seconds = second.cpu_seconds = 0.0
    assert first == second
    assert first.delivered > 1000


def test_a_seed_replays_exactly_in_another_process() -> None:
    lines = {
        simulate("--seed", "7", "--minutes", "2", hash_seed=seed).partition("; ")[0]
        for seed in ("1", "random")
    }
    assert len(lines) == 1


def test_seeds_run_in_several_processes() -> None:
    output = simulate("--seed", "1", "--count", "2", "--minutes", "0.1", "--jobs", "2")
    assert "2 runs" in output


def test_a_group_of_fifty_clients_and_five_hundred_shards_comes_to_rest() -> None:
    scenario = Scenario(
        "large",
        members=50,
        shards=(300, 200),
        min_read_interval_seconds=5.0,
        together=True,
    )
    assert not execute_run(Run(scenario, 1, 0.1, ())).violation

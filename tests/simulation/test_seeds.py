"""Dense simulated minutes: everything goes wrong, and no predicate is broken.

Other seeds: ``python -m kinesumer.testing.simulate --count 200 --jobs 2``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kinesumer.testing.campaign import carry_out, dense
from kinesumer.testing.mishaps import MISHAPS
from kinesumer.testing.simulate import main

RUN = (sys.executable, "-m", "kinesumer.testing.simulate")


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
    output = simulate("--seed", "0", "--count", "200", "--jobs", "2", "--quiet")
    assert "200 runs" in output
    assert " 0 violations" in output


@pytest.mark.parametrize("kind", MISHAPS)
def test_a_group_survives_each_kind_of_fault_alone(kind: str) -> None:
    simulate("--seed", "1", "--minutes", "3", "--shape", "latest", "--faults", kind)


def test_a_seed_replays_exactly() -> None:
    first, second = (carry_out(dense(7, minutes=2)) for _ in range(2))
    first.cpu_seconds = second.cpu_seconds = 0.0
    assert first == second
    assert first.delivered > 1000


def test_a_seed_replays_exactly_in_another_process() -> None:
    lines = {
        simulate("--seed", "7", "--minutes", "2", hash_seed=seed).partition("; ")[0]
        for seed in ("1", "random")
    }
    assert len(lines) == 1


def test_a_violation_is_shown_with_its_events_and_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.testing.predicates.TOLERANCE", -5.9)
    shown = CliRunner().invoke(main, ["--seed", "9", "--minutes", "1"])
    assert shown.exit_code == 1
    assert "VIOLATION  ViolationError: I3 at" in shown.output
    assert "write client-0 member#app client-0: {'session':" in shown.output
    assert (
        "python -m kinesumer.testing.simulate "
        "--shape manual --minutes 1 --seed 9 --faults all" in shown.output
    )
    assert "1 violations" in shown.output


def test_unknown_faults_are_refused() -> None:
    done = subprocess.run(
        [*RUN, "--faults", "rain"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "rain; known are all, none, crash" in done.stderr

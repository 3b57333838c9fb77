"""Plants a mutant and runs its checks one by one until one fails.

    python -m tests.system.mutants.runner SEEDS MINUTES

In a planted copy, this simulates seeds until a predicate breaks. It prints the
predicate, or "", and the number of seeds until then, as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import kinesumer
from kinesumer.testing.simulation.run import draw_dense_run, execute_run
from tests.system.mutants.catalogue import Mutant, plant

LIMIT_SECONDS = 600.0


class Effort(NamedTuple):
    """The number of checks to run before a mutant counts as a survivor."""

    seeds: int = 10
    minutes: float = 3.0
    tests_only: bool = False


class Verdict(NamedTuple):
    """The result of a mutant."""

    mutant: Mutant
    # The predicate or test that noticed the mutant; empty if none did.
    killed_by: str
    seeds: int  # number of simulated seeds
    seconds: float  # duration of all checks together


def judge(made: Mutant, effort: Effort) -> Verdict:
    """Run the simulator and then the mutant's tests. Return the first failure."""
    started, seeds, killed_by = time.monotonic(), 0, ""
    with tempfile.TemporaryDirectory(prefix="kinesumer-mutant-") as name:
        directory = Path(name)
        plant(made, directory)
        if made.simulated and not effort.tests_only:
            killed_by, seeds = _simulate(directory, effort)
        if not killed_by:
            killed_by = _test(directory, made.tests)
    return Verdict(made, killed_by, seeds, time.monotonic() - started)


def _simulate(directory: Path, effort: Effort) -> tuple[str, int]:
    done = _run(directory, __name__, str(effort.seeds), str(effort.minutes))
    if done is None:
        return "it hangs", 0
    if done.returncode != 0:
        return _last_line(done.stderr), 0
    violation, seeds = json.loads(done.stdout)
    return violation, seeds


def _test(directory: Path, tests: tuple[str, ...]) -> str:
    for test in tests:
        done = _run(directory, "pytest", "-x", "-q", "-p", "no:cacheprovider", test)
        if done is None:
            return f"{test}: it hangs"
        if done.returncode == 1:
            lines = (line.split(" - ")[0] for line in done.stdout.splitlines())
            failed = (line[7:] for line in lines if line.startswith("FAILED "))
            return next(failed, test)
        if done.returncode != 0:
            raise RuntimeError(f"{test} can't be run:\n{done.stdout}{done.stderr}")
    return ""


def _run(directory: Path, *module: str) -> subprocess.CompletedProcess[str] | None:
    """Run a module in the planted copy. Return None if it doesn't end in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(directory),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        return subprocess.run(
            [sys.executable, "-m", *module],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ends without an error message"])[-1]


def simulate(seeds: int, minutes: float) -> tuple[str, int]:
    """Return the violated predicate, or "", and the number of seeds run."""
    assert Path(kinesumer.__file__).is_relative_to(Path.cwd()), kinesumer.__file__
    for seed in range(seeds):
        outcome = execute_run(draw_dense_run(seed, minutes=minutes))
        if outcome.predicate == "crash":
            return f"crash: {outcome.violation.strip().splitlines()[-1]}", seed + 1
        if outcome.predicate:
            return outcome.predicate, seed + 1
    return "", seeds


if __name__ == "__main__":
    logging.getLogger("kinesumer").setLevel(logging.CRITICAL)
    print(json.dumps(simulate(int(sys.argv[1]), float(sys.argv[2]))))

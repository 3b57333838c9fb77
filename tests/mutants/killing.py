"""Plants a mutant and asks one check after the other until one notices it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.mutants.mutant import plant

if TYPE_CHECKING:
    from tests.mutants.mutant import Mutant

PATIENCE_SECONDS = 600.0


class Effort(NamedTuple):
    """How long to look before a mutant counts as alive."""

    seeds: int = 10
    minutes: float = 3.0
    tests_only: bool = False


class Verdict(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    killed_by: str
    """A predicate, or a test; empty if it lives."""
    seeds: int
    """Seeds run until then."""
    seconds: float
    """Wall clock, in all."""


def judge(made: Mutant, effort: Effort) -> Verdict:
    """Return which check notices a mutant first: the simulator, then named tests."""
    started, seeds, killed_by = time.monotonic(), 0, ""
    with tempfile.TemporaryDirectory(prefix="kinesumer-mutant-") as name:
        place = Path(name)
        plant(made, place)
        if made.simulated and not effort.tests_only:
            killed_by, seeds = _simulate(place, effort)
        if not killed_by:
            killed_by = _test(place, made.tests)
    return Verdict(made, killed_by, seeds, time.monotonic() - started)


def _simulate(place: Path, effort: Effort) -> tuple[str, int]:
    arguments = ["--seeds", str(effort.seeds), "--minutes", str(effort.minutes)]
    done = _run(place, "tests.mutants.hunt", *arguments)
    if done is None:
        return "it hangs", 0
    if done.returncode != 0:
        return _last_line(done.stderr), 0
    violation, seeds = json.loads(done.stdout)
    return violation, seeds


def _test(place: Path, tests: tuple[str, ...]) -> str:
    for test in tests:
        done = _run(place, "pytest", "-x", "-q", "-p", "no:cacheprovider", test)
        if done is None:
            return f"{test}: it hangs"
        if done.returncode == 1:
            lines = (line.split(" - ")[0] for line in done.stdout.splitlines())
            failed = (line[7:] for line in lines if line.startswith("FAILED "))
            return next(failed, test)
        if done.returncode != 0:
            raise RuntimeError(f"{test} can't be run:\n{done.stdout}{done.stderr}")
    return ""


def _run(place: Path, *module: str) -> subprocess.CompletedProcess[str] | None:
    """Run a module of the planted package; None if it doesn't end."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(place),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        return subprocess.run(
            [sys.executable, "-m", *module],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ends without a word"])[-1]

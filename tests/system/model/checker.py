"""Check the models of ``schema/model`` with SPIN, which searches all their states."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).resolve().parents[3] / "schema" / "model"
# COLLAPSE compresses states. No property here needs cycles or fairness.
COMPILER = "cc -w -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DNOFAIR -o pan pan.c".split()
# A search in breadth finds the shortest way to a mistake.
FAST, IN_BREADTH = ("-O1",), ("-O0", "-DBFS")
# A search of a part keeps three bits of each state, in a gigabyte (-w33), and takes the
# steps in a drawn order.
IN_PART = ("-O2", "-UCOLLAPSE", "-DBITSTATE", "-DT_RAND", "-DP_RAND")
# A deeper search is an error (-b), not a part that is left out.
DEPTH = 1_000_000


class Size(StrEnum):
    """How much of a run's states is searched."""

    SMALL = "small"  # all, in seconds
    LARGE = "large"  # all, within eight gigabytes and half an hour
    PARTIAL = "partial"  # those that a drawn order of steps finds in a time


class Run(NamedTuple):
    """One search: a model with its bounds, and perhaps a deliberate mistake."""

    model: str
    bounds: dict[str, int]
    size: Size = Size.SMALL
    mistake: int = 0
    what: str = ""

    @property
    def name(self) -> str:
        """The model, with the mistake or the bounds."""
        if self.what:
            return f"{self.model}: {self.what}"
        return f"{self.model} {' '.join(f'{k}={v}' for k, v in self.bounds.items())}"


class Result(NamedTuple):
    """The number of states that were searched, and the violated assertion, or ""."""

    states: int
    seconds: float
    violation: str


def read_runs() -> tuple[list[Run], list[Run]]:
    """Return the runs that must find nothing, and those that must find a mistake."""
    with (DIRECTORY / "runs.toml").open("rb") as file:
        read: dict[str, list[dict[str, Any]]] = tomllib.load(file)
    runs = [
        Run(run["model"], run["bounds"], Size(run.get("size", Size.SMALL)))
        for run in read["runs"]
    ]
    mistakes = [
        Run(one["model"], one.get("bounds", {}), Size.SMALL, one["number"], one["what"])
        for one in read["mistakes"]
    ]
    return runs, mistakes


def has_checker() -> bool:
    """Return whether SPIN and a C compiler are installed."""
    return shutil.which("spin") is not None and shutil.which("cc") is not None


def search(run: Run) -> Result:
    """Search all states of a run. Raises RuntimeError if the search is incomplete."""
    compiler = IN_BREADTH if run.mistake else FAST
    return _search(run, compiler, f"-m{DEPTH} -b -w20")


def search_part(run: Run, seed: int, minutes: int) -> Result:
    """Search a part of a run's states for some minutes. The seed draws the part."""
    order = 1 + seed % (2**31 - 1)  # 0 would be the time of day
    options = f"-m{DEPTH} -w33 -k3 -Q{minutes} -RS{order}"
    return _search(run, IN_PART, options, is_part=True)


def _search(
    run: Run, compiler: Iterable[str], options: str, *, is_part: bool = False
) -> Result:
    bounds = {**run.bounds, "MISTAKE": run.mistake}
    macros = [f"-D{name}={value}" for name, value in bounds.items()]
    model = str(DIRECTORY / f"{run.model}.pml")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        compiling = [*COMPILER, *compiler]
        searching = ["./pan", "-n", *options.split()]
        for command in (["spin", "-a", *macros, model], compiling, searching):
            done = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
    found = re.search(r"^pan:\d+: (.*) \(at depth", done.stdout, re.MULTILINE)
    states = re.search(r"(\S+) states, stored", done.stdout)
    is_complete = "errors: 0" in done.stdout and "not completed" not in done.stdout
    if states is None or not (found or is_complete or is_part):
        raise RuntimeError(f"{run.name}: {done.stdout}{done.stderr}")
    seconds = time.monotonic() - began
    return Result(int(float(states[1])), seconds, found[1] if found else "")


def replay(model: str) -> str:
    """Run a model that has only one way to go. Return its violation, or ""."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trace.pml")
        path.write_text(model)
        command = ["spin", path.name]
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False
        )
    found = re.search(r"text of failed assertion: (.*)", done.stdout)
    if found is None and done.stdout.strip() != "1 process created":
        raise RuntimeError(f"spin: {done.stdout}{done.stderr}")  # it didn't end
    return found[1] if found else ""

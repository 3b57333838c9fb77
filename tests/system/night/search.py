"""The tasks of a night, and how they share its hours."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
# A task that would begin in the last seconds would not come to an end.
LEAST_SECONDS = 60.0
SEEDS, INPUTS, CHAOS_MINUTES, DAYS = 20, 200_000, 10, 30
# Lines of a failed task's output that its issue quotes.
QUOTED_LINES = 80


class Task(NamedTuple):
    """A kind of search."""

    name: str
    share: float  # of the night's time
    # Python's arguments, with the names of ``draws()`` in braces.
    arguments: Sequence[str]
    # Finds the numbers in the output that are added up, by group name.
    counts: str = "$^"
    is_once: bool = False


def draws(draw: Random, jobs: int) -> dict[str, object]:
    """Draw a seed and the settings of a fleet. ``jobs`` is the number of processes."""
    return {
        "seed": draw.randrange(10**9),
        "jobs": jobs,
        "clients": draw.randint(2, 6),
        "streams": draw.randint(1, 4),
        "times": draw.choice(("quick", "quick", "default")),
    }


SIMULATION = ("-m", "kinesumer.testing.simulation", "--quiet", "--seed", "{seed}")
CHAOS = (
    f"-m tests.system.chaos --minutes {CHAOS_MINUTES} --clients {{clients}} "
    "--streams {streams} --times {times} --seed {seed}"
)
FUZZ = f"-m tests.system.hostile.fuzz_decoder --inputs {INPUTS} --seed {{seed}}"
VERSIONS = "tests.system.versions --seed {seed}"
STATES = r"(?P<states>[\d,]+) states"
TASKS = (
    Task(
        "simulation",
        0.25,
        (*SIMULATION, *f"--shape drawn --count {SEEDS} --jobs {{jobs}}".split()),
        r"(?P<runs>\d+) runs, (?P<faults>\d+) faults, .* (?P<records>\d+) records",
    ),
    # Clients beside workers of the KCL.
    Task(
        "fleets",
        0.05,
        (
            *SIMULATION,
            *f"--shape kcl --minutes 3 --count {SEEDS} --jobs {{jobs}}".split(),
        ),
        r"(?P<runs>\d+) runs, (?P<faults>\d+) faults, .* (?P<records>\d+) records",
    ),
    Task(
        "histories",
        0.1,
        f"-m tests.system.night.histories --seed {{seed}} --count {SEEDS}".split(),
        r"(?P<runs>\d+) histories, (?P<deliveries>\d+) deliveries",
    ),
    # Clients of the last release and of this version in one group.
    Task(
        "versions",
        0.1,
        ("-m", *f"{VERSIONS} --count {SEEDS} --jobs {{jobs}}".split()),
        r"(?P<runs>\d+) runs, (?P<faults>\d+) faults",
    ),
    # A month with idle shards, retention, expired keys, deploys and wrong clocks.
    Task(
        "months",
        0.1,
        (*SIMULATION, *f"--shape months --minutes {DAYS * 1440}".split()),
        r"(?P<faults>\d+) faults, .*; (?P<seconds>\d+) s in",
    ),
    Task("chaos", 0.15, CHAOS.split(), r"records +(?P<handled>\d+), handled"),
    Task(
        "fuzz",
        0.1,
        FUZZ.split(),
        r"(?P<inputs>[\d,]+) inputs",
    ),
    # The bounds that are searched completely, and a part of those with too many states.
    Task("model", 0.1, ("-m", "tests.system.model", "--large"), STATES, is_once=True),
    Task("model-parts", 0.05, "-m tests.system.model --part {seed}".split(), STATES),
    # Simulated runs that the models must be able to make, too.
    Task(
        "traces",
        0.05,
        "-m tests.system.model --traces {seed}".split(),
        r"(?P<runs>\d+) traces",
    ),
)


class Night:
    """Runs tasks until the time is over, and keeps what they found."""

    def __init__(
        self,
        tasks: Sequence[Task],
        draw: Random,
        jobs: int,
        folder: Path,
        revision: str,
        now: Callable[[], float],
        say: Callable[[str], object],
    ) -> None:
        self.revision = revision
        self.failures: list[Path] = []
        self._tasks, self._draw, self._jobs = list(tasks), draw, jobs
        self._folder, self._now, self._say = folder, now, say
        self._spent: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._cut_off: list[str] = []

    def run(self, seconds: float) -> None:
        """Run the tasks in turns for so many seconds."""
        end = self._now() + seconds
        while self._tasks and (left := end - self._now()) >= LEAST_SECONDS:
            # The task whose share of the time so far is smallest comes next.
            task = min(
                self._tasks, key=lambda task: self._spent[task.name] / task.share
            )
            limit = min(left, task.share * seconds) if task.is_once else left
            began = self._now()
            self._run(task, limit)
            self._spent[task.name] += max(1, round(self._now() - began))
            if task.is_once:
                self._tasks.remove(task)

    def _run(self, task: Task, limit_seconds: float) -> None:
        drawn = draws(self._draw, self._jobs)
        seed = drawn["seed"]
        arguments = [each.format(**drawn) for each in task.arguments]
        self._say(f"{task.name}: python {' '.join(arguments)}")
        # A file, since a killed task's processes may keep a pipe open.
        log = self._folder / f"{task.name}-{seed}.log"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            try:
                status = process.wait(limit_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = 0
                self._cut_off.append(task.name)
        text = log.read_text(errors="replace")
        for match in re.finditer(task.counts, text):
            for what, number in match.groupdict().items():
                self._totals[f"{task.name} {what}"] += int(number.replace(",", ""))
        if status:
            self._report(task, seed, arguments, status, text)
        else:
            log.unlink()

    def _report(
        self, task: Task, seed: object, arguments: list[str], status: int, text: str
    ) -> None:
        """Write the text of an issue."""
        lines = text.splitlines()
        quoted = "\n".join(lines[-QUOTED_LINES:])
        issue = self._folder / f"{task.name}-{seed}.md"
        issue.write_text(
            f"# {task.name} fails with seed {seed}\n\n"
            f"Commit {self.revision}, exit status {status}. To repeat it:\n\n"
            f"```console\n$ python {' '.join(arguments)}\n```\n\n"
            f"The last of {len(lines)} lines that it printed:\n\n"
            f"```text\n{quoted}\n```\n"
        )
        self.failures.append(issue)
        self._say(f"FAILED: see {issue}")

    def line(self, date: str) -> str:
        """Return the result as one line."""
        hours = sum(self._spent.values()) / 3600
        totals = ", ".join(f"{n:,} {what}" for what, n in sorted(self._totals.items()))
        parts = [totals or "nothing came to an end"]
        if self._cut_off:
            cut = Counter(self._cut_off)
            names = ", ".join(f"{name} {n} times" for name, n in sorted(cut.items()))
            parts.append(f"cut off: {names}")
        parts.append(f"{len(self.failures)} failures")
        return f"{date} {self.revision}, {hours:.1f} h: " + "; ".join(parts)

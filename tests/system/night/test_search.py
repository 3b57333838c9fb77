"""Test how a night shares its time, and what it reports, with short tasks."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.system.night.search import LEAST_SECONDS, TASKS, Night, Task, draws


class Clock:
    """A clock that a task's run moves on by one minute."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 30.0
        return self.seconds


def printing(text: str, status: int = 0) -> list[str]:
    return ["-c", f"print({text!r}); raise SystemExit({status})"]


def night(folder: Path, *tasks: Task) -> Night:
    return Night(tasks, Random(1), 1, folder, "abc", Clock().now, lambda text: None)


def test_tasks_share_the_time_and_their_numbers_are_added_up(tmp_path: Path) -> None:
    often = Task("often", 0.75, printing("1,000 inputs"), r"(?P<n>[\d,]+) in")
    seldom = Task("seldom", 0.25, printing("5 runs"), r"(?P<runs>\d+) runs")
    found = night(tmp_path, often, seldom)

    found.run(16 * LEAST_SECONDS)

    line = found.line("2026-11-28")
    assert line.startswith("2026-11-28 abc, ")
    assert line.endswith(" often n, 15 seldom runs; 0 failures"), line
    assert not list(tmp_path.iterdir())


def test_a_failure_becomes_an_issue_with_the_command_to_repeat_it(
    tmp_path: Path,
) -> None:
    broken = Task("broken", 1.0, printing("seed 7: L15", 1), is_once=True)
    found = night(tmp_path, broken)

    found.run(10 * LEAST_SECONDS)

    [issue] = found.failures
    text = issue.read_text()
    assert "# broken fails with seed" in text
    assert "Commit abc, exit status 1" in text
    assert "$ python -c print('seed 7: L15')" in text
    assert "seed 7: L15\n```" in text
    assert found.line("2026-11-28").endswith("1 failures")


def test_a_task_that_takes_too_long_is_cut_off_with_its_processes(
    tmp_path: Path,
) -> None:
    slow = Task("slow", 0.1, ["-c", "import time; time.sleep(999)"], "", True)
    found = Night([slow], Random(1), 1, tmp_path, "abc", time.monotonic, lambda _: None)

    found._run(slow, 0.1)

    assert "cut off: slow 1 times" in found.line("2026-11-28")
    assert found.failures == []


def test_each_task_is_a_module_that_exists() -> None:
    drawn = draws(Random(1), 1)
    for task in TASKS:
        option, module, *_ = (each.format(**drawn) for each in task.arguments)
        assert option == "-m"
        __import__(module)

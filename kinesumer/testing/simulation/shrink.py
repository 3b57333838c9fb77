"""Find a shorter run that violates the same predicate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.testing.simulation.run import Outcome, Run, execute_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.testing.simulation.scenarios import Fault

MAX_RUNS = 200


class Shrinker:
    """Tries smaller runs, and keeps those that violate the same predicate.

    The shrinker first leaves out half of the faults, then a quarter, and so on (delta
    debugging). Then it shortens the run and the faults, and makes the group smaller.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.best: Outcome = outcome
        self.runs: int = 0

    def shrink(self) -> Outcome:
        """Return the outcome of the smallest run that shows the violation."""
        self._drop_what_came_later()
        before: Run | None = None
        while before != self.best.run and self.runs < MAX_RUNS:
            before = self.best.run
            self._drop_faults()
            self._first_that_fails(_shorter_times(self.best.run))
            self._first_that_fails(_calmer_faults(self.best.run))
            self._first_that_fails(_smaller_groups(self.best.run))
        return self.best

    def _fails(self, run: Run) -> bool:
        if self.runs >= MAX_RUNS or run == self.best.run:
            return False
        self.runs += 1
        outcome = execute_run(run)
        # A violation of another predicate may have another cause.
        if outcome.predicate != self.best.predicate:
            return False
        self.best = outcome
        return True

    def _drop_what_came_later(self) -> None:
        """Leave out the faults that were due after the violation."""
        run, end = self.best.run, self.best.simulated
        faults = tuple(fault for fault in run.faults if fault.at <= end)
        if end < 60 * run.minutes:
            run = replace(run, minutes=round(end / 60 + 0.01, 3), ending="nothing")
        self._fails(replace(run, faults=faults))

    def _drop_faults(self) -> None:
        """Leave out ever smaller groups of faults (ddmin with complements only)."""
        parts = 2
        while (faults := self.best.run.faults) and parts <= 2 * len(faults):
            size = max(1, len(faults) // parts)
            if self._first_that_fails(
                replace(self.best.run, faults=faults[:at] + faults[at + size :])
                for at in range(0, len(faults), size)
            ):
                parts = max(2, parts - 1)
            else:
                parts *= 2

    def _first_that_fails(self, runs: Iterator[Run]) -> bool:
        return any(self._fails(run) for run in runs)


def _shorter_times(run: Run) -> Iterator[Run]:
    last = max((fault.at + fault.duration_seconds for fault in run.faults), default=0.0)
    if last / 60 < run.minutes:
        yield replace(run, minutes=round(last / 60 + 0.01, 3))
    for share in (0.5, 0.8):
        yield replace(run, minutes=round(run.minutes * share, 3))
    if run.ending != "nothing":
        yield replace(run, ending="nothing")
    # Move all faults to earlier times. The group may still be starting then.
    for share in (0.5, 0.8):
        faults = tuple(replace(f, at=round(f.at * share, 3)) for f in run.faults)
        yield replace(run, faults=faults, minutes=run.minutes * share)


def _calmer_faults(run: Run) -> Iterator[Run]:
    for index, fault in enumerate(run.faults):
        for seconds in (0.0, round(fault.duration_seconds / 2, 1)):
            if seconds < fault.duration_seconds:
                yield _with(run, index, replace(fault, duration_seconds=seconds))


def _with(run: Run, index: int, fault: Fault) -> Run:
    faults = (*run.faults[:index], fault, *run.faults[index + 1 :])
    return replace(run, faults=faults)


def _smaller_groups(run: Run) -> Iterator[Run]:
    scenario = run.scenario
    for members in {scenario.members // 2, scenario.members - 1}:
        if members > 0:
            yield replace(run, scenario=replace(scenario, members=members))
    for index, shards in enumerate(scenario.shards):
        others = scenario.shards[:index], scenario.shards[index + 1 :]
        if others != ((), ()):
            yield replace(
                run, scenario=replace(scenario, shards=(*others[0], *others[1]))
            )
        if shards > 1:
            fewer = (*others[0], shards // 2, *others[1])
            yield replace(run, scenario=replace(scenario, shards=fewer))

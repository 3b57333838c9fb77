"""Define the command that simulates seeds, shortens violations, and replays runs."""

from __future__ import annotations

import multiprocessing
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from kinesumer.testing.simulation.other_version import load_version
from kinesumer.testing.simulation.replay.command import replay_command
from kinesumer.testing.simulation.run import (
    Outcome,
    Run,
    draw_run,
    execute_run,
    load_run,
    parse_rates,
    reduce_logging,
    save_run,
)
from kinesumer.testing.simulation.scenarios import (
    DRAWN,
    EACH,
    LIMITS,
    NAMED,
    SCENARIOS,
    Scenario,
    scenario_for,
)


@click.group(invoke_without_command=True)
@click.option("--members", type=click.IntRange(1), help="Clients at the start.  [3]")
@click.option(
    "--shards",
    type=click.IntRange(1),
    multiple=True,
    help="Shards; once for each stream.  [8]",
)
@click.option("--minutes", default=10.0, show_default=True, help="Minutes with faults.")
@click.option("--seed", type=int, help="The first seed; drawn if not given.")
@click.option(
    "--faults",
    help="Kinds: all, subscriptions, none,"
    " or KIND[:PER_MINUTE[:SECONDS]],…  [by the shape]",
)
@click.option(
    "--replay",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Repeat the run in this file and show its events.",
)
@click.option("--count", default=1, show_default=True, help="Number of seeds.")
@click.option(
    "--shape",
    "scenario",
    default="plain",
    show_default=True,
    type=click.Choice([*SCENARIOS, EACH, DRAWN, LIMITS]),
    help="Kind of group. each: all in turns. drawn: from the seed.",
)
@click.option(
    "--shrink/--no-shrink",
    default=True,
    show_default=True,
    help="Search the shortest run that shows a violation.",
)
@click.option(
    "--versions",
    "other",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Root of a checkout of another version. Clients of both are in a group.",
)
@click.option("--jobs", default=1, show_default=True, help="Number of processes.")
@click.option("--quiet", is_flag=True, help="Print only violations and the summary.")
@click.pass_context
def main(
    context: click.Context,
    *,
    members: int | None,
    shards: tuple[int, ...],
    minutes: float,
    seed: int | None,
    faults: str | None,
    file: Path | None,
    count: int,
    scenario: str,
    other: Path | None,
    jobs: int,
    shrink: bool,
    quiet: bool,
) -> None:
    """Simulate groups of clients under faults, and check the protocol's invariants."""
    reduce_logging()
    if context.invoked_subcommand is not None:
        return
    if file is not None:
        _replay(file)
        return
    first = secrets.randbelow(10**9) if seed is None else seed
    sizes = {"members": members, "shards": shards}
    changes: dict[str, Any] = {name: size for name, size in sizes.items() if size}
    if other is not None:
        changes["other_version"] = _checked(other)
    runs = (
        _run(
            replace(scenario_for(scenario, number), **changes), number, minutes, faults
        )
        for number in range(first, first + count)
    )
    outcomes = []
    for outcome in _execute_all(runs, jobs):
        outcomes.append(outcome)
        if outcome.violation:
            _show_violation(outcome, shrink=shrink)
        elif not quiet:
            click.echo(outcome.line)
    click.echo(_summary(outcomes))
    if any(outcome.violation for outcome in outcomes):
        sys.exit(1)


main.add_command(replay_command)


def _checked(other: Path) -> str:
    try:
        load_version(source := str(other.resolve()))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--versions") from error
    return source


def _summary(outcomes: list[Outcome]) -> str:
    """Return the totals of runs as one line of text."""

    def total(name: str) -> int:
        values: list[float] = [getattr(outcome, name) for outcome in outcomes]
        return round(sum(values))

    faults = sum(outcome.faults.total() for outcome in outcomes)
    violations = sum(bool(outcome.violation) for outcome in outcomes)
    cpu = max(1, total("cpu_seconds"))
    return (
        f"{len(outcomes)} runs, {faults} faults, {total('takeovers')} takeovers, "
        f"{total('handovers')} hand-overs, {total('delivered')} records; "
        f"{total('simulated')} s in {cpu} CPU s: "
        f"{total('simulated') / cpu:.0f} per second; {violations} violations"
    )


def _run(scenario: Scenario, seed: int, minutes: float, faults: str | None) -> Run:
    try:
        rates = parse_rates(faults or scenario.faults, scenario.faults_per_minute)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--faults") from error
    return draw_run(scenario, seed, minutes, rates)


def _execute_all(runs: Iterator[Run], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(execute_run, runs)
        return
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, context, reduce_logging) as pool:
            yield from pool.map(execute_run, runs)
    except BrokenProcessPool as error:
        raise click.ClickException(
            "one of the processes of --jobs was killed, perhaps for its memory: "
            "simulate again, with fewer jobs"
        ) from error


def _replay(file: Path) -> None:
    try:
        run = load_run(file)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--replay") from error
    outcome = execute_run(run)
    _show(outcome)
    if outcome.violation:
        sys.exit(1)


def _show_violation(outcome: Outcome, *, shrink: bool) -> None:
    run = outcome.run
    click.echo(f"seed {run.seed} ({run.scenario.name}): {outcome.violation}")
    if shrink:
        click.echo(f"searching a shorter run than its {len(run.faults)} faults …")
        outcome = Shrinker(outcome).shrink()
    file = Path(f"violation-{run.seed}.json")
    save_run(outcome.run, file)
    _show(outcome)
    click.echo(f"replay it  python -m kinesumer.testing.simulation --replay {file}")


def _show(outcome: Outcome) -> None:
    run = outcome.run
    click.echo(f"group      {_describe(run.scenario)}; seed {run.seed}")
    for fault in run.faults:
        click.echo(
            f"fault      {fault.at:.3f} s: {fault.kind}, {fault.duration_seconds:.1f} s"
        )
    click.echo(f"ending     {run.ending}, after {run.minutes:g} minutes with faults")
    click.echo("\n".join(outcome.events))
    click.echo(f"VIOLATION  {outcome.violation or 'none'}")


def _describe(scenario: Scenario) -> str:
    """Return the fields of a scenario that differ from the default."""
    values, plain = asdict(scenario), asdict(NAMED[0])
    sizes = ("members", "shards")
    names = [name for name in values if name in sizes or values[name] != plain[name]]
    return ", ".join(f"{name} {values[name]}" for name in names)


# --- the shortest run --------------------------------------------------------------

MAX_RUNS = 200


class Shrinker:
    """Tries smaller runs, and keeps those that violate the same predicate.

    First it leaves out faults (delta debugging). Then it shortens the run and the
    faults, and makes the group smaller.
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
            for smaller in (_shorter_times, _calmer_faults, _smaller_groups):
                self._first_that_fails(smaller(self.best.run))
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
                calmer = replace(fault, duration_seconds=seconds)
                faults = (*run.faults[:index], calmer, *run.faults[index + 1 :])
                yield replace(run, faults=faults)


def _smaller_groups(run: Run) -> Iterator[Run]:
    scenario = run.scenario
    for members in {scenario.members // 2, scenario.members - 1}:
        if members > 0:
            yield replace(run, scenario=replace(scenario, members=members))
    for index, shards in enumerate(scenario.shards):
        before, after = scenario.shards[:index], scenario.shards[index + 1 :]
        for fewer in ((*before, *after), (*before, shards // 2, *after)):
            if fewer and all(fewer):
                yield replace(run, scenario=replace(scenario, shards=fewer))

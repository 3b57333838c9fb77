"""Simulate one seed: a time with faults, a time at rest, a final phase, and checks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec

from kinesumer.config import Config
from kinesumer.testing.simulation.convergence import (
    check_plan,
    check_settled,
    count_waiting,
    raise_violation,
    settling_state,
)
from kinesumer.testing.simulation.event_loop import SpinningError
from kinesumer.testing.simulation.faults import KINDS, FaultInjector
from kinesumer.testing.simulation.final_phases import AT_REST, FATAL, LATENCY
from kinesumer.testing.simulation.fleet_phases import FLEET
from kinesumer.testing.simulation.invariants.base import ViolationError, format_events
from kinesumer.testing.simulation.invariants.liveness import (
    BACKLOG_SECONDS,
    LivenessMonitor,
    LossLogHandler,
)
from kinesumer.testing.simulation.scenarios import (
    EACH,
    MAX_FAULT_SECONDS,
    Fault,
    Scenario,
    scenario_for,
)
from kinesumer.testing.simulation.service_faults import (
    EVERY_KIND,
    SERVICE_KINDS,
    SUBSCRIPTION_KINDS,
)
from kinesumer.testing.simulation.simulation import Simulation

LEASE_SECONDS = Config().lease_duration_seconds
# How many faults begin within one lease.
GROUP_SIZES = (1, 1, 1, 2, 2, 3)
ALL = (*KINDS, *SERVICE_KINDS, *FATAL)
KNOWN = {*EVERY_KIND, *FATAL}
# An app in a KCL fleet refuses pauses and seeks. As all records must be processed, none
# may expire.
NOT_IN_FLEETS = {"pause", "seek", "seek_to_end", "expire", *FATAL}
FLEET_KINDS = [kind for kind in ALL if kind not in NOT_IN_FLEETS]


@dataclass(frozen=True)
class Rate:
    """The rate and the maximum duration of a kind of fault."""

    kind: str
    per_minute: float
    seconds: float = MAX_FAULT_SECONDS


def parse_rates(
    text: str, per_minute: float = Scenario.faults_per_minute
) -> tuple[Rate, ...]:
    """Read ``KIND[:PER_MINUTE[:SECONDS]],…``; ``none`` is no kind.

    ``all`` is every kind but ``poison``, ``auto`` and ``subscriptions``, those of
    fan-out. ``fleet`` is every one of these that a KCL fleet can have. Kinds without a
    rate share that of ``all``, by default ``per_minute``. Raises ValueError.
    """
    kinds: dict[str, tuple[float | None, float]] = {}
    for part in text.split(","):
        kind, *figures = part.split(":")
        rate, seconds = _figures(part, figures)
        if kind in ("all", "fleet"):
            per_minute = rate or per_minute
            every = ALL if kind == "all" else FLEET_KINDS
            kinds.update((name, (None, seconds)) for name in every)
        elif kind == "subscriptions":
            kinds.update((name, (rate, seconds)) for name in SUBSCRIPTION_KINDS)
        elif kind != "none":
            kinds[kind] = rate, seconds
    unknown = sorted(kinds.keys() - KNOWN)
    if unknown:
        raise ValueError(
            f"unknown kinds of faults: {', '.join(unknown)}; "
            f"known are all, fleet, subscriptions, none, {', '.join(sorted(KNOWN))}"
        )
    sharing = [k for k, (own, _) in kinds.items() if own is None and k not in FATAL]
    each = per_minute / max(1, len(sharing))
    return tuple(
        Rate(kind, each if own is None else own, seconds)
        for kind, (own, seconds) in kinds.items()
    )


def _figures(part: str, figures: list[str]) -> tuple[float | None, float]:
    if len(figures) > 2:
        raise ValueError(f"{part}: write at most KIND:PER_MINUTE:SECONDS")
    try:
        values = [float(figure) if figure else None for figure in figures]
    except ValueError:
        raise ValueError(f"{part}: rate and length must be numbers") from None
    if any(value is not None and not value > 0 for value in values):
        raise ValueError(f"{part}: rate and length must be greater than 0")
    rate, seconds = [*values, None, None][:2]
    return rate, MAX_FAULT_SECONDS if seconds is None else seconds


def draw_faults(
    rates: Iterable[Rate], seconds: float, random: random.Random
) -> tuple[Fault, ...]:
    """Draw faults that begin and end within the first ``seconds`` of a run.

    One, two or three begin within one lease, so that any of them overlap.
    """
    rates = [rate for rate in rates if rate.kind not in FATAL]
    weights = [rate.per_minute for rate in rates]
    if not rates:
        return ()
    mean, group_at = 60 / sum(weights) * fmean(GROUP_SIZES), 0.0
    faults: list[Fault] = []
    while (group_at := group_at + 2 * mean * random.random()) < seconds:
        for rate in random.choices(rates, weights, k=random.choice(GROUP_SIZES)):
            at = min(group_at + LEASE_SECONDS * random.random(), seconds)
            # The square makes most faults short, and only some as long as possible.
            duration = min(rate.seconds * random.random() ** 2, seconds - at)
            draw = random.getrandbits(32)
            faults.append(Fault(round(at, 3), rate.kind, round(duration, 3), draw))
    return tuple(sorted(faults, key=lambda fault: fault.at))


# After the faults, a group may need some of these periods until it has settled (L2) or
# done every record (L3), as long as something changes in each of them.
FINISH_SECONDS = 15.0
MAX_CHECKS = 20


@dataclass(frozen=True)
class Run:
    """The parameters of a simulation. They determine all that happens in it."""

    scenario: Scenario
    seed: int
    # The minutes with faults. The time to settle and the final phase come after them.
    minutes: float
    faults: tuple[Fault, ...]
    ending: str = "nothing"


@dataclass
class Outcome:
    """The outcome of a run."""

    run: Run
    simulated: float = 0.0
    cpu_seconds: float = 0.0
    produced: int = 0
    delivered: int = 0
    redelivered: int = 0
    takeovers: int = 0
    handovers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    predicate: str = ""
    violation: str = ""
    events: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The outcome as a line of text."""
        run = self.run
        return (
            f"seed {run.seed} {run.scenario.name}: {self.faults.total()} faults, "
            f"{self.takeovers} takeovers, {self.handovers} hand-overs, "
            f"{self.delivered} delivered, {self.redelivered} again; "
            f"{self.simulated:.0f} s in {self.cpu_seconds:.2f} s"
        )


def draw_run(
    scenario: Scenario, seed: int, minutes: float, rates: Sequence[Rate]
) -> Run:
    """Draw the faults and the final phase of a run."""
    draw = random.Random(f"{seed} {scenario.name} schedule")
    faults = draw_faults(rates, 60 * minutes, draw)
    fatal = [rate.kind for rate in rates if rate.kind in FATAL]
    # Draw a check at rest twice as often as a fatal fault, since checks find more.
    endings = [*AT_REST, *AT_REST, *fatal] if faults or not fatal else fatal
    if scenario.kcl_fleet:
        endings = [*FLEET]
    if scenario.commit == "manual":
        # The cost has no bound if user code may commit at any time.
        endings = [name for name in endings if name != "cost"]
    if scenario.apps > 1:
        # A recreated stream ends the clients of all apps, which only one app expects.
        others = [name for name in AT_REST if name in endings]
        endings = [*LATENCY] * len(others) + others
    return Run(scenario, seed, minutes, faults, draw.choice(endings))


def draw_dense_run(seed: int, *, minutes: float = 10.0) -> Run:
    """Draw a run with all kinds of faults. The seed also selects the scenario."""
    scenario = scenario_for(EACH, seed)
    return draw_run(scenario, seed, minutes, parse_rates(scenario.faults))


def reduce_logging() -> None:
    """Log errors only, since faults cause many warnings.

    It isn't in ``__main__``, since the processes of a pool can't import that.
    """
    logging.getLogger("kinesumer").setLevel(logging.ERROR)
    logging.getLogger("kinesumer").propagate = False


def save_run(run: Run, path: Path) -> None:
    """Write a run to a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load_run(path: Path) -> Run:
    """Return the run in a file. Raises ValueError if the file is invalid."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} doesn't contain a valid run: {error}") from error
    unknown = {fault.kind for fault in run.faults} - EVERY_KIND.keys()
    endings = AT_REST | FATAL | FLEET | LATENCY
    unknown |= {run.ending} - endings.keys()
    if unknown:
        raise ValueError(f"{path} names unknown faults: {', '.join(sorted(unknown))}")
    return run


def execute_run(run: Run) -> Outcome:
    """Simulate one run. The outcome contains any violation, which isn't raised."""
    sim = Simulation(run.scenario, run.seed)
    outcome = Outcome(run)
    try:
        play(sim, outcome)
    except ViolationError as error:
        outcome.predicate, outcome.violation = error.predicate, str(error)
    except SpinningError as error:
        outcome.predicate, outcome.violation = "spinning", str(error)
    if outcome.violation:
        outcome.events = format_events(sim.checker.events)
    return outcome


def play(sim: Simulation, outcome: Outcome) -> None:
    """Simulate a run and fill in its outcome. Raises ViolationError."""
    started = time.process_time()
    monitors = [LivenessMonitor(app) for app in sim.apps]
    try:
        with LossLogHandler(monitors):
            sim.run(lambda sim: _play(sim, outcome, monitors))
    finally:
        outcome.cpu_seconds = time.process_time() - started
        checker = sim.checker
        outcome.simulated, outcome.produced = sim.loop.real, sim.produced
        outcome.delivered = checker.delivered_count
        outcome.redelivered = checker.redelivered
        outcome.takeovers, outcome.handovers = checker.takeovers, checker.handovers


async def _play(
    sim: Simulation, outcome: Outcome, monitors: Sequence[LivenessMonitor]
) -> None:
    run = outcome.run
    loop = asyncio.get_running_loop()
    production = loop.create_task(sim.produce())
    retention = loop.create_task(sim.apply_retention())
    roll_overs = loop.create_task(sim.roll_tables_over())
    starting = [loop.create_task(app.start_all()) for app in sim.apps]
    for monitor in monitors:
        monitor.begin(run.faults)
    for fault in run.faults:
        await asyncio.sleep(fault.at - sim.loop.real)
        sim.checker.note("fault", fault.kind, f"for {fault.duration_seconds:.1f} s")
        outcome.faults[fault.kind] += 1
        EVERY_KIND[fault.kind](FaultInjector(sim, fault.draw), fault.duration_seconds)
    await asyncio.sleep(60 * run.minutes - sim.loop.real)
    await asyncio.gather(*starting)
    for app in sim.apps:
        app.end_faults()
    await _settle(sim, monitors)
    for app in sim.apps:
        check_plan(app)
    sim.checker.note("ending", run.ending)
    if ending := (AT_REST | FLEET | LATENCY).get(run.ending):
        await ending(sim)
    sim.producing = False
    await production
    await retention
    await roll_overs
    # The last record of each open shard shows that the shard is still consumed.
    sim.put_everywhere()
    await asyncio.sleep(FINISH_SECONDS)
    await _until_unchanged(sim, count_waiting)
    if sim.scenario.assignor == "load":  # a plan may have just followed the load
        await _until_unchanged(sim, settling_state)
    for monitor in monitors:
        check_settled(monitor.sim)
        await monitor.check_at_rest()
    raise_violation(sim)
    if run.ending in FATAL:
        outcome.faults[run.ending] += 1
        await FATAL[run.ending](sim)


async def _settle(sim: Simulation, monitors: Sequence[LivenessMonitor]) -> None:
    """Wait until the plan and the owners of shards no longer change.

    The group may notice a reshard late, and a backlog delays the end of a shard.
    """
    # While the machine of an operator's command is stopped, a pause may remain.
    while any(operator.busy for app in sim.apps for operator in app.operators[:-1]):
        await asyncio.sleep(1)
    allowed = max(monitor.backlog_seconds() for monitor in monitors)
    await asyncio.sleep(max(BACKLOG_SECONDS, allowed))
    for monitor in monitors:
        monitor.check_backlog()
        monitor.check_repeats()
    await _until_unchanged(sim, settling_state)


async def _until_unchanged(
    sim: Simulation, state: Callable[[Simulation], object]
) -> None:
    """Wait until a value of each app stays the same for FINISH_SECONDS."""
    before: object = None
    for _ in range(MAX_CHECKS):
        if before == (before := [state(app) for app in sim.apps]):
            return
        await asyncio.sleep(FINISH_SECONDS)

"""Simulate one seed: a time with faults, a time at rest, a final phase, and checks."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.testing.simulation.convergence import (
    check_plan,
    check_settled,
    count_waiting,
    raise_violation,
    settling_state,
)
from kinesumer.testing.simulation.event_log import format_events
from kinesumer.testing.simulation.event_loop import SpinningError
from kinesumer.testing.simulation.faults import FaultInjector
from kinesumer.testing.simulation.final_phases import AT_REST, FATAL, LATENCY
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.liveness import (
    LivenessMonitor,
    LossLogHandler,
)
from kinesumer.testing.simulation.scenarios import EACH, Scenario, scenario_for
from kinesumer.testing.simulation.schedule import Fault, draw_faults, parse_rates
from kinesumer.testing.simulation.simulation import Simulation
from kinesumer.testing.simulation.subscription_faults import EVERY_KIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.testing.simulation.schedule import Rate

# Ownership must match the plan within this time after the faults (L2). If ownership
# still changes then, wait up to MAX_SETTLE_CHECKS times for it to settle.
SETTLE_SECONDS = 60.0
MAX_SETTLE_CHECKS = 9
# Every record must be done within this time after the last record's arrival (L3). If
# only some of the records were done in this time, wait for the same time again.
FINISH_SECONDS = 15.0


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
    ids_in_use: int = 0
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
    if scenario.commit == "manual":
        # Leave out the cost, which has no bound if user code may commit at any time.
        endings = [name for name in endings if name != "cost"]
    if scenario.apps > 1:
        # Leave out fatal faults: a recreated stream ends the clients of all apps, and
        # only the first app would expect that.
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
        outcome.simulated, checker = sim.loop.real, sim.checker
        outcome.ids_in_use, outcome.produced = sim.ids_in_use, sim.produced
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
    if ending := (AT_REST | LATENCY).get(run.ending):
        await ending(sim)
    sim.producing = False
    await production
    await retention
    # The last record of each open shard shows that the shard is still consumed.
    sim.put_everywhere()
    await _finish(sim)
    if sim.scenario.assignor == "load":  # a plan may have just followed the load
        await _until_unchanged(sim)
    for monitor in monitors:
        check_settled(monitor.sim)
        await monitor.check_at_rest()
    raise_violation(sim)
    if run.ending in FATAL:
        outcome.faults[run.ending] += 1
        await FATAL[run.ending](sim)


async def _settle(sim: Simulation, monitors: Sequence[LivenessMonitor]) -> None:
    """Wait until the plan and the owners of shards no longer change.

    This may take some time, since the group may notice a reshard late, and a backlog
    delays the end of a shard.
    """
    allowed = max(monitor.backlog_seconds() for monitor in monitors)
    await asyncio.sleep(max(SETTLE_SECONDS, allowed))
    for monitor in monitors:
        monitor.check_backlog()
        monitor.check_repeats()
    await _until_unchanged(sim)


async def _until_unchanged(sim: Simulation) -> None:
    """Wait until no plan is made and no shard moves for some seconds."""
    before: object = None
    for _ in range(MAX_SETTLE_CHECKS):
        if before == (before := [settling_state(app) for app in sim.apps]):
            return
        await asyncio.sleep(FINISH_SECONDS)


async def _finish(sim: Simulation) -> None:
    """Wait until all records are done, or until no progress is made."""
    before = math.inf
    await asyncio.sleep(FINISH_SECONDS)
    while 0 < (left := sum(count_waiting(app) for app in sim.apps)) < before:
        before = left
        await asyncio.sleep(FINISH_SECONDS)

"""Dense simulations over several shapes of a group: one seed, one run, one outcome."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.model import Start
from kinesumer.testing.mishaps import MISHAPS, Mishaps
from kinesumer.testing.predicates import ViolationError
from kinesumer.testing.settled import check_settled
from kinesumer.testing.simulation import Shape, Simulation
from kinesumer.testing.virtual import SpinningError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SETTLE_SECONDS = 60.0
"""After the faults: ownership must equal the plan by then (L2)."""
FINISH_SECONDS = 15.0
"""After the last record: every record must be done by then (L3)."""

SHAPES = (
    Shape("plain"),
    Shape("alone", members=1, shards=(4,)),
    Shape(
        "sticky",
        members=5,
        shards=(6, 4),
        assignor="sticky",
        static_ids=True,
        aggregated=0.1,
    ),
    Shape("manual", shards=(4, 4), commit="manual", aggregated=0.3),
    Shape("batches", members=4, shards=(1, 1, 1), batches=True, together=True),
    Shape("latest", shards=(4, 2), start=Start.LATEST, static_ids=True, together=True),
)


@dataclass(frozen=True)
class Dense:
    """A run with a mishap about every ten seconds, then a time to settle."""

    shape: Shape
    seed: int
    minutes: float = 10.0
    kinds: tuple[str, ...] = tuple(MISHAPS)

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        faults = "all" if self.kinds == tuple(MISHAPS) else ",".join(self.kinds)
        shape = self.shape
        sizes = ""
        if shape not in SHAPES:
            shards = " ".join(f"--shards {count}" for count in shape.shards)
            sizes = f" --members {shape.members} {shards}"
        return (
            f"python -m kinesumer.testing.simulate --shape {shape.name}{sizes} "
            f"--minutes {self.minutes:g} --seed {self.seed} --faults {faults or 'none'}"
        )


@dataclass
class Outcome:
    """What came of a run."""

    run: Dense
    simulated: float = 0.0
    cpu_seconds: float = 0.0
    delivered: int = 0
    redelivered: int = 0
    takeovers: int = 0
    handovers: int = 0
    mishaps: int = 0
    ids_in_use: int = 0
    violation: str = ""
    events: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The outcome in a line."""
        run = self.run
        return (
            f"seed {run.seed} {run.shape.name}: {self.mishaps} faults, "
            f"{self.takeovers} takeovers, {self.handovers} hand-overs, "
            f"{self.delivered} delivered, {self.redelivered} again; "
            f"{self.simulated:.0f} s in {self.cpu_seconds:.2f} s"
        )


def dense(seed: int, *, minutes: float = 10.0) -> Dense:
    """Return the run that belongs to a seed: shapes take turns."""
    return Dense(SHAPES[seed % len(SHAPES)], seed, minutes)


def carry_out(run: Dense) -> Outcome:
    """Simulate one run; a violation is part of the outcome, not raised."""
    sim = Simulation(run.shape, run.seed)
    outcome = Outcome(run)
    started = time.process_time()
    mishaps = Mishaps(sim, run.kinds)
    try:
        sim.run(lambda sim: _play(sim, mishaps, 60 * run.minutes))
    except (ViolationError, SpinningError) as error:
        outcome.violation = f"{type(error).__name__}: {error}"
        outcome.events = shown(sim)
    outcome.cpu_seconds = time.process_time() - started
    outcome.simulated = sim.loop.real
    outcome.mishaps = mishaps.happened
    outcome.ids_in_use = sim.ids_in_use
    judge = sim.judge
    outcome.delivered, outcome.redelivered = judge.delivered_count, judge.redelivered
    outcome.takeovers, outcome.handovers = judge.takeovers, judge.handovers
    return outcome


async def _play(sim: Simulation, mishaps: Mishaps, seconds: float) -> None:
    production = asyncio.get_running_loop().create_task(sim.produce())
    await sim.start_all()
    await mishaps.run(seconds)
    await asyncio.sleep(SETTLE_SECONDS)
    sim.producing = False
    await production
    await asyncio.sleep(FINISH_SECONDS)
    check_settled(sim)


def shown(sim: Simulation, last: int = 60) -> list[str]:
    """Return the last events, in words."""
    return [
        f"{at:10.3f}  {kind} {who} {_words(what)}"
        for at, kind, who, what in list(sim.judge.events)[-last:]
    ]


def _words(what: object) -> str:
    from kinesumer.ports import Write

    if not isinstance(what, Write):
        return str(what)
    done = "deletes" if what.delete else f"{dict(what.set)}"
    gone = f" without {', '.join(what.remove)}" if what.remove else ""
    return f"{what.key.pk.rpartition('/')[2]} {what.key.sk}: {done}{gone}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return what a campaign did, in a line."""
    cpu = sum(outcome.cpu_seconds for outcome in outcomes)
    simulated = sum(outcome.simulated for outcome in outcomes)
    return (
        f"{len(outcomes)} runs, {_total(o.mishaps for o in outcomes)} faults, "
        f"{_total(o.takeovers for o in outcomes)} takeovers, "
        f"{_total(o.handovers for o in outcomes)} hand-overs, "
        f"{_total(o.delivered for o in outcomes)} records; "
        f"{simulated:.0f} s in {cpu:.1f} CPU s: {simulated / cpu:.0f} per second; "
        f"{sum(bool(o.violation) for o in outcomes)} violations"
    )


def _total(figures: Iterable[int]) -> int:
    return sum(figures)

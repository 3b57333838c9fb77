"""Simulate groups that write histories, and check the histories.

    python -m tests.system.night.histories --seed 1 --count 20

The checker of histories shares no code with the simulator's predicates. Runs in which
records are removed before they are read, or the table is lost, are left out: to the
histories, such records are lost, and a new table is a row gone back.
"""

from __future__ import annotations

import argparse
import sys

from kinesumer.ops.history.check import Verdict, check_histories
from kinesumer.testing.simulation.final_phases import FATAL
from kinesumer.testing.simulation.run import (
    Outcome,
    Run,
    draw_run,
    parse_rates,
    play,
    reduce_logging,
)
from kinesumer.testing.simulation.scenarios import DRAWN, scenario_for
from kinesumer.testing.simulation.simulation import Simulation

LOSSES = ("expire", "trim")


def draw(seed: int, minutes: float) -> Run | None:
    """Draw a run; None if its histories would show losses."""
    scenario = scenario_for(DRAWN, seed)
    rates = parse_rates(scenario.faults, scenario.faults_per_minute)
    run = draw_run(scenario, seed, minutes, rates)
    loses = any(fault.kind in LOSSES for fault in run.faults) or run.ending in FATAL
    return None if loses or scenario.retention_seconds else run


def check_run(run: Run) -> Verdict:
    """Simulate a run, and check its histories. Raises ViolationError."""
    sim = Simulation(run.scenario, run.seed)
    sim.histories = {}
    play(sim, Outcome(run))
    return check_histories(
        (name, b"".join(lines)) for name, lines in sim.histories.items()
    )


def main() -> int:
    """Check the histories of the seeds, and print the faults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3.0)
    given = parser.parse_args()
    reduce_logging()
    runs = (
        draw(seed, given.minutes)
        for seed in range(given.seed, given.seed + given.count)
    )
    checked = deliveries = faults = 0
    for run in filter(None, runs):
        verdict = check_run(run)
        checked += 1
        deliveries += verdict.counts["deliveries"]
        for rule, found in verdict.faults.items():
            faults += len(found)
            for fault in found:
                print(f"seed {run.seed}: {rule}: {fault}")
    print(f"{checked} histories, {deliveries} deliveries, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

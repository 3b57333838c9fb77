"""Simulate autoscalers that follow the number of wanted clients after a pause.

    python -m benchmarks.wanted_clients [--seeds 10]

All shards are equally far behind, and one client reads them. The autoscaler looks once
a minute. It follows the shards' present work, or one of the two goals: the work that
the arriving records need, or with it the work that removes the backlog in ten minutes.
The figures are medians: the most clients, the clients after an hour, and the time until
all shards have caught up.
"""

from __future__ import annotations

from argparse import ArgumentParser
from statistics import median

from benchmarks.report import Report
from tests.support.scaled_fleet import TARGET, ScaledFleet

FLEETS = ((16, 4.0, 300.0), (64, 8.0, 600.0), (64, 8.0, 60.0))
GOALS = {"present work": "present", "load": "keep_up", "catch_up": "catch_up"}
SECONDS = 3600


def main() -> None:
    """Print a table for each fleet."""
    parser = ArgumentParser(prog="python -m benchmarks.wanted_clients")
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    for shards, work, lag in FLEETS:
        report = Report(
            f"{shards} shards, {lag:g} s behind; the arriving records need "
            f"{work / TARGET:.1f} clients"
        )
        for name, goal in GOALS.items():
            runs = [
                ScaledFleet(shards, work, lag, seed, goal).run(SECONDS)
                for seed in seeds
            ]
            most, last = (
                f"{median(of(run.clients) for run in runs):.0f}"
                for of in (max, lambda clients: clients[-1])
            )
            times = [run.caught_up_at or SECONDS for run in runs]
            took = f"{median(times):.0f} s"
            report.note(name, f"at most {most}, after an hour {last}, took {took}")
        report.print()


if __name__ == "__main__":
    main()

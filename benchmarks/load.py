"""Measure how well plans by load balance a fleet, and how many shards they move.

    python -m benchmarks.load [--seeds 10] [--first-seed 0] [--shards 100|10000]
                              [--noise 0.3] [--assignor range]

Fleets of 100 shards on 10 clients and of 10,000 shards on 200 clients run in virtual
time. The shards' loads follow Zipf's law, with noise of 30 % each second, or of
``--noise``: 0 shows the plans alone, since then all loads are measured exactly. The
figures are the work of the busiest client, relative to the mean, a minute after a
change. Clients with a single shard are left out, since no plan can give them less.
Beside the greatest figure is that of the best possible cut of the same shards. The last
column counts the runs above the aim of 1.15 in which the best possible cut is below it.

``--assignor`` and ``benchmarks.with_constants`` show other rules.

Shards that move are counted in three times of ten minutes without a change. Two follow
each other, from two minutes after the start on. The third one begins two minutes after
all loads were exchanged.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import median
from typing import NamedTuple

from benchmarks.load_fleet import LoadFleet, zipf
from kinesumer.config import Config

AIM = 1.15
SETTLE_SECONDS = 60
GROWN, GROWTH = 5, 1.25  # the fifth busiest shard grows by 25 %
STEADY_SECONDS = 600
SIZES = ((100, 10), (10_000, 200))
RECORDS_PER_SHARD = 50.0


class Balance(NamedTuple):
    """The busiest client's work relative to the mean, a minute after a change."""

    busiest: float
    lowest: float  # after the best possible cut into ranges


class Result(NamedTuple):
    """One fleet's figures."""

    balances: dict[str, Balance]
    moved_percents: list[float]  # shards moved in ten minutes without a change
    plan_seconds: float  # CPU time of one plan


def measure(
    shards: int, clients: int, noise: float, seed: int, config: Config
) -> Result:
    """Run one fleet through a start, a steady time, and three changes."""
    random = Random(seed)
    rates = zipf(shards, random, RECORDS_PER_SHARD * shards)
    fleet = LoadFleet(rates, clients, random, noise=noise, config=config)
    balances = {"start": settle(fleet)}
    settle(fleet)
    moved_percents = [moved_percent(fleet), moved_percent(fleet)]
    random.shuffle(fleet.rates)
    balances["all loads exchanged"] = settle(fleet)
    settle(fleet)
    moved_percents.append(moved_percent(fleet))
    busiest = sorted(range(shards), key=lambda shard: -fleet.rates[shard])
    fleet.rates[busiest[GROWN - 1]] *= GROWTH
    balances["a busy shard grew by 25 %"] = settle(fleet)
    fleet.leave("client-0001")
    balances["a client left"] = settle(fleet)
    fleet.join("joining")
    began = time.process_time()
    fleet.plan()
    plan_seconds = time.process_time() - began
    balances["a client joined"] = settle(fleet)
    return Result(balances, moved_percents, plan_seconds)


def settle(fleet: LoadFleet) -> Balance:
    """Let a minute pass."""
    fleet.run(SETTLE_SECONDS)
    return Balance(fleet.busiest(), fleet.lowest_busiest())


def moved_percent(fleet: LoadFleet) -> float:
    """Return how many shards move in ten minutes."""
    fleet.moved = 0
    fleet.run(STEADY_SECONDS)
    return 100 * fleet.moved / len(fleet.rates)


def main() -> None:
    """Print a table of the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--shards", type=int, choices=[shards for shards, _ in SIZES])
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--assignor", choices=["range", "load"], default="load")
    given = parser.parse_args()
    config = Config(assignor=given.assignor)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for shards, clients in SIZES:
        if given.shards not in (None, shards):
            continue
        results = [
            measure(shards, clients, given.noise, seed, config) for seed in seeds
        ]
        report(shards, clients, results)


def report(shards: int, clients: int, results: list[Result]) -> None:
    """Print the figures of one fleet's runs."""
    title = f"{shards:,} shards, {clients} clients"
    print(f"\n{title:30}  median  greatest  its best cut  avoidable")
    for name in results[0].balances:
        runs = [result.balances[name] for result in results]
        worst = max(runs)
        avoidable = sum(run.busiest > AIM >= run.lowest for run in runs)
        print(
            f"  {name:28}  {median(run.busiest for run in runs):6.2f}"
            f"  {worst.busiest:8.2f}  {worst.lowest:12.2f}  {avoidable:9}"
        )
    moved = [percent for result in results for percent in result.moved_percents]
    for name, values in (
        ("moved in ten minutes, %", moved),
        ("plan, CPU ms", [1000 * result.plan_seconds for result in results]),
    ):
        print(f"  {name:28}  {median(values):6.1f}  {max(values):8.1f}")


if __name__ == "__main__":
    main()

"""Test that plans by load follow the load of large fleets, and move few shards."""

from __future__ import annotations

from random import Random
from statistics import mean

from benchmarks.load_fleet import LoadFleet, zipf


def test_a_fleet_is_balanced_within_a_minute_of_a_change_and_moves_little() -> None:
    busiest, moved = list[tuple[float, float]](), list[float]()

    def settle(fleet: LoadFleet) -> None:
        fleet.run(60)
        busiest.append((fleet.busiest(), fleet.lowest_busiest()))

    for seed in range(3):
        random = Random(seed)
        fleet = LoadFleet(zipf(100, random, 5000), 10, random)
        settle(fleet)
        fleet.moved = 0
        fleet.run(600)
        moved.append(fleet.moved)
        fleet.leave("client-0003")
        settle(fleet)
        fleet.join("joining")
        settle(fleet)
    assert mean(top for top, _ in busiest) <= 1.1
    # Where a few busy shards lie badly, successive shards can't be cut more evenly.
    assert all(top <= max(1.15, 1.03 * lowest) for top, lowest in busiest)
    assert max(moved) <= 5


def test_two_thousand_shards_are_balanced_within_a_minute() -> None:
    random = Random(1)
    fleet = LoadFleet(zipf(2_000, random, 100_000), 40, random)
    assert fleet.busiest() > 2
    fleet.run(60)
    assert fleet.busiest() <= 1.15
    random.shuffle(fleet.rates)
    assert fleet.busiest() > 2
    fleet.run(60)
    assert fleet.busiest() <= 1.15

"""Test that simulated groups violate no predicate, and large ones follow their load.

Other seeds: ``python -m kinesumer.testing.simulation --count 200 --jobs 2``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import mean

import pytest

from benchmarks.load_fleet import LoadFleet, zipf
from kinesumer.model.streams import Start
from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.final_phases import AT_REST, FATAL
from kinesumer.testing.simulation.machine import EPOCH
from kinesumer.testing.simulation.run import (
    Outcome,
    Run,
    draw_dense_run,
    draw_run,
    execute_run,
    parse_rates,
    play,
)
from kinesumer.testing.simulation.scenarios import (
    MONTHS,
    NAMED,
    Scenario,
    scenario_for,
)
from kinesumer.testing.simulation.service_faults import (
    SERVICE_KINDS,
    SUBSCRIPTION_KINDS,
)
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated_group import traces

RUN = (sys.executable, "-m", "kinesumer.testing.simulation")


def simulate(*arguments: str, hash_seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [*RUN, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


@pytest.mark.slow
def test_a_group_of_each_shape_survives_a_dense_minute() -> None:
    arguments = f"--seed 0 --count {len(NAMED)} --minutes 1 --shape each --jobs 2"
    output = simulate(*arguments.split(), "--quiet")
    assert f"{len(NAMED)} runs" in output
    assert " 0 violations" in output


def by_threes(name: str, *kinds: str) -> list[tuple[str, Sequence[str]]]:
    """Return the name of a scenario with three of the kinds at a time."""
    return [(name, kinds[i : i + 3]) for i in range(0, len(kinds), 3)]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        *by_threes("latest", *KINDS, *SERVICE_KINDS),
        *by_threes("fan-out", *SUBSCRIPTION_KINDS),
    ],
    ids=str,
)
def test_a_group_survives_three_kinds_of_faults_at_a_time(
    name: str, kinds: Sequence[str]
) -> None:
    rates = parse_rates(",".join(f"{kind}:12" for kind in kinds))
    outcome = execute_run(draw_run(scenario_for(name, 1), 1, 0.8, rates))
    assert not outcome.violation
    assert min(outcome.faults[kind] for kind in kinds) > 5


def test_a_group_survives_switches_of_the_strategy_with_records_without_keys() -> None:
    for seed, faults in ((1, "auto:12"), (2, "all,auto:12"), (3, "all,auto:12")):
        run = draw_run(scenario_for("auto", seed), seed, 1.5, parse_rates(faults))
        outcome = execute_run(run)
        assert not outcome.violation
        assert outcome.faults["auto"] > 5


def test_a_group_reads_the_streams_of_tables_through_roll_overs_and_faults() -> None:
    for seed in range(3):
        run = draw_run(scenario_for("tables", seed), seed, 2.0, parse_rates("all"))
        outcome = execute_run(run)
        assert not outcome.violation
        assert outcome.delivered > 500


@pytest.mark.slow
def test_a_group_reads_the_stream_of_a_table_over_a_roll_over_after_four_hours() -> (
    None
):
    scenario = replace(
        scenario_for("table-days", 1),
        members=2,
        shards=(2,),
        min_read_interval_seconds=10.0,
    )
    assert not execute_run(Run(scenario, 1, 5 * 60, ())).violation


@pytest.mark.parametrize("ending", AT_REST)
def test_a_group_that_reads_tables_at_rest_keeps_each_final_phases_limits(
    ending: str,
) -> None:
    scenario = replace(scenario_for("tables", 1), roll_over_seconds=0.0)
    assert not execute_run(Run(scenario, 1, 0.1, (), ending)).violation


@pytest.mark.parametrize("kind", FATAL)
def test_a_group_ends_by_each_fault_that_no_client_survives(kind: str) -> None:
    outcome = execute_run(draw_run(scenario_for("mixed", 1), 1, 0.1, parse_rates(kind)))
    assert not outcome.violation
    assert outcome.faults == {kind: 1}


@pytest.mark.parametrize("ending", AT_REST)
@pytest.mark.parametrize("name", ["mixed", "ids"])
def test_a_group_at_rest_keeps_each_final_phases_limits(ending: str, name: str) -> None:
    run = Run(scenario_for(name, 1), 1, 0.1, (), ending)
    assert not execute_run(run).violation


def test_a_seed_replays_exactly() -> None:
    first, second = (execute_run(draw_dense_run(7, minutes=1)) for _ in range(2))
    first.cpu_seconds = second.cpu_seconds = 0.0
    assert first == second
    assert first.delivered > 500


def test_a_seed_replays_exactly_in_another_process() -> None:
    # The command itself sets the hash seed, so run another program instead.
    lines = {
        simulate("--seed", "7", "--minutes", "1", hash_seed=seed).partition("; ")[0]
        for seed in ("1", "random")
    }
    assert len(lines) == 1


LARGE = Scenario(
    "large",
    members=50,
    shards=(300, 200),
    min_read_interval_seconds=5.0,
    together=True,
)


def test_a_group_of_fifty_clients_and_five_hundred_shards_comes_to_rest() -> None:
    assert not execute_run(Run(LARGE, 1, 0.1, ())).violation


def test_several_apps_consume_every_record() -> None:
    scenario = Scenario(members=2, shards=(2, 1), apps=3, faults="none")
    assert not execute_run(Run(scenario, 1, 0.5, ())).violation


def test_aggregates_as_only_others_write_them_are_opened_or_delivered_whole() -> None:
    scenario = Scenario(shards=(2,), aggregated=1.0, odd_aggregates=1.0)
    sim = Simulation(scenario, 1)
    play(sim, Outcome(Run(scenario, 1, 0.5, ())))

    delivered = {part for trace in traces(sim) for _, part in trace.index}
    assert delivered == {None, 0, 1, 2, 3, 4}


@pytest.mark.parametrize("days", [0, 2])
def test_a_group_starts_by_a_time_before_all_records_that_are_left(days: int) -> None:
    start = Start(type="AT_TIMESTAMP", timestamp=EPOCH - 86_400 * days)
    scenario = replace(scenario_for("idle", 1), start=start)
    rates = parse_rates("all:6")
    assert not execute_run(draw_run(scenario, 1, 4.0, rates)).violation


def test_a_group_survives_the_faults_of_a_month_in_an_hour() -> None:
    scenario = replace(MONTHS, retention_seconds=600.0)
    rates = [
        replace(rate, per_minute=720 * rate.per_minute, seconds=60.0)
        for rate in parse_rates(MONTHS.faults)
    ]
    outcome = execute_run(draw_run(scenario, 1, 60.0, rates))
    assert not outcome.violation
    assert outcome.faults.keys() == {rate.kind for rate in rates}


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
    for _ in range(2):
        assert fleet.busiest() > 2
        fleet.run(60)
        assert fleet.busiest() <= 1.15
        random.shuffle(fleet.rates)

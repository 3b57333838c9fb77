"""Test that simulated clients of two versions are one group, under all faults.

More seeds: ``python -m tests.system.versions --count 100``.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kinesumer.model.rows import Row
from kinesumer.ports import Write
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.other_version import OtherProcess
from kinesumer.testing.simulation.run import (
    Outcome,
    Run,
    draw_run,
    parse_rates,
    play,
)
from kinesumer.testing.simulation.scenarios import Fault, scenario_for
from kinesumer.testing.simulation.simulation import Simulation
from tests.system.mutants.catalogue import MUTANTS, ROOT, mutate
from tests.system.versions.revisions import extract, last_release

# They cover loops, handlers, batches, manual commits, poison records and fan-out.
SHAPES = ("ids", "manual", "batches", "latest", "poison", "fan-out")
FAULTS = "all,poison:0.2,subscriptions"


def draw(source: Path, shape: str, seed: int = 1) -> Run:
    """Draw a run of two minutes, in which a deploy changes the version three times."""
    scenario = replace(scenario_for(shape, seed), other_version=str(source))
    run = draw_run(scenario, seed, 2.0, parse_rates(FAULTS))
    deploys = (Fault(at, "deploy", 0.0, seed) for at in (20.0, 50.0, 80.0))
    faults = sorted([*run.faults, *deploys], key=lambda fault: fault.at)
    return replace(run, faults=tuple(faults))


def simulate(run: Run) -> Simulation:
    """Simulate a run. Raises ViolationError."""
    sim = Simulation(run.scenario, run.seed)
    play(sim, Outcome(run))
    return sim


def copy(folder: Path) -> Path:
    """Return a folder with a copy of the present package."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "static")
    shutil.copytree(ROOT / "kinesumer", folder / "kinesumer", ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the present code, as if it were another version."""
    return copy(tmp_path_factory.mktemp("same"))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of the last release."""
    folder, revision = tmp_path_factory.mktemp("released"), last_release()
    try:
        extract(revision, folder)
    except LookupError as error:
        pytest.skip(str(error))
    return folder


@pytest.mark.parametrize("shape", SHAPES)
def test_clients_of_the_last_release_and_of_this_version_are_one_group(
    released: Path, shape: str
) -> None:
    sim = simulate(draw(released, shape))

    assert {type(process) for process in sim.processes} == {Process, OtherProcess}


def test_shards_move_between_versions_in_both_directions(same: Path) -> None:
    run = draw(same, "ids")
    sim = Simulation(run.scenario, run.seed)
    moves, leaders = set(), set()

    def is_other(session: object) -> bool:
        machine = sim.checker.leases.machines[str(session)]
        process = next(each for each in sim.processes if each.machine is machine)
        return isinstance(process, OtherProcess)

    owners: dict[str, bool] = {}

    def note(write: Write, _: Row | None, after: Row | None) -> None:
        if write.key.pk.startswith("leader#") and "session" in write.set:
            leaders.add(is_other(write.set["session"]))
        if write.key.pk.startswith("shard#") and "owner" in write.set:
            now = is_other(write.set["owner"])
            moves.add((owners.get(write.key.sk, now), now))
            owners[write.key.sk] = now

    sim.store.on_write.append(note)
    play(sim, Outcome(run))

    assert moves == {(False, False), (False, True), (True, False), (True, True)}
    assert leaders == {False, True}


@pytest.mark.parametrize(
    "changed",
    [
        "a lease is in seconds",
        "a range ends behind its last hash key",
        "a claim raises the epoch by two",
    ],
)
def test_a_version_to_which_an_attribute_means_something_else_is_noticed(
    changed: str, tmp_path: Path
) -> None:
    source = copy(tmp_path)
    for path, code in mutate(MUTANTS[changed].edits, source / "kinesumer").items():
        (source / "kinesumer" / path).write_text(code)

    with pytest.raises(ViolationError):
        for seed in range(8):
            simulate(draw(source, "ids", seed))

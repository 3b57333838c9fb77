"""Test that the checker of histories accepts a real run, and finds every doctored one.

The run is simulated: clients join, leave and crash, and shards are split.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from kinesumer.ops.history.check import RULES, Verdict, check_histories
from kinesumer.ops.history.lines import HistoryError
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.doctored_histories import DOCTORED, Doctor, Lines, all_lines
from tests.support.simulated_group import leader, settle, steady


def simulate(scenario: Scenario) -> Lines:
    """Return the histories of a group with a split, a join, a crash and a departure."""

    async def play(sim: Simulation) -> None:
        await steady(sim)
        sim.split("stream-0", "shardId-000000000000")
        await asyncio.sleep(15)
        sim.start_process()
        await asyncio.sleep(15)
        leader(sim).machine.kill()
        await asyncio.sleep(20)
        sim.living[0].leave()
        await settle(sim)

    sim = Simulation(scenario, 1)
    histories: dict[str, list[bytes]] = {}
    sim.histories = histories
    sim.run(play)
    return {name: [*map(json.loads, lines)] for name, lines in histories.items()}


@pytest.fixture(scope="module")
def recorded() -> Lines:
    return simulate(Scenario(members=2, shards=(2,), drift=0.0))


@pytest.fixture(scope="module")
def recorded_of_handlers() -> Lines:
    return simulate(Scenario(members=2, shards=(2,), drift=0.0, concurrency=1))


def encoded(lines: Lines) -> dict[str, bytes]:
    return {
        name: b"".join(json.dumps(line).encode() + b"\n" for line in each)
        for name, each in lines.items()
    }


def check(lines: Lines) -> Verdict:
    return check_histories(encoded(lines).items())


def test_a_run_of_the_simulator_keeps_every_rule(recorded: Lines) -> None:
    verdict = check(recorded)

    assert not any(verdict.faults.values()), verdict.faults
    assert verdict.counts["shards"] == 4
    assert verdict.counts["deliveries"] >= verdict.counts["produced records"] > 1_000
    assert verdict.remarks == []


def test_a_run_with_handlers_keeps_every_rule(recorded_of_handlers: Lines) -> None:
    verdict = check(recorded_of_handlers)

    assert not any(verdict.faults.values()), verdict.faults
    assert any(line["kind"] == "done" for line in all_lines(recorded_of_handlers))


# --- doctored histories ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "change"), DOCTORED, ids=[change.__name__ for _, change in DOCTORED]
)
def test_a_doctored_history_is_found(
    recorded: Lines, rule: str, change: Callable[[Doctor], None]
) -> None:
    doctor = Doctor(recorded)
    change(doctor)

    verdict = check(doctor.lines)

    assert verdict.faults[rule]
    assert not verdict.is_good


def test_a_checkpoint_of_a_record_that_a_handler_had_not_handled_is_found(
    recorded_of_handlers: Lines,
) -> None:
    doctor = Doctor(recorded_of_handlers)
    _, call, _ = doctor.commit()
    number = call["set"]["sequence_number"]
    done = next(
        line
        for line in all_lines(doctor.lines)
        if line["kind"] == "done" and line["positions"][0][0] == number
    )
    done["at"] = call["at"] + 0.001

    verdict = check(doctor.lines)

    assert verdict.faults["records passed by a checkpoint, not done"]


def test_an_answer_about_a_plan_may_arrive_after_that_about_a_later_plan(
    recorded: Lines,
) -> None:
    doctor = Doctor(recorded)
    plans = doctor.writes("plan_version", to="member#")
    *others, last = (answer for _, _, answer in plans)
    session = last["result"]["row"]["session"]
    [*_, earlier] = (
        answer for answer in others if answer["result"]["row"]["session"] == session
    )
    earlier["at"] = last["at"] + 0.001

    assert check(doctor.lines).is_good


def test_each_rule_has_a_doctored_history() -> None:
    named = {rule for rule, _ in DOCTORED}

    assert named | {"records passed by a checkpoint, not done"} == set(RULES)


# --- what histories may lack ----------------------------------------------------------


def test_a_history_that_a_kill_has_cut_off_is_checked_up_to_its_end(
    recorded: Lines,
) -> None:
    files = encoded(recorded)
    name = next(name for name in files if name.startswith("client"))

    files[name] += b'{"kind": "ca'
    assert check_histories(files.items()).is_good


def test_an_epoch_that_no_history_begins_is_a_remark(recorded: Lines) -> None:
    doctor = Doctor(recorded)
    process, *lines = doctor.takeover()
    for line in lines:
        doctor.lines[process].remove(line)

    [remark] = check(doctor.lines).remarks

    assert "an operator moved the shard, or a client wrote no history" in remark


def test_times_of_two_machines_are_compared_with_a_margin(recorded: Lines) -> None:
    doctor = Doctor(recorded)
    # This machine's clock began 1,000 s later.
    for line in doctor.client():
        line["at"] -= 1_000.0
        if line["kind"] == "client":
            line |= {"boot": "another", "wall_offset": line["wall_offset"] + 1_000.2}

    verdict = check(doctor.lines)

    assert not any(verdict.faults.values()), verdict.faults
    assert "several machines" in verdict.remarks[0]


def test_a_line_that_is_no_history_is_refused_with_its_place() -> None:
    with pytest.raises(HistoryError, match=r"client-0, line 1: .* in b'hello'"):
        check_histories([("client-0", b"hello\n")])


def test_a_history_of_another_version_is_refused(recorded: Lines) -> None:
    doctor = Doctor(recorded)
    doctor.client()[0]["format"] = 2

    with pytest.raises(HistoryError, match="format 2 is not 1"):
        check(doctor.lines)

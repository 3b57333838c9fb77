"""Test that runs of the simulator are runs of the model, so that both stay the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kinesumer.coordination import pauses
from kinesumer.model.streams import Start
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Operator, Simulation, Work
from tests.support.simulated_group import leader, settle, steady
from tests.system.model.checker import has_checker, replay
from tests.system.model.traces import STEPS, Event, Recorder

pytestmark = pytest.mark.skipif(not has_checker(), reason="SPIN isn't installed")
STREAM = "stream-0"
KINDS = {"CLAIM", "COMMIT", "RELEASE", "END", "READY", *STEPS}


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    """Return the trace of a group in which every step of the model happens."""
    recorders = []

    async def play(sim: Simulation) -> None:
        recorder = Recorder(sim)
        recorders.append(recorder)
        arn = sim.arn(STREAM)
        await steady(sim)
        low, high = sim.split(STREAM, "shardId-000000000000")
        await asyncio.sleep(15)
        sim.start_process()
        await asyncio.sleep(15)
        leader(sim).machine.kill()
        await asyncio.sleep(30)
        child = sim.merge(STREAM, low, high)
        await operate(sim, lambda o: pauses.pause(o.context, arn, child, "trial"))
        await asyncio.sleep(15)
        await operate(sim, lambda o: pauses.resume(o.context, arn, child))
        await asyncio.sleep(15)
        await operate(sim, lambda o: o.seek(STREAM, Start.TRIM_HORIZON, None))
        recorder.sought()
        await settle(sim, 60)
        recorder.finish()

    Simulation(Scenario(members=3, shards=(2,), drift=0.0), 1).run(play)
    return recorders[0]


async def operate(sim: Simulation, work: Work) -> None:
    await Operator(sim, "operate", work).task


def test_each_step_of_a_run_is_a_step_of_the_model(recorder: Recorder) -> None:
    assert {event.kind for event in recorder.events} == KINDS
    assert replay(recorder.model()) == ""


# The kind of an event, a change of its first one that the protocol forbids, and the
# assertion that finds the change.
WRONG: dict[str, tuple[str, Callable[[Event], Event], str]] = {
    "a commit in an earlier epoch": (
        "COMMIT",
        lambda e: e._replace(at_epoch=e.at_epoch - 1),
        "ok",
    ),
    "a commit of a record that is not done": (
        "COMMIT",
        lambda e: e._replace(done_at=e.position - 1),
        "q.position<=done",
    ),
    "an end before all records are done": (
        "END",
        lambda e: e._replace(done_at=e.done_at - 1, position=e.position - 1),
        "done[q.shard]==",
    ),
    "a claim in place of an owner that lives": (
        "DIE",
        lambda e: e._replace(kind="SOUGHT"),
        "dead[q.owner]",
    ),
    "a delivery by another session": (
        "DELIVER",
        lambda e: e._replace(of_session=e.of_session + 1),
        "row[s].owner==of_session[n]",
    ),
    "a child that opens before its parents end": (
        "END",
        lambda e: e._replace(kind="COMMIT", is_ended=False, owner=e.of_session),
        "q.kind!=READY",
    ),
    "a release that is stored as a commit": (
        "RELEASE",
        lambda e: e._replace(kind="COMMIT"),
        "row[s].owner==owner[n]",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_run_that_breaks_the_protocol_is_none_of_the_model(
    recorder: Recorder, what: str
) -> None:
    kind, change, assertion = WRONG[what]
    assert assertion in replay(recorder.changed(kind, change))

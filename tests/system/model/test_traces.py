"""Test that runs of the simulator are runs of the model, so that both stay the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kinesumer.coordination import pauses
from kinesumer.model.streams import Start
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Operator, Simulation, Work
from tests.support.simulated_group import leader, settle, steady
from tests.system.model.checker import has_checker, replay
from tests.system.model.drawn_traces import Traces, violations
from tests.system.model.member_traces import LEASE_STEPS, PLAN_STEPS
from tests.system.model.traces import SHARD_STEPS, Recorder

pytestmark = pytest.mark.skipif(not has_checker(), reason="SPIN isn't installed")
STREAM = "stream-0"
KINDS = {"CLAIM", "COMMIT", "RELEASE", "END", "READY", *SHARD_STEPS}


@pytest.fixture(scope="module")
def traces() -> Traces:
    """Return the traces of a group in which every step of the models happens."""
    recorded = []

    async def play(sim: Simulation) -> None:
        traces = Traces.of(sim)
        recorded.append(traces)
        arn = sim.arn(STREAM)
        await steady(sim)
        low, high = sim.split(STREAM, "shardId-000000000000")
        await asyncio.sleep(15)
        sim.start_process()
        await asyncio.sleep(15)
        leader(sim).machine.kill()
        await asyncio.sleep(30)
        child = sim.merge(STREAM, low, high)
        await asyncio.sleep(1)  # until the child has a row
        await operate(sim, lambda o: pauses.pause(o.context, arn, child, "trial"))
        await asyncio.sleep(15)
        await operate(sim, lambda o: pauses.resume(o.context, arn, child))
        await asyncio.sleep(15)
        sim.processes[-1].leave()
        await asyncio.sleep(15)
        traces.leases.finish()
        await operate(sim, lambda o: o.seek(STREAM, Start.TRIM_HORIZON, None))
        traces.shards.sought()
        await settle(sim, 4_300)  # the leader prunes the rows of the dead
        traces.shards.finish()

    Simulation(Scenario(members=3, shards=(2,), drift=0.0), 1).run(play)
    return recorded[0]


async def operate(sim: Simulation, work: Work) -> None:
    await Operator(sim, "operate", work).task


@pytest.mark.parametrize(
    ("model", "kinds"),
    [("shards", KINDS), ("plans", {*PLAN_STEPS}), ("leases", {*LEASE_STEPS})],
)
def test_each_step_of_a_run_is_a_step_of_the_model(
    traces: Traces, model: str, kinds: set[str]
) -> None:
    recorder: Recorder[Any] = getattr(traces, model)
    assert {event.kind for event in recorder.events} == kinds
    assert replay(recorder.replacing()) == ""


@pytest.mark.parametrize("seed", [7, 10, 11, 12])
def test_each_step_of_a_run_with_faults_is_a_step_of_each_model(seed: int) -> None:
    assert list(violations(seed)) == []


# The kind of an event, a change of its first one that the protocol forbids, and the
# assertion that finds the change.
Wrong = dict[str, tuple[str, Callable[[Any], Any], str]]
WRONG_SHARDS: Wrong = {
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


WRONG_PLANS: Wrong = {
    "a leader in place of one that lives": (
        "DIE",
        lambda e: e._replace(kind="REGISTER"),
        "ok",
    ),
    "a plan of a former leader": (
        "PUBLISH",
        lambda e: e._replace(at_epoch=e.at_epoch - 1),
        "ok",
    ),
    "a member that gets a plan that nobody has published": (
        "ASSIGN",
        lambda e: e._replace(at_version=e.at_version + 1),
        "<=((lead_epoch",
    ),
    "a member that goes back to an older plan": (
        "ASSIGN",
        lambda e: e._replace(at_epoch=0, at_version=0),
        "ok",
    ),
    "a session in place of one that lives": (
        "ASSIGN",
        lambda e: e._replace(kind="REGISTER"),
        "ok",
    ),
    "a leader that keeps the leader epoch": (
        "LEAD",
        lambda e: e._replace(epoch=e.epoch - 1),
        "lead_epoch==epoch",
    ),
    "a living member whose row is deleted": (
        "ASSIGN",
        lambda e: e._replace(kind="PRUNE"),
        "ok",
    ),
}


WRONG_LEASES: Wrong = {
    "a client that is marked dead although it sends heartbeats": (
        "MARK",
        lambda e: e._replace(of_client=3 - e.by),  # there are three at that time
        "unchanged[",
    ),
    "a client that is marked dead before others have waited": (
        "LEAVE",
        lambda e: e._replace(kind="MARK"),
        "unchanged[",
    ),
    "a heartbeat that is stored and was never sent": (
        "ANSWER",
        lambda e: e._replace(kind="STORE"),
        "sent[",
    ),
    "an answer to a heartbeat that is not stored": (
        "STORE",
        lambda e: e._replace(kind="SEND"),
        "stored[",
    ),
    "a session in place of one that lives": (
        "SEND",
        lambda e: e._replace(kind="REGISTER"),
        "member[o]==0",
    ),
}


WRONG = {"shards": WRONG_SHARDS, "plans": WRONG_PLANS, "leases": WRONG_LEASES}


@pytest.mark.parametrize(
    ("model", "what"), [(model, what) for model in WRONG for what in WRONG[model]]
)
def test_a_run_that_breaks_the_protocol_is_none_of_the_model(
    traces: Traces, model: str, what: str
) -> None:
    kind, change, assertion = WRONG[model][what]
    recorder: Recorder[Any] = getattr(traces, model)
    assert assertion in replay(recorder.changed(kind, change))

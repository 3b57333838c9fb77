"""Test the checker's rules for the writes of members, leaders and operators."""

from __future__ import annotations

import pytest

from kinesumer import Record
from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Write
from kinesumer.testing.handlers import simulate_handler
from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.scenarios import Scenario
from tests.support.checked_trace import (
    ARN,
    NEW,
    Play,
    Trace,
    require_violation,
)

GROUP = Key("group#app", "group")
LEADER = Key("leader#app", "leader")
STREAM = Key("group#app", f"stream#{ARN}")


def pause(trace: Trace, key: Key) -> Trace:
    return trace.at(1.0).apply("B", Write(key, AllOf(), {"paused": True}))


def claim_later(trace: Trace, shard: str = "parent") -> Trace:
    """Let a session that begins now claim a shard."""
    trace.machines["later"] = trace.machines["A"]
    return trace.at(2.0).register("later", "c").claim("later", 1, shard)


def paused_before(trace: Trace, key: Key) -> Trace:
    """Let A, which began before a pause, claim a shard, and a new session later."""
    resumed = Write(key, AllOf(), remove=("paused",))
    return claim_later(pause(trace, key).claim("A", 1).apply("B", resumed), "child")


def ended(trace: Trace) -> Trace:
    return trace.own(104).end()


def lead(trace: Trace, session: str, epoch: int) -> Trace:
    values: dict[str, Value] = {"session": session, "leader_epoch": epoch}
    return trace.apply(session, Write(LEADER, AllOf(), values))


def assign(trace: Trace, session: str, range_: str) -> Trace:
    return trace.member(session, "B", leader_epoch=2, plan_version=3, range=range_)


# By the predicate and words of the message.
BAD: dict[str, Play] = {
    "I1 .* is not an operator": lambda t: t.claim("A", 1).seek(2, by="A"),
    # What was done before a seek doesn't count after it. At first, the client hasn't
    # noticed the seek.
    "I2 .* record 1": lambda t: (
        t.own(99)
        .seek(2)
        .process(100, 101)
        .claim("A", 3)
        .process(95, 95)
        .deliver(96)
        .commit(96)
    ),
    # The owner may deliver until somebody claims the epoch after a seek.
    "I3 .* belongs to A 3": lambda t: (
        t.claim("A", 1)
        .deliver(95)
        .seek(2)
        .deliver(96)
        .fine()
        .claim("A", 3)
        .deliver(97, epoch=1)
    ),
    "I4 .* seeked out of turn": lambda t: t.seek(2),
    "I4 .* changes its owner": lambda t: t.claim("A", 1).write(
        "B", "parent", NEW | {"epoch": 2}, "claim", "owner"
    ),
    "I6 .* declared dead 1.000 s before": lambda t: t.at(5.0).member(
        "A", "B", dead=True
    ),
    "I6 .* another beats": lambda t: t.member("A", "B", beat=1),
    "I6 .* goes back from 2 to 1": lambda t: (
        t.member("A", beat=2).fine().member("A", beat=1)
    ),
    "I7 .* lives again": lambda t: t.member("A", dead=True).member("A", dead=False),
    "I7 .* A lives again": lambda t: t.member("A", dead=True).register("A"),
    "I7 .* replaced alive": lambda t: t.register("C", "a", by="B"),
    "I7 .* deleted alive": lambda t: t.apply(
        "B", Write(Key("member#app", "a"), AllOf(), delete=True)
    ),
    # A child that is sought after its parent waits for it again.
    "I8 .* before parent ended": lambda t: (
        ended(t).seek(2).seek(1, shard="child").claim("A", 2, "child").deliver(200)
    ),
    r"I11 .* goes back to plan \(1, 9\)": lambda t: (
        t.member("A", "B", leader_epoch=2, plan_version=3)
        .fine()
        .member("A", "B", leader_epoch=1, plan_version=9)
    ),
    "I11 .* is not of the leader": lambda t: lead(t, "A", 2).member(
        "A", "B", leader_epoch=2, plan_version=3
    ),
    "I11 .* in place of A$": lambda t: lead(t, "A", 1).apply(
        "B", Write(LEADER, AllOf(), {"plan_version": 2})
    ),
    r"I11 .* row goes back to \(1, 1\)": lambda t: (
        lead(t, "A", 1)
        .apply("A", Write(LEADER, AllOf(), {"plan_version": 2}))
        .fine()
        .apply("A", Write(LEADER, AllOf(), {"plan_version": 1}))
    ),
    "I11 .* two sessions": lambda t: lead(
        lead(t, "A", 1).member("A", dead=True), "B", 1
    ),
    "I11 .* in place of A, not dead": lambda t: lead(lead(t, "A", 1), "B", 2),
    "I12 .* plan 2.3: b shares": lambda t: assign(
        assign(t, "A", "0:0-8000"), "B", "0:8000-"
    ),
    "I12 .* plan 2.3: a has a range that isn't contiguous": lambda t: assign(
        t, "A", "0:0-7fff,0:9000-"
    ),
    "I14 .* but paused": lambda t: t.write("B", "parent", {"paused": True}).claim(
        "A", 1
    ),
    "I14 .* later, which began after its pause": lambda t: claim_later(pause(t, GROUP)),
    "I14 .* which began after its pause": lambda t: claim_later(pause(t, STREAM)),
}


@pytest.mark.parametrize(("violation", "play"), BAD.items(), ids=BAD)
def test_a_bad_trace_violates(violation: str, play: Play) -> None:
    require_violation(play, violation)


def test_a_seek_back_and_all_again_violates_nothing() -> None:
    trace = Trace().own(104).commit(104).seek(2, 96)
    trace.claim("A", 3).process(97, 104).commit(104).fine()
    assert (trace.checker.redelivered, trace.checker.takeovers) == (0, 0)


GOOD: dict[str, Play] = {
    "a child that was open when its parent is sought is read": lambda t: (
        ended(t).seek(2).claim("A", 1, "child").deliver(200)
    ),
    "a client hasn't noticed that the child is sought, too": lambda t: (
        ended(t).claim("A", 1, "child").seek(2).seek(2, shard="child").deliver(200)
    ),
    "claims before and after a pause": lambda t: paused_before(t, GROUP),
    "claims before and after a stream's pause": lambda t: paused_before(t, STREAM),
    "who leaves is dead at once": lambda t: t.member("A", dead=True),
    "a plan's parts exclude each other": lambda t: assign(
        assign(t, "A", "0:0-7fff"), "B", "0:8000-"
    ),
}


@pytest.mark.parametrize("play", GOOD.values(), ids=GOOD)
def test_a_good_trace_violates_nothing(play: Play) -> None:
    play(Trace()).fine()


def test_a_shard_that_a_seek_makes_is_owed_from_there_on() -> None:
    trace = Trace()
    trace.checker.opened(ARN, "new", ())
    shards = trace.write("B", "new", NEW).checker.shards
    owed = {shard_id: shards[arn, shard_id].seek_index for arn, shard_id in shards}
    assert owed == {"parent": None, "child": None, "new": 0}


def test_nobody_skips_records_of_a_handler_that_has_to_see_them_all() -> None:
    async def handle(_record: Record) -> None:
        pass

    small = Scenario(members=1, shards=(1,))
    outcome = simulate_handler(handle, faults="all", minutes=0.1, scenario=small)
    kinds = {fault.kind for fault in outcome.run.faults}
    assert "seek" in KINDS
    assert "seek" not in kinds
    asked = simulate_handler(handle, faults="seek:60", minutes=0.1, scenario=small)
    assert {fault.kind for fault in asked.run.faults} == {"seek"}

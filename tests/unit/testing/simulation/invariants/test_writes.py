"""Test the checker's rules for the writes of members, leaders and operators."""

from __future__ import annotations

import pytest

from kinesumer import Record
from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Write
from kinesumer.testing.handlers import simulate_handler
from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.scenarios import Scenario
from tests.unit.testing.simulation.checked_trace import ARN, NEW, Trace


@pytest.fixture
def trace() -> Trace:
    """Return a trace in which an operator uses machine b."""
    made = Trace()
    made.checker.seeks.operators.add(made.b)
    return made


def seek(
    trace: Trace,
    epoch: int,
    number: int | None = None,
    shard: str = "parent",
    **of: str,
) -> None:
    """Seek a shard to a position, or to its beginning."""
    values: dict[str, Value] = {"epoch": epoch, "ended": False}
    remove = ["claim"]
    if number is None:
        values["start"] = "TRIM_HORIZON"
        remove += ["sequence_number", "sub_sequence_number"]
    else:
        values["sequence_number"] = str(number)
    machine = trace.a if of.get("by") == "client" else trace.b
    trace.write(machine, shard, values, tuple(remove))


def test_a_seek_back_and_all_again_violates_nothing(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.commit(trace.a, 104)
    seek(trace, 2, 96)
    trace.claim(trace.a, "A", 3)
    trace.process(trace.a, *range(97, 105), epoch=3)
    trace.commit(trace.a, 104)
    assert trace.loop.halted is None
    assert (trace.checker.redelivered, trace.checker.takeovers) == (0, 0)


def test_what_was_done_before_a_seek_does_not_count_after_it(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 100))
    seek(trace, 2)
    trace.process(trace.a, 100, 101)  # the client hasn't noticed the seek yet
    trace.claim(trace.a, "A", 3)
    trace.process(trace.a, 95, epoch=3)
    trace.deliver(trace.a, 96, epoch=3)
    trace.commit(trace.a, 96)
    trace.violates("I2", "record 1")


def test_the_owner_may_deliver_until_somebody_claims_the_epoch_after_a_seek(
    trace: Trace,
) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95)
    seek(trace, 2)
    trace.deliver(trace.a, 96)
    assert trace.loop.halted is None
    trace.claim(trace.a, "A", 3)
    trace.deliver(trace.a, 97)
    trace.violates("I3", "belongs to A 3")


def test_i1_a_client_that_seeks(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    seek(trace, 2, by="client")
    trace.violates("I1", "is not an operator")


def test_i4_a_seek_that_leaves_an_epoch_out(trace: Trace) -> None:
    seek(trace, 2)
    trace.violates("I4", "out of turn")


def test_i4_a_seek_that_takes_the_shard_from_its_owner(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    values: dict[str, Value] = {"epoch": 2, "ended": False, "start": "TRIM_HORIZON"}
    trace.write(trace.b, "parent", values, ("claim", "owner"))
    trace.violates("I4", "changes its owner")


def test_i8_a_child_sought_after_its_parent_waits_for_it_again(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.end(trace.a)
    seek(trace, 2)
    seek(trace, 1, shard="child")
    trace.claim(trace.a, "A", 2, "child")
    trace.checker.delivered(trace.a, trace.record(200, 2, "child"))
    trace.violates("I8", "before parent ended")


def test_a_child_that_was_open_when_its_parent_is_sought_may_be_read(
    trace: Trace,
) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.end(trace.a)
    seek(trace, 2)
    trace.claim(trace.a, "A", 1, "child")
    trace.checker.delivered(trace.a, trace.record(200, 1, "child"))
    assert trace.loop.halted is None


def test_a_child_claimed_before_it_was_sought_may_be_read_until_that_is_noticed(
    trace: Trace,
) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.end(trace.a)
    trace.claim(trace.a, "A", 1, "child")
    seek(trace, 2)
    seek(trace, 2, shard="child")
    trace.checker.delivered(trace.a, trace.record(200, 1, "child"))
    assert trace.loop.halted is None


def test_a_shard_that_a_seek_makes_is_owed_from_there_on(trace: Trace) -> None:
    trace.checker.opened("arn:aws:kinesis:us-east-1:123456789012:stream/s", "new", ())
    trace.write(trace.b, "new", NEW)
    shards = trace.checker.shards
    owed = {shard_id: shards[arn, shard_id].seek_index for arn, shard_id in shards}
    assert owed == {"parent": None, "child": None, "new": 0}


GROUP = Key("group#app", "group")
STREAM = Key("group#app", f"stream#{ARN}")


def test_i14_a_claim_of_a_paused_shard(trace: Trace) -> None:
    trace.write(trace.b, "parent", {"paused": True})
    trace.claim(trace.a, "A", 1)
    trace.violates("I14", "but paused")


@pytest.mark.parametrize("key", [GROUP, STREAM])
def test_i14_a_claim_by_who_began_after_the_pause(trace: Trace, key: Key) -> None:
    trace.loop.real = 1.0
    trace.apply(trace.b, Write(key, AllOf(), {"paused": True}))
    trace.loop.real = 2.0
    trace.register(trace.a, "later", "c")
    trace.claim(trace.a, "later", 1)
    trace.violates("I14", "began after its pause")


@pytest.mark.parametrize("key", [GROUP, STREAM])
def test_who_began_before_a_pause_or_after_its_end_may_claim(
    trace: Trace, key: Key
) -> None:
    trace.loop.real = 1.0
    trace.apply(trace.b, Write(key, AllOf(), {"paused": True}))
    trace.claim(trace.a, "A", 1)
    trace.apply(trace.b, Write(key, AllOf(), remove=("paused",)))
    trace.loop.real = 2.0
    trace.register(trace.a, "later", "c")
    trace.claim(trace.a, "later", 1, "child")
    assert trace.loop.halted is None


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


def test_i6_a_death_before_the_last_permitted_moment(trace: Trace) -> None:
    trace.loop.real = 5.0
    trace.die("A", "a")
    trace.violates("I6", "declared dead 1.000 s before its last moment")


def test_i6_who_leaves_may_be_dead_at_once(trace: Trace) -> None:
    trace.leave("A", "a")
    assert trace.loop.halted is None


def test_i6_a_beat_in_the_name_of_another(trace: Trace) -> None:
    trace.member(trace.b, "a", "A", {"beat": 1})
    trace.violates("I6", "another beats")


def test_i6_a_beat_that_goes_back(trace: Trace) -> None:
    trace.member(trace.a, "a", "A", {"beat": 2})
    assert trace.loop.halted is None
    trace.member(trace.a, "a", "A", {"beat": 1})
    trace.violates("I6", "goes back from 2 to 1")


def test_i7_a_session_that_lives_again(trace: Trace) -> None:
    trace.leave("A", "a")
    trace.member(trace.a, "a", "A", {"dead": False})
    trace.violates("I7", "lives again")


def test_i7_a_dead_session_that_registers_again(trace: Trace) -> None:
    trace.leave("A", "a")
    trace.register(trace.a, "A")
    trace.violates("I7", "lives again")


def test_i7_a_live_session_that_is_replaced(trace: Trace) -> None:
    trace.register(trace.b, "C", "a")
    trace.violates("I7", "replaced alive")


def test_i7_a_live_session_that_is_deleted(trace: Trace) -> None:
    trace.apply(trace.b, Write(Key("member#app", "a"), AllOf(), delete=True))
    trace.violates("I7", "deleted alive")


def test_i11_a_plan_that_goes_back(trace: Trace) -> None:
    trace.member(trace.b, "a", "A", {"leader_epoch": 2, "plan_version": 3})
    assert trace.loop.halted is None
    trace.member(trace.b, "a", "A", {"leader_epoch": 1, "plan_version": 9})
    trace.violates("I11", "goes back to plan (1, 9)")


def test_i11_a_plan_of_another_than_the_leader(trace: Trace) -> None:
    lead(trace, "A", 2)
    trace.member(trace.b, "a", "A", {"leader_epoch": 2, "plan_version": 3})
    trace.violates("I11", "is not of the leader")


def lead(trace: Trace, session: str, epoch: int) -> None:
    values: dict[str, Value] = {"session": session, "leader_epoch": epoch}
    machine = trace.a if session == "A" else trace.b
    trace.apply(machine, Write(Key("leader#app", "leader"), AllOf(), values))


def test_i11_a_plan_published_by_another(trace: Trace) -> None:
    lead(trace, "A", 1)
    values: dict[str, Value] = {"plan_version": 2}
    trace.apply(trace.b, Write(Key("leader#app", "leader"), AllOf(), values))
    trace.violates("I11", "in place of A")


def test_i11_two_sessions_in_one_leader_epoch(trace: Trace) -> None:
    lead(trace, "A", 1)
    trace.leave("A", "a")
    lead(trace, "B", 1)
    trace.violates("I11", "two sessions")


def test_i11_a_leader_replaced_alive(trace: Trace) -> None:
    lead(trace, "A", 1)
    lead(trace, "B", 2)
    trace.violates("I11", "not dead")


def assign(trace: Trace, client_id: str, range_: str) -> None:
    values: dict[str, Value] = {
        "leader_epoch": 2,
        "plan_version": 3,
        "range": range_,
    }
    trace.member(trace.b, client_id, client_id.upper(), values)


def test_i12_parts_of_a_plan_that_exclude_each_other_are_fine(trace: Trace) -> None:
    assign(trace, "a", "0:0-7fff")
    assign(trace, "b", "0:8000-")
    assert trace.loop.halted is None


def test_i12_two_members_with_the_same_part_of_a_plan(trace: Trace) -> None:
    assign(trace, "a", "0:0-8000")
    assign(trace, "b", "0:8000-")
    trace.violates("I12", "plan 2.3: b shares")


def test_i12_a_part_of_a_plan_in_two_pieces(trace: Trace) -> None:
    assign(trace, "a", "0:0-7fff,0:9000-")
    trace.violates("I12", "plan 2.3: a has a range that isn't contiguous")

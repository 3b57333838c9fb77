"""Test that violations by the writes of members and leaders are found."""

from __future__ import annotations

import pytest

from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Write
from tests.unit.testing.simulation.checked_trace import Trace


@pytest.fixture
def trace() -> Trace:
    return Trace()


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

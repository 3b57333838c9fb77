"""Test that each invariant is violated by a bad trace, and by no good one."""

from __future__ import annotations

import pytest

from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.testing.simulation.invariants.base import ViolationError
from tests.unit.testing.simulation.checked_trace import ARN, SHARDS, Trace


@pytest.fixture
def trace() -> Trace:
    return Trace()


def test_a_life_in_good_order_violates_nothing(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95, 96, 97)
    trace.commit(trace.a, 96)
    trace.release(trace.a, 97)
    trace.claim(trace.b, "B", 2)
    trace.process(trace.b, *range(98, 105), epoch=2)
    trace.end(trace.b)
    trace.claim(trace.a, "A", 1, "child")
    trace.checker.delivered(trace.a, trace.record(200, 1, "child"))
    assert trace.loop.halted is None
    assert (trace.checker.handovers, trace.checker.redelivered) == (1, 0)


def test_i1_a_position_that_goes_back(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 101))
    trace.commit(trace.a, 100)
    trace.commit(trace.a, 99)
    trace.violates("I1", "goes back")


def test_i1_an_epoch_that_goes_back(trace: Trace) -> None:
    trace.write(trace.a, "parent", {"epoch": 3})
    trace.loop.halted = None
    trace.write(trace.a, "parent", {"epoch": 2})
    trace.violates("I1", "epoch")


def test_i1_an_end_that_is_undone(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.end(trace.a)
    trace.write(trace.a, "parent", {"ended": False})
    trace.violates("I1", "undone")


def test_i1_a_row_pruned_before_its_end(trace: Trace) -> None:
    trace.apply(trace.a, Write(Key(SHARDS, "0/parent"), AllOf(), delete=True))
    trace.violates("I1", "without having ended")


def test_i1_a_claim_after_the_end(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, *range(95, 105))
    trace.end(trace.a)
    trace.claim(trace.b, "B", 2)
    trace.violates("I1", "claimed after its end")


def test_i2_a_checkpoint_past_a_record_that_is_not_done(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95, 96)
    trace.deliver(trace.a, 97)
    trace.commit(trace.a, 97)
    trace.violates("I2", "record 2")


def test_i2_an_end_with_unread_records(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95)
    values: dict[str, Value] = {"ended": True, "sequence_number": "95"}
    trace.write(trace.a, "parent", values, ("owner",))
    trace.violates("I2", "ends")


def test_i3_a_delivery_after_the_last_permitted_moment(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.loop.real = 5.9
    trace.deliver(trace.a, 95)
    assert trace.loop.halted is None
    trace.loop.real = 6.1
    trace.deliver(trace.a, 96)
    trace.violates("I3", "after its last moment")


def test_i3_permission_counts_from_a_beats_first_try(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    beat = Write(Key("member#app", "a"), Compare("session", "=", "A"), {"beat": 1})
    trace.loop.real = 2.0
    trace.checker.sent(trace.a, beat)
    trace.loop.real = 5.0
    trace.apply(trace.a, beat)
    trace.loop.real = 7.9
    trace.deliver(trace.a, 95)
    assert trace.loop.halted is None
    trace.loop.real = 8.1
    trace.deliver(trace.a, 96)
    trace.violates("I3")


def test_i3_a_delivery_after_another_claim(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.release(trace.a, 94)
    trace.claim(trace.b, "B", 2)
    trace.deliver(trace.a, 95)
    trace.violates("I3", "belongs to B 2")


def test_i4_a_delivery_in_an_epoch_of_another(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.b, 95)
    trace.violates("I4", "never claimed")


def test_i4_an_epoch_that_is_claimed_out_of_turn(trace: Trace) -> None:
    trace.claim(trace.a, "A", 2)
    trace.violates("I4", "out of turn")


def test_i4_a_claim_in_the_name_of_another(trace: Trace) -> None:
    trace.claim(trace.a, "B", 1)
    trace.violates("I4", "by another")


def test_i5_a_commit_by_a_former_owner(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95)
    trace.release(trace.a, 95)
    trace.claim(trace.b, "B", 2)
    trace.process(trace.b, 96, epoch=2)
    trace.commit(trace.a, 96)
    trace.violates("I5", "a changes parent of B")


def test_i5_another_owner_in_the_same_epoch(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.write(trace.a, "parent", {"owner": "B"})
    trace.violates("I5", "same epoch")


def test_i6_a_claim_from_a_session_that_is_not_dead(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.claim(trace.b, "B", 2)
    trace.violates("I6", "not dead")


def test_i6_a_claim_before_the_last_permitted_moment(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.checker.dead["A"] = trace.loop.real = 5.0
    trace.claim(trace.b, "B", 2)
    trace.violates("I6", "1.000 s before")


def test_i6_a_claim_after_it_is_fine(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.loop.real = 6.5
    trace.die("A", "a")
    trace.claim(trace.b, "B", 2)
    assert trace.loop.halted is None
    assert trace.checker.takeovers == 1


def test_i8_a_child_before_its_parent_has_ended(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1, "child")
    trace.checker.delivered(trace.a, trace.record(200, 1, "child"))
    trace.violates("I8", "before parent ended")


def test_i9_a_gap(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95, 97)
    trace.violates("I9", "record 2, but 1 is next")


def test_i9_records_without_a_key_have_no_order_but_come_once(trace: Trace) -> None:
    trace.checker.is_by_key = True
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95, 97, 96)
    assert trace.loop.halted is None
    trace.deliver(trace.a, 96)
    trace.violates("I9", "record 1, but 2 is next")


def test_i9_a_repetition_within_an_epoch(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95, 96, 95)
    trace.violates("I9", "record 0, but 2 is next")


def test_i9_what_has_expired_may_be_skipped_and_no_more(trace: Trace) -> None:
    trace.checker.produced(ARN, "parent", [("105", None)], 9.0)
    trace.checker.expired(ARN, 5.0, {"parent", "child"})
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 105)
    assert trace.loop.halted is None


def test_i10_more_repeated_than_may_be_uncommitted(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, *range(95, 101))
    trace.loop.real = 7.0
    trace.die("A", "a")
    trace.claim(trace.b, "B", 2)
    trace.violates("I10", "6 records")


def test_i10_what_has_expired_since_is_not_repeated(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, *range(95, 101))
    trace.checker.expired(ARN, 5.0, {"parent", "child"})
    trace.loop.real = 7.0
    trace.die("A", "a")
    trace.claim(trace.b, "B", 2)
    assert trace.loop.halted is None


def test_i10_a_graceful_release_behind_what_is_done(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95, 96)
    trace.release(trace.a, 95)
    trace.violates("I10", "at record 1, but 2 are done")


def test_i10_a_late_try_to_release_an_epoch_before_gives_nothing_up(
    trace: Trace,
) -> None:
    trace.claim(trace.a, "A", 1)
    trace.process(trace.a, 95)
    trace.release(trace.a, 95)
    trace.claim(trace.a, "A", 2)
    trace.process(trace.a, 96, 97, epoch=2)
    key, condition = Key(SHARDS, "0/parent"), AllOf(Compare("epoch", "=", 1))
    late = Write(key, condition, {"sequence_number": "95"}, ("owner",))
    trace.checker.sent(trace.a, late)
    assert trace.loop.halted is None
    trace.release(trace.a, 96)
    trace.violates("I10", "at record 2, but 3 are done")


def test_the_first_violation_stops_the_run() -> None:
    trace = Trace()

    async def main() -> None:
        trace.deliver(trace.b, 95)
        await trace.loop.create_future()

    with pytest.raises(ViolationError, match="I4 at 0"):
        trace.loop.run(main())

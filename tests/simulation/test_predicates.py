"""Each predicate fires on a trace that breaks it, and stays silent on a good one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kinesumer.model import Fence, Record, ShardKey, Source
from kinesumer.ports import All, Key, Test, Value, Write
from kinesumer.testing.memory import MemoryStore
from kinesumer.testing.predicates import Judge, ViolationError
from kinesumer.testing.virtual import VirtualLoop

if TYPE_CHECKING:
    from kinesumer.testing.machine import Machine

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
SHARDS = f"shard#app#{ARN}"
MEMBER: dict[str, Value] = {"beat": 0, "lease_ms": 8000, "dead": False}
NEW: dict[str, Value] = {"epoch": 0, "ended": False, "start": "TRIM_HORIZON"}


class Trace:
    """Two machines, a parent shard with ten records, and its child with one."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(0))
        self.judge = Judge(self.loop, max_uncommitted=5)
        self.store = MemoryStore(self.loop.services)
        self.store.on_write.append(self.judge.applied)
        self.a, self.b = self.loop.machine("a"), self.loop.machine("b")
        self.judge.opened(ARN, "parent", ())
        self.judge.opened(ARN, "child", ("parent",))
        numbers = [str(95 + index) for index in range(10)]
        self.judge.produced(ARN, "parent", [(n, None) for n in numbers], 1.0)
        self.judge.produced(ARN, "child", [("200", None)], 2.0)
        self.register(self.a, "A")
        self.register(self.b, "B")
        self.write(None, "parent", NEW)
        self.write(None, "child", NEW)

    def write(
        self,
        machine: Machine | None,
        shard: str,
        values: dict[str, Value],
        remove: tuple[str, ...] = (),
    ) -> None:
        self.apply(machine, Write(Key(SHARDS, f"0/{shard}"), All(()), values, remove))

    def member(
        self, machine: Machine, client_id: str, session: str, values: dict[str, Value]
    ) -> None:
        condition = Test("session", "=", session)
        key = Key("member#app", client_id)
        self.apply(machine, Write(key, condition, values))

    def apply(self, machine: Machine | None, write: Write) -> None:
        if machine is not None:
            self.judge.sent(machine, write)
            self.judge.writes(machine)
        written = self.store.write_now(write)
        if machine is not None:
            self.judge.answered(machine, write, written)

    def register(
        self, machine: Machine, session: str, client_id: str | None = None
    ) -> None:
        values = MEMBER | {"session": session}
        key = Key("member#app", client_id or machine.name)
        self.apply(machine, Write(key, All(()), values, replace=True))

    def claim(
        self, machine: Machine, session: str, epoch: int, shard: str = "parent"
    ) -> None:
        self.write(machine, shard, {"owner": session, "epoch": epoch})

    def record(self, number: int, epoch: int, shard: str = "parent") -> Record:
        fence = Fence(ShardKey(ARN, shard), epoch)
        return Record(str(number), b"", source=Source(fence, 0, 9))

    def deliver(self, machine: Machine, *numbers: int, epoch: int = 1) -> None:
        for number in numbers:
            self.judge.delivered(machine, self.record(number, epoch))

    def process(self, machine: Machine, *numbers: int, epoch: int = 1) -> None:
        for number in numbers:
            self.judge.delivered(machine, self.record(number, epoch))
            self.judge.done(self.record(number, epoch))

    def commit(self, machine: Machine, number: int) -> None:
        self.write(machine, "parent", {"sequence_number": str(number)})

    def release(self, machine: Machine, number: int) -> None:
        values: dict[str, Value] = {"sequence_number": str(number)}
        self.write(machine, "parent", values, ("owner",))

    def end(self, machine: Machine) -> None:
        values: dict[str, Value] = {"sequence_number": "104", "ended": True}
        self.write(machine, "parent", values, ("owner",))

    def die(self, session: str, client_id: str) -> None:
        self.member(self.b, client_id, session, {"dead": True})

    def violates(self, predicate: str, words: str = "") -> None:
        error = self.loop.halted
        assert isinstance(error, ViolationError), "nothing was violated"
        assert error.predicate == predicate, error
        assert words in str(error)


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
    trace.judge.delivered(trace.a, trace.record(200, 1, "child"))
    assert trace.loop.halted is None
    assert (trace.judge.handovers, trace.judge.redelivered) == (1, 0)


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
    trace.apply(trace.a, Write(Key(SHARDS, "0/parent"), All(()), delete=True))
    trace.violates("I1", "without having ended")


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
    beat = Write(Key("member#app", "a"), Test("session", "=", "A"), {"beat": 1})
    trace.loop.real = 2.0
    trace.judge.sent(trace.a, beat)
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
    trace.loop.real = 5.0
    trace.die("A", "a")
    trace.claim(trace.b, "B", 2)
    trace.violates("I6", "1.000 s before")


def test_i6_a_claim_after_it_is_fine(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.loop.real = 6.5
    trace.die("A", "a")
    trace.claim(trace.b, "B", 2)
    assert trace.loop.halted is None
    assert trace.judge.takeovers == 1


def test_i7_a_session_that_rises_from_the_dead(trace: Trace) -> None:
    trace.die("A", "a")
    trace.member(trace.a, "a", "A", {"dead": False})
    trace.violates("I7", "rises")


def test_i7_a_dead_session_that_registers_again(trace: Trace) -> None:
    trace.die("A", "a")
    trace.register(trace.a, "A")
    trace.violates("I7", "rises")


def test_i7_a_live_session_that_is_replaced(trace: Trace) -> None:
    trace.register(trace.b, "C", "a")
    trace.violates("I7", "replaced alive")


def test_i7_a_live_session_that_is_deleted(trace: Trace) -> None:
    trace.apply(trace.b, Write(Key("member#app", "a"), All(()), delete=True))
    trace.violates("I7", "deleted alive")


def test_i8_a_child_before_its_parent_has_ended(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1, "child")
    trace.judge.delivered(trace.a, trace.record(200, 1, "child"))
    trace.violates("I8", "before parent ended")


def test_i9_a_gap(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95, 97)
    trace.violates("I9", "record 2, but 1 is next")


def test_i9_a_repetition_within_an_epoch(trace: Trace) -> None:
    trace.claim(trace.a, "A", 1)
    trace.deliver(trace.a, 95, 96, 95)
    trace.violates("I9", "record 0, but 2 is next")


def test_i9_what_has_expired_may_be_skipped_and_no_more(trace: Trace) -> None:
    trace.judge.produced(ARN, "parent", [("105", None)], 9.0)
    trace.judge.expired(ARN, 5.0, {"parent", "child"})
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
    key, condition = Key(SHARDS, "0/parent"), All((Test("epoch", "=", 1),))
    late = Write(key, condition, {"sequence_number": "95"}, ("owner",))
    trace.judge.sent(trace.a, late)
    assert trace.loop.halted is None
    trace.release(trace.a, 96)
    trace.violates("I10", "at record 2, but 3 are done")


def test_i11_a_plan_that_goes_back(trace: Trace) -> None:
    trace.member(trace.b, "a", "A", {"leader_epoch": 2, "plan_version": 3})
    assert trace.loop.halted is None
    trace.member(trace.b, "a", "A", {"leader_epoch": 1, "plan_version": 9})
    trace.violates("I11", "goes back to plan (1, 9)")


def lead(trace: Trace, session: str, epoch: int) -> None:
    values: dict[str, Value] = {"session": session, "leader_epoch": epoch}
    trace.apply(trace.a, Write(Key("leader#app", "leader"), All(()), values))


def test_i11_two_sessions_in_one_leader_epoch(trace: Trace) -> None:
    lead(trace, "A", 1)
    trace.die("A", "a")
    lead(trace, "B", 1)
    trace.violates("I11", "two sessions")


def test_i11_a_leader_replaced_alive(trace: Trace) -> None:
    lead(trace, "A", 1)
    lead(trace, "B", 2)
    trace.violates("I11", "not dead")


def test_the_first_violation_stops_the_run() -> None:
    trace = Trace()

    async def main() -> None:
        trace.deliver(trace.b, 95)
        await trace.loop.create_future()

    with pytest.raises(ViolationError, match="I4 at 0"):
        trace.loop.run(main())

"""Test the delivery's decisions, with random events and in the cases of note.

The drivers' tests show only that events and decisions get through.
"""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core.delivery import (
    AwaitStored,
    Finish,
    HandOver,
    NoteDue,
    Signal,
    Unfinished,
    Wait,
)
from kinesumer.core.handout import Handout, Loop, Phase
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from tests.support.delivery_machine import EACH_BYTES, driver, numbers, one, shards
from tests.support.world import hold

# --- random events ---

TASKS = ("a", "b", "c")
# How many records of a batch a task takes, or 0 for all, and whether the driver takes
# back the last one or the whole batch.
TAKEN = st.tuples(st.integers(0, 4), st.sampled_from([False, False, False, True]))
Given = tuple[int, int]  # a shard's index and a record's number


class RandomEvents(RuleBasedStateMachine):
    """Loops of some tasks over three shards, whose records are counted by hand."""

    @initialize(auto=st.booleans(), limit=st.one_of(st.none(), st.integers(1, 30)))
    def begin(self, auto: bool, limit: int | None) -> None:
        self.auto, self.limit = auto, limit
        self.driver = driver(auto=auto, limit=limit)
        self.delivery = self.driver.delivery
        self.shards = shards(3)
        self.count = [0, 0, 0]  # of each shard's records
        self.loops = {task: Loop("records") for task in TASKS}
        # What each task has had since its last request.
        self.hand: dict[str, list[Given]] = {}
        self.given: list[Given] = []
        self.free: set[Given] = set()  # given, but taken back from user code
        self.used = 0  # records that count for the limit
        self.acked: set[Given] = set()

    # --- events

    @rule(index=st.integers(0, 2), count=st.integers(0, 4))
    def put(self, index: int, count: int) -> None:
        first = self.count[index] + 1
        if count or first > 1:
            batch = self.driver.put(self.shards[index], *range(first, first + count))
            if not count:  # a batch may only tell how far the shard was read
                batch.end = Position(str(first - 1))
        self.count[index] += count

    @rule(asked=st.lists(st.tuples(st.sampled_from(TASKS), TAKEN), min_size=1))
    def ask(self, asked: list[tuple[str, tuple[int, bool]]]) -> None:
        for task, (most, is_back) in asked:
            self._ask(task, most, is_back)

    def _ask(self, task: str, most: int, is_back: bool) -> None:
        """Take a whole batch, or its first records. Take the last ones back."""
        loop = self.loops["a" if self.auto else task]
        loop.called(task)
        before = [each for held in self.hand.values() for each in held]
        self.hand = {} if self.auto else {**self.hand, task: []}
        action = self.driver.ask(loop, task)
        if self.auto:
            assert all(number <= self.done[index] for index, number in before)
        if isinstance(action, HandOver):
            assert not action.handout.shard.revoked
            assert action.handout.shard.lease.permits(self.driver.now)
            self._take(task, action.handout, most, is_back)
        elif action == Finish(None):
            assert self.delivery.is_closed or self.used == self.limit
        elif action is Wait.LEASE:
            assert any(not each.lease.permits(self.driver.now) for each in self.shards)
        else:
            assert action is Wait.BATCH
            assert not self.driver.turns

    def _take(
        self, task: str, handout: Handout[OwnedShard], most: int, is_back: bool
    ) -> None:
        index = self.shards.index(handout.shard)
        batch = None
        if most:
            records = list(islice(handout.one_by_one(), most))
            handout.busy_since = self.driver.now
        else:
            batch = handout.whole(self.driver.now)
            records = [*batch.records]
        got = [(index, number) for number in numbers(records)]
        self._give(got)
        kept, back = (got[:-1], got[-1:]) if most else ([], got)
        if is_back:
            handout.keep_back(batch)
            self.free.update(back)
            self.used -= len(back)
        self.hand[task] = [] if is_back else back
        if self.auto:
            self.driver.done(handout.shard)
            assert all(number <= self.done[index] for _, number in kept)

    def _give(self, got: list[Given]) -> None:
        assert not set(got) & {each for held in self.hand.values() for each in held}
        for each in got:
            if each in self.free:
                self.free.remove(each)
                continue
            assert each not in self.given, "a record came twice"
            if self.auto:  # in order
                assert each[1] == 1 + sum(index == each[0] for index, _ in self.given)
                assert all(free[0] != each[0] for free in self.free)
            self.given.append(each)
        self.used += len(got)
        assert self.limit is None or self.used <= self.limit

    @precondition(lambda self: not self.auto)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        undone = [each for each in self.given if each not in self.acked | self.free]
        if undone:
            index, number = each = data.draw(st.sampled_from(undone))
            self.shards[index].ack(Record(str(number), b""))
            self.acked.add(each)

    @rule(task=st.sampled_from(TASKS), error=st.sampled_from([None, ValueError()]))
    def end_task(self, task: str, error: BaseException | None) -> None:
        loop = self.loops["a" if self.auto else task]
        had = [each for each in self.hand.get(task, ()) if each not in self.acked]
        self.delivery.ended(task, self.driver.now, lambda: error)
        self.driver.carry_out()
        if not self.auto:
            self.hand[task] = []
            self.loops[task] = Loop("records")
            if error is not None:
                self.free.update(had)
        elif loop.holder is None and (error is not None or self.delivery.is_closed):
            assert not any(h.phase is Phase.IN_HAND for h in self.delivery.handouts)

    @rule(task=st.sampled_from(TASKS))
    def leave(self, task: str) -> None:
        if not self.auto:
            self.delivery.left(self.loops[task], self.driver.now)
            self.driver.carry_out()

    @precondition(lambda self: len(self.given) > 5)
    @rule(index=st.integers(0, 1))
    def revoke(self, index: int) -> None:
        owned = self.shards[index]
        if not owned.revoked:
            owned.revoke()
            dropped = self.driver.turns.drop(owned)
            self.driver.freed += sum(batch.size for batch in dropped)

    @rule(is_valid=st.sampled_from([True, True, False]))
    def renew(self, is_valid: bool) -> None:
        for owned in self.shards:
            owned.lease.deadline = 1e9 if is_valid else self.driver.now

    @precondition(lambda self: len(self.given) > 20)
    @rule()
    def close(self) -> None:
        self.delivery.close()

    # --- what always holds

    @property
    def done(self) -> list[int]:
        return [self.driver.done(owned) for owned in self.shards]

    @invariant()
    def no_record_in_hand_is_done_unasked(self) -> None:
        if self.auto and (held := [e for each in self.hand.values() for e in each]):
            done = self.done
            assert all(done[index] < number for index, number in held)

    @invariant()
    def with_manual_commits_only_acks_mark(self) -> None:
        if not self.auto:
            for index, done in enumerate(self.done):
                assert all((index, n) in self.acked for n in range(1, done + 1))

    @invariant()
    def no_byte_is_lost_or_freed_twice(self) -> None:
        waiting = sum(b.size for _, batches in self.driver.turns for b in batches)
        held = sum(handout.size for handout in self.delivery.handouts)
        assert self.driver.freed + waiting + held == self.driver.put_bytes

    @invariant()
    def a_release_waits_for_what_a_task_has(self) -> None:
        self.driver.done(self.shards[0])
        for index, owned in enumerate(self.shards):
            held = {e for each in self.hand.values() for e in each} - self.acked
            if any(each[0] == index for each in held) and not self._may_be_abandoned:
                assert not owned.is_idle
            if self.auto and not any(each[0] == index for each in held):
                assert owned.is_idle

    @property
    def _may_be_abandoned(self) -> bool:
        return any(h.phase is Phase.ABANDONED for h in self.delivery.handouts)


TestRandomEvents = RandomEvents.TestCase
# A failing example is short enough to read, and shrinking it takes minutes.
TestRandomEvents.settings = settings(
    max_examples=80, stateful_step_count=25, phases=[hypothesis.Phase.generate]
)


# --- cases of note ---


def test_a_limit_ends_all_loops_and_leaves_the_rest_undone() -> None:
    given, owned = one(1, 2, 3, limit=2)
    loop = Loop("records")
    assert given.whole(loop) == [1, 2]
    assert given.ask(loop) == Finish(None)
    assert given.ask(Loop("batches")) == Finish(None)
    assert given.done(owned) == 2
    assert Signal.WAKE in given.signals


def test_a_skipped_record_does_not_count_for_the_limit() -> None:
    given, _ = one(1, 2, limit=1)
    loop = Loop("records")
    assert given.whole(loop) == [1]
    given.delivery.skipped()
    assert given.whole(loop) == [2]


def test_the_first_error_ends_each_loop_until_the_delivery_is_opened_again() -> None:
    given, owned = one(1, 2)
    loop, error = Loop("records"), ValueError("made anew")
    next(given.handout(loop).one_by_one())
    for later in (error, None, ValueError()):
        given.delivery.close(later)
        assert given.ask(loop) == Finish(error)
    assert given.done(owned) == 1
    given.delivery.reopen()
    assert given.ask(loop) is Wait.BATCH


def test_half_of_max_uncommitted_done_is_committed_at_once() -> None:
    given, owned = driver(), hold(max_uncommitted_records=4)
    for number in (1, 2):
        given.put(owned, number)
    loop = Loop("records")
    given.whole(loop)
    given.whole(loop)
    assert Signal.COMMIT not in given.signals
    given.ask(loop)
    assert Signal.COMMIT in given.signals
    assert (given.delivery.records, given.processed) == (2, 2)


def test_what_user_code_has_can_be_acknowledged_without_a_request() -> None:
    given, owned = one(1, 2)
    given.delivery.acked(0.0)  # nothing was asked for yet
    next(given.handout(Loop("records")).one_by_one())
    given.delivery.acked(3.0)
    assert (given.done(owned), given.delivery.left_since) == (1, 3.0)


@pytest.mark.parametrize("auto", [True, False])
def test_a_failed_tasks_records_are_logged_and_none_waits_for_them(auto: bool) -> None:
    given, owned = one(1, 2, 3, auto=auto)
    loop, task = Loop("records", "task"), ValueError("broken")
    assert given.whole(loop, "task") == [1, 2, 3]
    owned.ack(Record("1", b""))
    given.delivery.ended("task", 0.0, lambda: task)
    fate = "the next task that asks for records marks them as done"
    given.carry_out()
    assert given.unfinished == [
        Unfinished(owned, 2, fate if auto else "they are delivered again", task)
    ]
    given.done(owned)
    assert owned.is_idle
    action = given.ask(Loop("records", "other"), "other")
    assert isinstance(action, HandOver) is not auto
    assert given.done(owned) == (3 if auto else 1)


def test_a_failed_task_with_nothing_undone_and_a_revoked_shard() -> None:
    given, owned = one(1, auto=False)
    given.whole(Loop("records", "a"), "a")
    owned.ack(Record("1", b""))
    given.delivery.ended("a", 0.0, ValueError)
    given.put(owned, 2)
    given.whole(Loop("records", "b"), "b")
    owned.revoke()
    given.delivery.ended("b", 0.0, ValueError)
    given.carry_out()
    [each] = given.unfinished
    assert each.fate == "the shard's next owner delivers them again"


def test_an_isolated_record_is_noted_before_and_stored_after_user_code_has_it() -> None:
    given, owned = one(1)
    turn = SimpleNamespace(is_in_turn=True, due="1", may_forget=lambda _: False)
    owned.suspects = turn  # type: ignore[assignment]
    loop = Loop("records")
    assert given.ask(loop) == NoteDue(owned)
    turn.due = None
    handout = given.handout(loop)
    handout.whole(0.0)
    assert given.ask(loop) == AwaitStored(owned)
    turn.is_in_turn = False
    assert given.go_on(loop) is Wait.BATCH


def test_an_isolated_record_that_was_taken_back_comes_again() -> None:
    given, owned = one(1)
    turn = SimpleNamespace(is_in_turn=True, due=None, may_forget=lambda _: False)
    owned.suspects = turn  # type: ignore[assignment]
    loop = Loop("records")
    handout = given.handout(loop)
    handout.keep_back(handout.whole(0.0))
    assert given.whole(loop) == [1]


def test_a_shard_that_had_a_turn_waits_for_the_others() -> None:
    given, (a, b) = driver(), shards(2)
    for owned, first in ((a, 1), (b, 11)):
        given.put(owned, first, first + 1)
        given.put(owned, first + 2)
    loop, seen = Loop("records"), []
    for _ in range(6):
        seen += numbers(list(islice(given.handout(loop).one_by_one(), 1)))
    assert seen == [1, 11, 2, 12, 3, 13]


def test_a_task_that_ends_well_may_have_passed_its_record_on() -> None:
    given, owned = one(1)
    given.whole(Loop("records", "a"), "a")
    given.delivery.ended("a", 0.0, lambda: None)
    assert (given.done(owned), owned.is_idle) == (0, False)


def test_the_rest_of_a_failed_loop_goes_to_the_next() -> None:
    given, _ = one(1, 2, 3, auto=False)
    next(given.handout(Loop("records", "a"), "a").one_by_one())
    given.delivery.ended("a", 0.0, ValueError)
    loop = Loop("batches", "b")
    assert given.whole(loop, "b") == [1]
    assert given.whole(loop, "b") == [2, 3]


def test_the_rest_of_a_revoked_shard_is_dropped() -> None:
    given, lost = one(1, 2)
    kept, loop = hold(), Loop("records")
    given.put(kept, 7)
    next(given.handout(loop).one_by_one())
    lost.revoke()
    assert given.whole(loop) == [7]
    assert given.done(lost) == 1
    assert given.freed == 2 * EACH_BYTES


def test_a_batch_without_records_or_of_a_revoked_shard_is_freed() -> None:
    given, owned = one(1)
    given.whole(loop := Loop("records"))
    given.put(owned).end = Position("9")
    assert given.ask(loop) is Wait.BATCH
    assert owned.progress.position() == Position("9")
    given.put(owned, 10)
    owned.revoke()
    assert given.ask(loop) is Wait.BATCH
    assert given.freed == given.put_bytes


def test_a_loop_waits_while_the_lease_of_the_next_shard_is_invalid() -> None:
    given, owned = one(1)
    owned.lease.deadline = given.now
    assert given.ask(Loop("records")) is Wait.LEASE

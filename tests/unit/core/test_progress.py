"""Done marks in any order; the checkpoint is the end of the contiguous done prefix."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesumer.core.progress import Progress
from kinesumer.model.positions import Position
from kinesumer.model.records import Record


def records(*numbers: int) -> list[Record]:
    """Return plain records with these sequence numbers."""
    return [Record(str(number), b"x") for number in numbers]


def parts(number: int, count: int) -> list[Record]:
    """Return the user records of one aggregate."""
    return [Record(str(number), b"x", sub_sequence_number=n) for n in range(count)]


def at(number: int, part: int | None = None) -> Position:
    """Return a position."""
    return Position(str(number), part)


def test_nothing_delivered_is_nothing_to_commit() -> None:
    progress = Progress()
    assert progress.position() is None
    assert progress.pending() is None
    assert progress.uncommitted == 0


def test_offsets_count_records_over_all_batches() -> None:
    progress = Progress()
    assert progress.deliver(records(1, 2, 3)) == 0
    assert progress.deliver(records(4)) == 3
    assert progress.deliver([], at(5)) == 4
    assert progress.delivered == 4


def test_what_is_done_up_to_an_offset_is_to_be_committed() -> None:
    progress = Progress()
    progress.deliver(records(1, 2, 3))
    progress.done_through(2)
    assert progress.pending() == at(2)
    progress.done_through(3)
    assert progress.pending() == at(3)


def test_an_offset_may_span_batches_and_end_within_one() -> None:
    progress = Progress()
    for first in (1, 3, 5):
        progress.deliver(records(first, first + 1))
    progress.done_through(3)
    assert progress.position() == at(3)


def test_a_smaller_offset_takes_nothing_back() -> None:
    progress = Progress()
    progress.deliver(records(1, 2))
    progress.done_through(2)
    progress.done_through(1)
    assert progress.position() == at(2)


def test_what_was_never_delivered_cant_be_done() -> None:
    progress = Progress()
    progress.deliver(records(1))
    with pytest.raises(ValueError, match="2 records can't be done: 1 were delivered"):
        progress.done_through(2)


def test_it_is_told_whenever_the_done_prefix_grows() -> None:
    told: list[int] = []
    progress = Progress(lambda: told.append(progress.done))
    progress.deliver(records(1, 2, 3, 4))
    progress.mark(at(2))
    assert told == []
    progress.mark(at(1))
    progress.done_through(2)
    progress.done_through(4)
    assert told == [2, 4]


def test_a_gap_holds_the_checkpoint_back() -> None:
    progress = Progress()
    progress.deliver(records(8, 9, 10))
    assert progress.mark(at(10))
    assert progress.mark(at(9))
    assert progress.position() is None
    assert progress.mark(at(8))
    assert progress.position() == at(10)


def test_a_batch_done_early_waits_for_the_one_before() -> None:
    progress = Progress()
    progress.deliver(records(1))
    progress.deliver(records(2))
    progress.deliver(records(3, 4))
    for number in (2, 3):
        progress.mark(at(number))
    assert progress.position() is None
    progress.mark(at(1))
    assert progress.position() == at(3)


@pytest.mark.parametrize(
    "position", [at(1), at(4), at(6), at(10), at(5, 2), at(5), at(7, 0), at(500)]
)
def test_marks_of_what_wasnt_delivered_change_nothing(position: Position) -> None:
    progress = Progress()
    progress.deliver([*records(3), *parts(5, 2)])
    progress.deliver(records(7))
    assert not progress.mark(position)
    assert progress.done == 0


def test_a_second_mark_is_no_news_before_or_after_the_prefix_passes_it() -> None:
    progress = Progress()
    progress.deliver(records(1, 2, 3))
    assert progress.mark(at(2))
    assert not progress.mark(at(2))
    progress.done_through(1)
    assert progress.done == 2
    assert not progress.mark(at(1))
    assert not progress.mark(at(2))
    progress.mark(at(3))
    assert not progress.mark(at(3))


def test_the_checkpoint_may_lie_within_an_aggregate_or_at_its_last_part() -> None:
    progress = Progress()
    progress.deliver(parts(5, 3))
    progress.mark(at(5, 0))
    assert progress.position() == at(5, 0)
    progress.done_through(3)
    assert progress.position() == at(5, 2)


def test_a_batchs_end_takes_the_place_of_its_last_record() -> None:
    progress = Progress()
    progress.deliver(parts(5, 2), at(9))
    progress.done_through(1)
    assert progress.position() == at(5, 0)
    progress.done_through(2)
    assert progress.position() == at(9)


def test_an_end_without_records_is_done_at_once_if_all_before_is() -> None:
    progress = Progress()
    progress.deliver([], at(3))
    assert progress.pending() == at(3)
    progress.committed(at(3))
    progress.deliver([], at(4))
    assert progress.pending() == at(4)
    assert progress.uncommitted == 0


def test_an_end_without_records_waits_for_the_records_before() -> None:
    progress = Progress()
    progress.deliver(records(1, 2))
    progress.deliver([], at(8))
    progress.done_through(1)
    assert progress.position() == at(1)
    progress.done_through(2)
    assert progress.position() == at(8)


def test_an_end_without_records_belongs_to_the_batch_before_it() -> None:
    progress = Progress()
    progress.deliver(records(1, 2))
    progress.deliver(records(3))
    progress.deliver([], at(8))
    progress.done_through(2)
    assert progress.position() == at(2)
    progress.done_through(3)
    assert progress.position() == at(8)


def test_a_batch_of_nothing_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an end"):
        Progress().deliver([])


def test_committed_positions_are_no_longer_pending() -> None:
    progress = Progress()
    progress.deliver(records(1, 2, 3))
    progress.done_through(2)
    position = progress.pending()
    assert position == at(2)
    assert progress.uncommitted == 3
    progress.committed(position)
    assert progress.uncommitted == 1
    assert progress.pending() is None
    assert progress.position() == at(2)


def test_what_was_done_since_a_commit_began_stays_pending() -> None:
    progress = Progress()
    progress.deliver(records(1, 2, 3))
    progress.done_through(1)
    first = progress.pending()
    progress.done_through(2)
    assert progress.pending() == at(2)
    assert first is not None
    progress.committed(first)
    assert progress.uncommitted == 2
    assert progress.pending() == at(2)


def test_it_tells_which_positions_are_stored() -> None:
    progress = Progress()
    progress.deliver(records(1, 2, 3))
    assert not progress.has_committed(at(1))
    progress.done_through(2)
    progress.committed(progress.position() or at(0))
    assert progress.has_committed(at(1))
    assert progress.has_committed(at(2))
    assert not progress.has_committed(at(3))


def test_a_late_answer_to_an_older_commit_takes_nothing_back() -> None:
    progress = Progress()
    progress.deliver(records(1, 2))
    progress.done_through(1)
    progress.position()
    progress.done_through(2)
    progress.position()
    progress.committed(at(2))
    progress.committed(at(1))
    assert progress.uncommitted == 0
    assert progress.pending() is None


def test_data_is_let_go_once_its_batch_is_done() -> None:
    progress, data = Progress(), object_of_its_own()
    held = sys.getrefcount(data)
    progress.deliver([Record("1", data)])
    assert sys.getrefcount(data) > held
    progress.done_through(1)
    assert sys.getrefcount(data) == held


def test_data_of_a_slow_batch_is_let_go_when_the_next_one_is_delivered() -> None:
    progress, data = Progress(), object_of_its_own()
    held = sys.getrefcount(data)
    progress.deliver([Record("1", data)])
    progress.deliver(records(2))
    assert sys.getrefcount(data) == held
    assert progress.mark(at(1))
    assert progress.position() == at(1)


def test_data_of_each_slow_batch_is_let_go() -> None:
    progress, data = Progress(), object_of_its_own()
    held = sys.getrefcount(data)
    progress.deliver(records(1))
    progress.deliver([Record("2", data)])
    progress.deliver(records(3))
    assert sys.getrefcount(data) == held


def object_of_its_own() -> bytes:
    """Return bytes that nobody else refers to."""
    return bytes(range(99))


class Delivered(NamedTuple):
    """A record of the dumb version: where it is."""

    position: Position
    end: Position


class Dumb(RuleBasedStateMachine):
    """The same, with one flag a record and no wish to be fast."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.log: list[Delivered] = []
        self.done: list[bool] = []
        self.empty_end: Position | None = None
        self.number = 97
        self.asked: list[Position] = []
        self.committed_position: Position | None = None
        self.before_first: Position | None = None

    def prefix(self) -> int:
        """Return how many are done without a gap."""
        return (*self.done, False).index(False)

    def expected(self) -> Position | None:
        """Return the position to commit."""
        count = self.prefix()
        if count == len(self.done) and self.empty_end:
            return self.empty_end
        if count == 0:
            return self.before_first
        return self.log[count - 1].end

    @rule(layout=st.lists(st.integers(0, 3), max_size=4), more=st.booleans())
    def deliver(self, layout: list[int], more: bool) -> None:
        batch: list[Record] = []
        for count in layout:
            self.number += 1
            batch += parts(self.number, count) if count else records(self.number)
        end = None
        if more or not batch:
            self.number += 1
            end = at(self.number)
        assert self.progress.deliver(batch, end) == len(self.log)
        if batch:
            self.settle_end()
            positions = [record.position for record in batch]
            ends = [*positions[:-1], end or positions[-1]]
            self.log += map(Delivered, positions, ends)
            self.done += [False] * len(batch)
        else:
            self.empty_end = end

    def settle_end(self) -> None:
        """An end without records belongs to the record before it."""
        if self.empty_end and self.log:
            self.log[-1] = self.log[-1]._replace(end=self.empty_end)
        elif self.empty_end:
            self.before_first = self.empty_end
        self.empty_end = None

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.log) - 1))
        assert self.progress.mark(self.log[place].position) is not self.done[place]
        self.done[place] = True

    @rule(number=st.integers(90, 120), part=st.none() | st.integers(0, 4))
    def mark_anything(self, number: int, part: int | None) -> None:
        position = at(number, part)
        places = [n for n, it in enumerate(self.log) if it.position == position]
        news = [n for n in places if not self.done[n]]
        assert self.progress.mark(position) is bool(news)
        for place in news:
            self.done[place] = True

    @rule(data=st.data())
    def done_through(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.log)))
        self.progress.done_through(offset)
        self.done[:offset] = [True] * offset

    @rule()
    def ask(self) -> None:
        position = self.progress.position()
        assert position == self.expected()
        if position is not None:
            self.asked.append(position)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.asked))
        self.progress.committed(position)
        if self.committed_position is None or position > self.committed_position:
            self.committed_position = position

    @invariant()
    def agree(self) -> None:
        stored = self.committed_position
        kept = [it for it in self.log if stored and it.position <= stored]
        assert self.progress.uncommitted == len(self.log) - len(kept)
        assert self.progress.done == self.prefix()
        is_done = [self.progress.is_done(offset) for offset in range(len(self.log))]
        assert is_done == self.done
        for stop in (0, len(self.done) // 2, len(self.done)):
            assert self.progress.undone(stop) == self.done[:stop].count(False)


TestAgainstTheDumbVersion = Dumb.TestCase

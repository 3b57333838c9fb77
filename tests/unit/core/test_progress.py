"""Test that the checkpoint is the last record before the first that isn't done."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesumer.core.progress import (
    Progress,
    after_death,
    is_tip_due,
    may_have_killed,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.rows import NO_DEATHS, Deaths, ShardRow
from kinesumer.model.streams import ShardKey, Start
from tests.support.columns import ListedRecords


def records(*numbers: int) -> list[Record]:
    """Return records with these sequence numbers, not from aggregates."""
    return [Record(str(number), b"x") for number in numbers]


def parts(number: int, count: int) -> list[Record]:
    """Return the user records of one aggregate."""
    return [Record(str(number), b"x", sub_sequence_number=n) for n in range(count)]


def at(number: int, part: int | None = None) -> Position:
    """Return a position."""
    return Position(str(number), part)


def test_undelivered_records_cannot_be_done() -> None:
    progress = Progress()
    progress.deliver(records(1))
    with pytest.raises(ValueError, match="2 records can't be done: 1 were delivered"):
        progress.done_through(2)


def test_a_growing_done_prefix_is_reported() -> None:
    told: list[int] = []
    progress = Progress(lambda: told.append(progress.done))
    progress.deliver(records(1, 2, 3, 4))
    progress.mark(at(2))
    assert told == []
    progress.mark(at(1))
    progress.done_through(2)
    progress.done_through(4)
    assert told == [2, 4]


@pytest.mark.parametrize("done", [[], [2], [3], [1, 4]])
@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("last", range(6))
def test_acks_of_a_range_are_acks_of_its_records(
    done: list[int], first: int, last: int
) -> None:
    one, other = Progress(), Progress()
    for progress in (one, other):
        progress.deliver(ListedRecords(records(0, 1, 2)))
        progress.deliver(records(3, 4))
        for number in done:
            progress.mark(at(number))
    changed = one.mark_between(at(first), at(last))
    marked = [other.mark(at(number)) for number in range(first, last + 1)]
    assert changed is any(marked)
    assert (one.done, one.done_position) == (other.done, other.done_position)
    assert [one.is_done(n) for n in range(5)] == [other.is_done(n) for n in range(5)]


def test_an_empty_batch_needs_an_end() -> None:
    with pytest.raises(ValueError, match="needs an end"):
        Progress().deliver([])


@pytest.mark.parametrize("later_batches", [0, 1])
def test_data_is_freed_when_its_batch_is_done_or_another_is_delivered(
    later_batches: int,
) -> None:
    progress, data = Progress(), bytes(range(99))
    references = sys.getrefcount(data)
    progress.deliver(records(1))
    progress.deliver([Record("2", data)])
    assert sys.getrefcount(data) > references
    for number in range(later_batches):
        progress.deliver(records(3 + number))
    if not later_batches:
        progress.done_through(2)
    assert sys.getrefcount(data) == references
    progress.mark(at(1))
    progress.mark(at(2))
    assert progress.position() == at(2)


class Delivered(NamedTuple):
    """A record's position, and the position to commit once the record is done."""

    position: Position
    end: Position


class Dumb(RuleBasedStateMachine):
    """Compares ``Progress`` with a simple version that has one flag per record."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.log: list[Delivered] = []
        self.done: list[bool] = []
        self.batch_starts: list[int] = []  # each record arrives at its offset's time
        self.empty_end: Position | None = None
        self.number = 97
        self.asked: list[Position] = []
        self.committed_position: Position | None = None
        self.before_first: Position | None = None

    def prefix(self) -> int:
        """Return how many records are done before the first that isn't."""
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
        for index, record in enumerate(batch):
            record.approximate_arrival_timestamp = float(len(self.log) + index)
        self.batch_starts.append(len(self.log))
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
        """Assign the end of a batch without records to the record before it."""
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

    @rule(data=st.data())
    def mark_offsets(self, data: st.DataObject) -> None:
        bounds = st.integers(0, len(self.log))
        first, stop = sorted((data.draw(bounds), data.draw(bounds)))
        whole = range(first, stop)
        offsets = data.draw(st.sampled_from([whole, list(whole), list(whole[::2])]))
        self.progress.mark_offsets(offsets)
        for offset in offsets:
            self.done[offset] = True

    @rule()
    def ask(self) -> None:
        stored, position = self.committed_position, self.progress.position()
        assert position == self.expected()
        assert self.progress.pending() == (None if position == stored else position)
        if position is not None:
            self.asked.append(position)
            is_stored = stored is not None and position <= stored
            assert self.progress.has_committed(position) is is_stored

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
        assert self.progress.delivered == len(self.log)
        assert self.progress.done_position == self.expected()
        assert self.progress.committed_position == stored
        undone = self.progress.first_undone_arrival
        assert undone == (None if all(self.done) else self.prefix())
        uncommitted = self.progress.first_uncommitted_arrival
        if len(kept) == len(self.log):
            assert uncommitted is None
        else:
            assert uncommitted in (*self.batch_starts, len(kept))
            assert uncommitted <= len(kept)
            assert not any(
                uncommitted < start <= len(kept) for start in self.batch_starts
            )
        is_done = [self.progress.is_done(offset) for offset in range(len(self.log))]
        assert is_done == self.done
        for stop in (0, len(self.done) // 2, len(self.done)):
            assert self.progress.undone(stop) == self.done[:stop].count(False)


TestAgainstTheDumbVersion = Dumb.TestCase
TestAgainstTheDumbVersion.settings = settings(max_examples=40)


ROW = ShardRow(ShardKey("arn", "s1"), 0, 9, Start.TRIM_HORIZON, ready=True)
P10, P11, P12, P13 = (Position(str(number)) for number in range(10, 14))
NOW = 60.0


@pytest.mark.parametrize(
    ("position", "before", "expected"),
    [
        # the first death is counted
        (P10, NO_DEATHS, Deaths(1, NOW)),
        # another one only if the owner had a suspect
        (P10, Deaths(2, 5.0), Deaths(2, NOW)),
        (P10, Deaths(2, 5.0, P11), Deaths(3, NOW)),
        # small progress before the isolation doesn't end the count
        (P12, Deaths(1, 5.0, P11), Deaths(2, NOW)),
        # in isolation, a record that is done is no suspect
        (P11, Deaths(3, 5.0, P11), Deaths(3, NOW)),
        (P12, Deaths(3, 5.0, P11), Deaths(3, NOW)),
        # the second death in isolation names the record
        (None, Deaths(3, 5.0, P11), Deaths(4, NOW, suspect=P11)),
        (P10, Deaths(3, 5.0, P11), Deaths(4, NOW, suspect=P11)),
        (None, Deaths(4, 5.0, P11, P11), Deaths(5, NOW, None, P11, P11)),
        (P10, Deaths(4, 5.0, P11, P11), Deaths(5, NOW, None, P11, P11)),
        # progress in isolation makes another record the suspect
        (P11, Deaths(4, 5.0, P12, P11), Deaths(5, NOW, suspect=P12)),
        (P12, Deaths(5, 5.0, P13, P11, P11), Deaths(6, NOW, suspect=P13)),
        # deaths at two unacknowledged records name none of them
        (P10, Deaths(4, 5.0, P13, P12), Deaths(5, NOW, suspect=P13)),
        # another record is named after its second death
        (P10, Deaths(5, 5.0, P11, P13, P13), Deaths(6, NOW, None, P11, P13)),
        (P10, Deaths(6, 5.0, P11, P11, P13), Deaths(7, NOW, None, P11, P11)),
    ],
)
def test_deaths_in_a_row_at_one_record_name_it(
    position: Position | None, before: Deaths, expected: Deaths
) -> None:
    """The fields of deaths are their number and time, tried, suspect and poison."""
    row = ROW._replace(position=position, deaths=before)
    assert after_death(row, NOW) == expected


def test_a_record_that_arrived_after_the_last_death_is_no_suspect() -> None:
    deaths = Deaths(1, 100.0)
    assert may_have_killed(deaths, None)
    assert may_have_killed(deaths, 100.0)
    assert not may_have_killed(deaths, 100.1)


def test_a_poison_record_is_void_once_it_is_passed_or_the_shard_has_ended() -> None:
    row = ROW._replace(deaths=Deaths(5, poison=P11))
    assert row.poison == row._replace(position=P10).poison == P11
    assert row._replace(position=P11).poison is None
    assert row._replace(ended=True).poison is None
    assert row.is_isolated
    assert not row._replace(ended=True).is_isolated
    assert not ROW._replace(deaths=Deaths(2)).is_isolated


def test_a_tip_is_due_after_a_24th_of_the_retention() -> None:
    assert not is_tip_due(100.0 + 3599.0, 100.0, 24 * 3600.0)
    assert is_tip_due(100.0 + 3600.0, 100.0, 24 * 3600.0)

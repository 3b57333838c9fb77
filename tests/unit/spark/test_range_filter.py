"""Test which records of a shard's pages belong to a range."""

from __future__ import annotations

import pytest

from kinesumer.model.positions import BEGINNING, END, After, At, Position, ShardPosition
from kinesumer.model.records import Record
from kinesumer.model.streams import Start
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.reading.range_filter import RangeFilter
from kinesumer.spark.reading.rows import RecordRows, Slice


def filter_of(first: ShardPosition, last: ShardPosition) -> RangeFilter:
    return RangeFilter(ShardRange("arn", "shardId-0", first, last, 86400))


def page(*numbers: int) -> RecordRows:
    """Return records that arrived at the seconds of their numbers."""
    records = [
        Record(str(n), b"", approximate_arrival_timestamp=float(n)) for n in numbers
    ]
    return RecordRows(records, deaggregate=True)


def after(number: int, sub: int | None = None) -> After:
    return After(Position(str(number), sub), 1.0)


PARTS_OF_9, PARTS_OF_11 = Position("9", 3), Position("11", 1)


@pytest.mark.parametrize(
    ("first", "last", "taken"),
    [
        (BEGINNING, END, Slice(0, 4)),
        (BEGINNING, after(10), Slice(0, 3)),
        (after(8), after(10), Slice(1, 3)),
        (after(11), END, Slice(0, 0)),
        (after(9, 3), after(10), Slice(1, 3, PARTS_OF_9)),
        (after(9), after(11, 1), Slice(2, 4, None, PARTS_OF_11)),
        (At("9", 1.0), after(10), Slice(1, 3)),
        (Start(type="AT_TIMESTAMP", timestamp=9.5), END, Slice(2, 4)),
        (Start(type="AT_TIMESTAMP", timestamp=99.0), END, Slice(0, 0)),
    ],
)
def test_records_after_the_beginning_up_to_the_end_are_taken(
    first: ShardPosition, last: ShardPosition, taken: Slice
) -> None:
    assert filter_of(first, last).take(page(8, 9, 10, 11)) == taken


def test_a_range_continues_with_the_next_page_until_its_last_record() -> None:
    given = filter_of(after(8), after(11))
    assert given.take(page(8, 9)) == Slice(1, 2)
    assert (given.after, given.reached) == (Position("9"), False)
    assert given.take(page(10, 11, 12)) == Slice(0, 2)
    assert (given.reached, given.passed) == (True, False)


def test_a_range_whose_last_record_was_read_before_is_over() -> None:
    assert filter_of(after(9), after(9)).reached


@pytest.mark.parametrize(("last", "passed"), [(after(9), True), (after(12), False)])
def test_a_last_record_that_is_missing_is_passed_by_a_later_one(
    last: After, passed: bool
) -> None:
    given = filter_of(BEGINNING, last)
    given.take(page(8, 10))
    assert (given.reached, given.passed) == (False, passed)


@pytest.mark.parametrize(("numbers", "missing"), [((8, 9), False), ((10, 11), True)])
def test_a_first_record_that_is_missing_is_noticed(
    numbers: tuple[int, ...], missing: bool
) -> None:
    given = filter_of(At("9", 1.0), END)
    given.take(page(*numbers))
    assert given.is_first_missing is missing


def test_nothing_comes_after_a_shards_end() -> None:
    with pytest.raises(ValueError, match="shardId-0: nothing comes after"):
        filter_of(END, END)

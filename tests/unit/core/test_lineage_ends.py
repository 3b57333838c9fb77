"""Test when a shard counts as read to its end."""

from __future__ import annotations

import math

import pytest

from kinesumer.core.lineage import (
    NextStep,
    after_page,
    find,
    is_past_end,
    is_read_until,
    records_before,
)
from kinesumer.model.positions import BEFORE_ALL, Position, Tip
from kinesumer.model.records import Page, Record
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start

OPEN = Shard("shardId-0", 0, HASH_KEYS - 1)
CLOSED = OPEN._replace(ending_sequence_number="100")
CHILD = Shard("shardId-1", 0, HASH_KEYS - 1, ("shardId-0",))
ONE = [Record("99", b"x")]


@pytest.mark.parametrize("was_closed", [False, True])
@pytest.mark.parametrize("records", [[], ONE])
@pytest.mark.parametrize("children", [(), (CHILD,)])
def test_a_page_with_an_iterator_never_ends_a_shard(
    records: list[Record], children: tuple[Shard, ...], was_closed: bool
) -> None:
    page = Page(records, "next", 0, children)
    assert after_page(page, was_closed=was_closed) is NextStep.READ_ON


@pytest.mark.parametrize("was_closed", [False, True])
@pytest.mark.parametrize("records", [[], ONE])
def test_children_in_place_of_an_iterator_end_a_shard(
    records: list[Record], was_closed: bool
) -> None:
    page = Page(records, None, 0, (CHILD,))
    assert after_page(page, was_closed=was_closed) is NextStep.END


@pytest.mark.parametrize("was_closed", [False, True])
def test_more_records_may_follow_a_page_with_records(was_closed: bool) -> None:
    page = Page(ONE, None, 0)
    assert after_page(page, was_closed=was_closed) is NextStep.READ_AFTER_LAST


def test_only_a_shard_that_was_closed_before_the_request_ends_with_nothing() -> None:
    page = Page([], None, 0)
    assert after_page(page, was_closed=False) is NextStep.CONFIRM
    assert after_page(page, was_closed=True) is NextStep.END


@pytest.mark.parametrize(
    ("shard", "after", "expected"),
    [
        (CLOSED, Position("99"), False),
        (CLOSED, Position("100"), True),
        (CLOSED, Position("100", 0), True),
        (CLOSED, Position("99", 7), False),
        (CLOSED, Position("1000"), True),
        (CLOSED, Start.TRIM_HORIZON, False),
        (OPEN, Position("1000"), False),
    ],
)
def test_nothing_follows_the_ending_number_of_a_closed_shard(
    shard: Shard, after: Position | Start, expected: bool
) -> None:
    assert is_past_end(shard, after) is expected


def test_a_shard_is_found_by_its_id() -> None:
    assert find([OPEN, CHILD], "shardId-1") == CHILD
    assert find([OPEN], "shardId-1") is None


UNTIL = 1000.0


def page(*times: float | None) -> Page:
    records = [
        Record(
            data=b"",
            partition_key="key",
            sequence_number=str(number),
            approximate_arrival_timestamp=time,
        )
        for number, time in enumerate(times)
    ]
    return Page(records, "next", 0)


def row(name: str, *parents: str, tip: float = 0, ended: bool = False) -> ShardRow:
    return ShardRow(
        ShardKey("arn", name),
        0,
        1,
        Start.LATEST,
        parents=frozenset(parents),
        position=Position("5"),
        tip=Tip(tip, Position("5")),
        ended=ended,
    )


def test_records_that_arrive_at_the_time_or_later_are_left_out() -> None:
    assert records_before(page(999.0, None, 999.9), UNTIL) == 3
    assert records_before(page(999.0, 1000.0, 999.9), UNTIL) == 1
    assert records_before(page(1e9), math.inf) == 1


@pytest.mark.parametrize(
    ("rows", "is_read"),
    [
        ([row("a", tip=1000), row("b", tip=1001)], True),
        ([row("a", tip=1000), row("b", tip=999)], False),
        ([row("a", ended=True), row("b", "a", tip=1000)], True),
        ([row("a", ended=True), row("b", "a")], False),
        # A closed shard with later records: its descendants have only later ones.
        ([row("a", tip=1000), row("b", "a"), row("c", "b")], True),
    ],
)
def test_a_stream_is_read_if_each_shard_is_or_has_only_later_records(
    rows: list[ShardRow], is_read: bool
) -> None:
    assert is_read_until(rows, UNTIL) == is_read


def test_a_shard_without_records_can_be_read_until_a_time_too() -> None:
    empty = row("a")._replace(position=None, tip=Tip(1000, BEFORE_ALL))
    assert is_read_until([empty], UNTIL)
    # An operator has moved the position back to a start.
    assert not is_read_until([row("a", tip=1000)._replace(position=None)], UNTIL)

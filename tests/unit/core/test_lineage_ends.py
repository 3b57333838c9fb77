"""Test when a shard counts as read to its end."""

from __future__ import annotations

import math
from itertools import product

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
PAGES = [*product(([], ONE), ((), (CHILD,)), (False, True))]


@pytest.mark.parametrize(
    ("page", "was_closed", "expected"),
    [
        # an iterator never ends a shard
        *((Page(r, "next", 0, c), w, NextStep.READ_ON) for r, c, w in PAGES),
        # children in place of an iterator do
        *((Page(r, None, 0, (CHILD,)), w, NextStep.END) for r, c, w in PAGES if c),
        # more records may follow a page with records
        (Page(ONE, None, 0), False, NextStep.READ_AFTER_LAST),
        (Page(ONE, None, 0), True, NextStep.READ_AFTER_LAST),
        # without any, only a shard ends that was closed before the request
        (Page([], None, 0), False, NextStep.CONFIRM),
        (Page([], None, 0), True, NextStep.END),
    ],
)
def test_what_follows_a_page(page: Page, was_closed: bool, expected: NextStep) -> None:
    assert after_page(page, was_closed=was_closed) is expected


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

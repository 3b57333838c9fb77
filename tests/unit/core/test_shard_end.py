"""Test when a shard counts as read to its end."""

from __future__ import annotations

import pytest

from kinesumer.core.shard_end import NextStep, after_page, find, is_past_end
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard, Start

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

"""A round: what to claim, whose death to verify, what to hand over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.claims import (
    ClaimDecision,
    Pauses,
    contains,
    decide_claims,
    starts_inside_shard,
    to_release,
    was_applied,
    was_seeked,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, ShardRow
from kinesumer.model.streams import Interval, ShardKey, Start
from kinesumer.ports import Compare, Write

if TYPE_CHECKING:
    from collections.abc import Collection

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
KEY = ShardKey(ARN, "s1")
FREE = ShardRow(KEY, 10, 19, Start.TRIM_HORIZON, ready=True)
OWNED = FREE._replace(owner="other", owner_id="c2")
MINE = FREE._replace(owner="mine", owner_id="c1")
NO_PAUSES = Pauses()


def decide(
    rows: list[ShardRow],
    held: Collection[ShardKey] = (),
    dead: Collection[str] = (),
    pauses: Pauses = NO_PAUSES,
) -> ClaimDecision:
    return decide_claims(rows, held, dead, "mine", pauses)


@pytest.mark.parametrize(
    ("first", "rows", "expected"),
    [
        (10, [FREE], False),
        (10, [OWNED], False),
        (10, [], True),
        (5, [FREE], True),
        (10, [FREE._replace(ended=True)], True),
        (10, [FREE._replace(key=ShardKey("other", "s1"))], True),
    ],
)
def test_a_range_begins_with_a_shard_unless_a_merge_has_joined_it_to_one_before(
    first: int, rows: list[ShardRow], *, expected: bool
) -> None:
    assert starts_inside_shard((Interval(ARN, first, 30),), rows) is expected


def test_a_free_shard_is_claimed() -> None:
    assert decide([FREE]) == ([FREE], set(), [FREE], [])


def test_a_shard_of_the_dead_is_claimed() -> None:
    assert decide([OWNED], (), {"other"}) == ([OWNED], set(), [OWNED], [])


def test_the_death_of_any_other_owner_is_to_be_verified() -> None:
    assert decide([OWNED], (), {"else"}) == ([], {("c2", "other")}, [OWNED], [])


def test_a_shard_whose_parents_are_read_is_only_waited_for() -> None:
    waiting = FREE._replace(ready=False)
    assert decide([waiting]) == ([], set(), [waiting], [])


@pytest.mark.parametrize(
    ("row", "held"), [(FREE._replace(ended=True), ()), (FREE, {KEY}), (OWNED, {KEY})]
)
def test_what_has_ended_or_is_held_needs_nothing(
    row: ShardRow, held: set[ShardKey]
) -> None:
    assert decide([row], held) == ([], set(), [], [])


@pytest.mark.parametrize(
    "beside",
    [
        FREE._replace(ended=True),
        FREE._replace(ready=False),
        FREE._replace(paused=True),
    ],
)
def test_a_free_shard_is_claimed_beside_others_that_are_not(beside: ShardRow) -> None:
    other = FREE._replace(key=ShardKey(ARN, "s2"), first_hash=20, last_hash=29)
    assert decide([beside, other]).claim == [other]


PAUSES = [
    (FREE._replace(paused=True), Pauses()),
    (FREE, Pauses(streams=frozenset({ARN}))),
    (FREE, Pauses(everything=True)),
]


@pytest.mark.parametrize(("row", "pauses"), PAUSES)
@pytest.mark.parametrize("owner", ["", "other"])
def test_what_is_paused_is_neither_claimed_nor_waited_for(
    row: ShardRow, pauses: Pauses, owner: str
) -> None:
    row = row._replace(owner=owner)
    assert decide([row], dead={"other"}, pauses=pauses) == ([], set(), [], [])


def test_a_pause_of_another_stream_stops_nothing() -> None:
    assert decide([FREE], pauses=Pauses(streams=frozenset({"other"}))).claim == [FREE]


def test_what_a_seek_left_to_its_owner_is_claimed_again() -> None:
    assert decide([MINE]) == ([MINE], set(), [MINE], [])


@pytest.mark.parametrize(("row", "pauses"), PAUSES)
def test_what_a_seek_left_to_its_owner_is_released_while_it_is_paused(
    row: ShardRow, pauses: Pauses
) -> None:
    row = row._replace(owner="mine")
    assert decide([row], pauses=pauses) == ([], set(), [], [row])


def test_what_a_seek_left_to_its_owner_is_released_while_its_parents_are_read() -> None:
    waiting = MINE._replace(ready=False)
    assert decide([waiting]) == ([], set(), [waiting], [waiting])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (MINE._replace(epoch=4), True),
        (MINE._replace(epoch=3), False),
        (MINE._replace(epoch=2), False),
        (OWNED._replace(epoch=4), False),
        (FREE._replace(epoch=4), False),
    ],
)
def test_only_a_seek_raises_the_epoch_and_keeps_the_owner(
    now: ShardRow, *, expected: bool
) -> None:
    assert was_seeked(MINE._replace(epoch=3), now) is expected


def test_a_range_contains_its_ends_of_its_own_stream() -> None:
    range_ = (Interval(ARN, 0, 4), Interval(ARN, 10, 20))
    assert [n for n in range(30) if contains(range_, ARN, n)] == [
        *range(5),
        *range(10, 21),
    ]
    assert not contains(range_, "arn:a stream before it", 10)
    assert not contains(range_, "stream after it", 10)
    assert not contains((), ARN, 0)


RANGE = (Interval(ARN, 0, 9),)


def test_what_lies_outside_is_released_a_heartbeat_later() -> None:
    held = {KEY: 10}
    moving, due = to_release(held, RANGE, {}, now=100.0, delay=2.0)
    assert (moving, due) == ({KEY: 100.0}, [])
    moving, due = to_release(held, RANGE, moving, now=101.9, delay=2.0)
    assert (moving, due) == ({KEY: 100.0}, [])
    assert to_release(held, RANGE, moving, now=102.0, delay=2.0)[1] == [KEY]
    assert to_release(held, RANGE, moving, now=150.0, delay=2.0)[1] == [KEY]


def test_what_comes_back_inside_is_kept_and_the_wait_starts_again() -> None:
    moving, due = to_release({KEY: 5}, RANGE, {KEY: 0.0}, now=100.0, delay=2.0)
    assert (moving, due) == ({}, [])


@given(
    st.dictionaries(
        st.builds(ShardKey, st.just(ARN), st.text("ab", min_size=1)),
        st.integers(0, 20),
    ),
    st.floats(0, 5),
)
def test_a_shard_inside_the_range_never_moves(
    held: dict[ShardKey, int], now: float
) -> None:
    moving, due = to_release(held, RANGE, {}, now, delay=0.0)
    outside = {key for key, first in held.items() if first > 9}
    assert moving.keys() == outside
    assert set(due) == outside


RELEASE = Write(Key("p", "s"), Compare("owner", "=", "mine"))
END = RELEASE._replace(set={"ended": True})
AT_5 = FREE._replace(position=Position("5"))


@pytest.mark.parametrize(
    ("now", "write", "position", "expected"),
    [
        (FREE, RELEASE, None, True),
        (FREE, RELEASE, Position("5"), False),
        (AT_5, RELEASE, Position("5"), True),
        (AT_5, RELEASE, Position("4"), True),
        (AT_5, RELEASE, Position("6"), False),
        (AT_5, END, Position("5"), False),
        (FREE._replace(ended=True), END, Position("5"), True),
    ],
)
def test_a_refusing_row_tells_whether_an_earlier_try_gave_the_shard_up(
    now: ShardRow, write: Write, position: Position | None, *, expected: bool
) -> None:
    assert was_applied(now, write, position) is expected

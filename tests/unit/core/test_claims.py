"""Test when a session claims a shard, verifies its owner's death, or releases it."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kinesumer.core.claims import (
    ClaimDecision,
    Pauses,
    contains,
    decide_claims,
    is_stored,
    look_seconds,
    starts_inside_shard,
    to_release,
    was_applied,
    was_seeked,
)
from kinesumer.core.progress import Progress
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, ShardRow
from kinesumer.model.streams import Interval, ShardKey, Start
from kinesumer.ports import Compare, Write

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


def test_new_shards_are_looked_for_each_second_or_each_thousand_rows() -> None:
    assert [look_seconds(rows) for rows in (0, 1000, 7000)] == [1.0, 1.0, 7.0]


CLAIM, VERIFY, WAIT, RELEASE_STALE = "claim", "verify", "wait", "release"
WAITING = FREE._replace(ready=False)


@pytest.mark.parametrize(
    ("row", "held", "dead", "expected"),
    [
        (FREE, (), (), {CLAIM, WAIT}),
        (OWNED, (), {"other"}, {CLAIM, WAIT}),
        (OWNED, (), {"else"}, {VERIFY, WAIT}),
        (OWNED._replace(is_foreign=True), (), {"else"}, {WAIT}),
        (WAITING, (), (), {WAIT}),
        (FREE._replace(ended=True), (), (), set()),
        (FREE, {KEY}, (), set()),
        (OWNED, {KEY}, (), set()),
        # The row still names this session, which has dropped the shard after a seek.
        (MINE, (), (), {CLAIM, WAIT}),
        (MINE._replace(ready=False), (), (), {WAIT, RELEASE_STALE}),
    ],
)
def test_a_shard_is_claimed_once_it_is_ready_and_its_owner_is_dead(
    row: ShardRow, held: set[ShardKey], dead: set[str], expected: set[str]
) -> None:
    pauses = Pauses(streams=frozenset({"another stream"}))
    assert decide([row], held, dead, pauses) == (
        [row] if CLAIM in expected else [],
        {("c2", "other")} if VERIFY in expected else set(),
        [row] if WAIT in expected else [],
        [row] if RELEASE_STALE in expected else [],
    )


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


@pytest.mark.parametrize(
    ("row", "pauses"),
    [
        (FREE._replace(paused=True), Pauses()),
        (FREE, Pauses(streams=frozenset({ARN}))),
        (FREE, Pauses(everything=True)),
    ],
)
def test_a_paused_shard_is_not_claimed_and_a_seeked_one_is_released(
    row: ShardRow, pauses: Pauses
) -> None:
    for owner in ("", "other"):
        owned = row._replace(owner=owner)
        assert decide([owned], dead={"other"}, pauses=pauses) == ([], set(), [], [])
    seeked = row._replace(owner="mine")
    assert decide([seeked], pauses=pauses) == ([], set(), [], [seeked])


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
    found = [n for n in range(30) if contains(range_, ARN, n)]
    assert found == [*range(5), *range(10, 21)]
    assert not contains(range_, "arn:a stream before it", 10)
    assert not contains(range_, "stream after it", 10)
    assert not contains((), ARN, 0)


RANGE = (Interval(ARN, 0, 9),)


def test_a_shard_outside_the_range_is_released_after_a_delay() -> None:
    moving: dict[ShardKey, float] = {}
    for now, expected in {100.0: [], 101.9: [], 102.0: [KEY], 150.0: [KEY]}.items():
        moving, due = to_release({KEY: 10}, RANGE, moving, now, delay=2.0)
        assert (moving, due) == ({KEY: 100.0}, expected)


def test_a_shard_inside_the_range_again_is_kept() -> None:
    moving, due = to_release({KEY: 5}, RANGE, {KEY: 0.0}, now=100.0, delay=2.0)
    assert (moving, due) == ({}, [])


def test_only_shards_outside_the_range_move() -> None:
    held = {ShardKey(ARN, f"s{first}"): first for first in range(20)}
    moving, due = to_release(held, RANGE, {}, 5.0, delay=0.0)
    assert set(due) == moving.keys() == {key for key in held if held[key] > 9}


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
def test_a_rejected_write_may_have_been_applied_before(
    now: ShardRow, write: Write, position: Position | None, *, expected: bool
) -> None:
    assert was_applied(now, write, position) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (None, False),
        (FREE._replace(epoch=3), False),
        (AT_5._replace(epoch=3), True),
        (AT_5._replace(epoch=3, position=Position("6")), True),
        (AT_5._replace(epoch=3, position=Position("4")), False),
        # Another owner stored this position.
        (AT_5._replace(epoch=2), False),
        (AT_5._replace(epoch=4), False),
    ],
)
def test_a_rejected_position_may_have_been_stored_before_in_the_same_epoch(
    now: ShardRow | None, *, expected: bool
) -> None:
    mine = MINE._replace(epoch=3)
    assert is_stored(Progress(), mine, now, Position("5")) is expected


def test_a_position_that_a_release_stored_counts_whatever_the_row_shows() -> None:
    progress = Progress()
    progress.committed_position = Position("5")
    later_owner = OWNED._replace(epoch=1)
    for now in (None, later_owner):
        assert is_stored(progress, MINE, now, Position("5"))
        assert not is_stored(progress, MINE, now, Position("6"))

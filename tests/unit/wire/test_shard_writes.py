"""Test the writes of positions, and of the deaths of a shard's owners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import CorruptRowError
from kinesumer.model.positions import Position
from kinesumer.model.rows import NO_DEATHS, Deaths, Row
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes, rows, shard_writes
from kinesumer.wire.conditions import holds
from tests.support.write_cases import (
    APP,
    FREE_ROW,
    MINE,
    OWNED_BY_OTHERS,
    SHARD,
    SHARD_ROW,
    row_after,
    without,
    write_over,
)

numbers = st.integers(0, 10**56).map(str) | st.sampled_from(["9", "10", "99", "100"])

positions = st.builds(Position, numbers, st.none() | st.integers(0, 3))


def stored_at(position: Position | None) -> Row:
    """Return the shard's row after this position was committed."""
    row = without(SHARD_ROW, "sequence_number")
    if position is None:
        return row
    committed = write_over(row, shard_writes.commit(APP, SHARD, position)).row
    assert committed is not None
    return committed


@given(st.none() | positions, positions)
def test_only_a_greater_position_is_committed(
    stored: Position | None, new: Position
) -> None:
    row, write = stored_at(stored), shard_writes.commit(APP, SHARD, new)
    assert holds(write.condition, row) == (stored is None or new > stored)


@given(st.none() | positions, positions)
def test_no_smaller_position_is_released(
    stored: Position | None, new: Position
) -> None:
    written = write_over(stored_at(stored), shard_writes.release(APP, SHARD, new))
    assert written.applied == (stored is None or new >= stored)
    assert written.row is not None
    after = rows.read_shard(written.row)
    assert after.position == (new if written.applied else stored)


KEY = shard_writes.shard_row_key(APP, SHARD)
COUNTED = Deaths(5, 12.345, None, Position("7", 2), Position("8"))
TRIED = Position("7", 3)


def claimed(counted: Deaths | None) -> Deaths:
    before = FREE_ROW | {"tried": "6", "notes": 4}
    write = shard_writes.with_deaths(shard_writes.claim(APP, SHARD, MINE, "n"), counted)
    after = row_after(before, write)
    assert "notes" not in after  # the new owner counts its own
    return rows.read_shard(after).deaths


@pytest.mark.parametrize("counted", [COUNTED, Deaths(1, 2.0), None])
def test_a_claim_stores_the_deaths_and_forgets_what_was_tried(
    counted: Deaths | None,
) -> None:
    assert claimed(counted) == (counted or NO_DEATHS)


def test_an_owner_notes_a_record() -> None:
    before = SHARD_ROW | {"deaths": 1, "died_at": 2000}
    after = row_after(before, shard_writes.note_tried(KEY, SHARD, TRIED, 1))
    assert rows.read_shard(after).deaths == Deaths(1, 2.0, TRIED)
    after = row_after(after, shard_writes.note_tried(KEY, SHARD, None, 2))
    assert rows.read_shard(after).deaths == Deaths(1, 2.0)


@pytest.mark.parametrize("late", [TRIED, None])
def test_a_late_note_does_not_replace_a_later_one(late: Position | None) -> None:
    first = shard_writes.note_tried(KEY, SHARD, late, 3)
    second = shard_writes.note_tried(KEY, SHARD, Position("9"), 4)
    after = row_after(row_after(SHARD_ROW, first), second)
    assert not write_over(after, first).applied
    assert write_over(after, second).applied  # as an attempt without an answer does


@pytest.mark.parametrize("why", OWNED_BY_OTHERS)
def test_only_the_owner_notes_a_record_or_forgets_deaths(why: str) -> None:
    for write in (
        shard_writes.note_tried(KEY, SHARD, TRIED, 1),
        shard_writes.forget_deaths(KEY, SHARD),
    ):
        assert not write_over(OWNED_BY_OTHERS[why], write).applied


def test_the_deaths_are_forgotten_with_a_commit_or_alone_or_by_a_seek() -> None:
    before = SHARD_ROW | {"deaths": 5, "died_at": 12345, "notes": 4}
    before |= dict.fromkeys(("tried", "suspect", "poison"), "6")
    commit = shard_writes.commit(APP, SHARD, Position("600"))
    for write in (
        shard_writes.forgetting(commit, shard_writes.DEATHS),
        shard_writes.forget_deaths(KEY, SHARD),
        admin_writes.seek(APP, SHARD, Start.TRIM_HORIZON, waits=False),
    ):
        after = row_after(before, write)
        assert not {*shard_writes.DEATHS} & after.keys()
    assert rows.read_shard(row_after(before, commit)).deaths.counted == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("deaths", "x"), ("died_at", -1), ("tried", "x"), ("poison", 7)],
)
def test_an_invalid_attribute_is_named(name: str, value: str | int) -> None:
    row = SHARD_ROW | {"deaths": 1, "died_at": 2000} | {name: value}
    with pytest.raises(CorruptRowError, match=f"attribute {name} "):
        rows.read_shard(row)

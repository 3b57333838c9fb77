"""Test the conditions of writes about positions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.positions import Position
from kinesumer.model.rows import Row
from kinesumer.testing.simulation.memory_store import holds
from kinesumer.wire import rows, writes
from tests.support.write_cases import (
    APP,
    CASES,
    SHARD,
    SHARD_ROW,
    row_after,
    without,
    write_over,
)


def after(name: str) -> Row:
    """Return the row that results from a write to the first row that accepts it."""
    case = CASES[name]
    return row_after(next(iter(case.accepted.values())), case.write)


numbers = st.integers(0, 10**56).map(str) | st.sampled_from(["9", "10", "99", "100"])


positions = st.builds(Position, numbers, st.none() | st.integers(0, 3))


def stored_at(position: Position | None) -> Row:
    """Return the shard's row after this position was committed."""
    row = without(SHARD_ROW, "sequence_number")
    if position is None:
        return row
    committed = write_over(row, writes.commit(APP, SHARD, position)).row
    assert committed is not None
    return committed


@given(st.none() | positions, positions)
def test_only_a_greater_position_is_committed(
    stored: Position | None, new: Position
) -> None:
    row, write = stored_at(stored), writes.commit(APP, SHARD, new)
    assert holds(write.condition, row) == (stored is None or new > stored)


@given(st.none() | positions, positions)
def test_no_smaller_position_is_released(
    stored: Position | None, new: Position
) -> None:
    written = write_over(stored_at(stored), writes.release(APP, SHARD, new))
    assert written.applied == (stored is None or new >= stored)
    assert written.row is not None
    after = rows.read_shard(written.row)
    assert after.position == (new if written.applied else stored)

"""Test how many bytes rows have, and how much room their last write unit leaves."""

from __future__ import annotations

import pytest

from kinesumer.model.rows import Row
from kinesumer.wire.row_size import (
    REPORTS,
    SLACK_BYTES,
    WRITE_UNIT_BYTES,
    room_bytes,
    row_bytes,
)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abc", 3),
        ("ü", 2),
        (True, 1),
        (0, 2),
        (-12, 2),
        (123, 3),
        (frozenset({"ab", "ü"}), 4),
    ],
)
def test_a_row_has_the_bytes_of_its_names_and_values(
    value: str | int | frozenset[str], size: int
) -> None:
    assert row_bytes({"name": value}) == 4 + size


@pytest.mark.parametrize("size", [100, 800, 1200, 5000])
def test_reports_that_fit_cost_no_further_unit(size: int) -> None:
    row: Row = {"streams": size * "x"}
    room = room_bytes(row)
    units = -(-row_bytes(row) // WRITE_UNIT_BYTES)
    full = row | dict.fromkeys(REPORTS, "") | {"load": room * "y"}
    assert row_bytes(full) + SLACK_BYTES == units * WRITE_UNIT_BYTES
    assert room_bytes(full) == room


@pytest.mark.parametrize("free", [0, 1, SLACK_BYTES])
def test_a_full_unit_has_no_room(free: int) -> None:
    assert room_bytes({"streams": (WRITE_UNIT_BYTES - 7 - free) * "x"}) == 0

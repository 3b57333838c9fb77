"""Test the rows that tell all apps which streams each of them polls."""

from __future__ import annotations

import pytest

from kinesumer.errors import CorruptRowError
from kinesumer.model.rows import AppRow
from kinesumer.wire import app_rows
from tests.support.write_cases import APP, ARN, row_after, write_over


def test_an_app_row_is_replaced_only_as_it_was_read() -> None:
    stored = AppRow(APP, frozenset({ARN}), updated_at=1_700_000_000.123)
    first = row_after(None, app_rows.announce(APP, stored.streams, None, 1.7e9))
    later = app_rows.announce(APP, stored.streams, app_rows.read_app(first), 1.8e9)
    assert app_rows.read_app(row_after(first, later)).updated_at == 1.8e9
    assert not write_over(row_after(first, later), later).applied
    again = app_rows.announce(APP, stored.streams, None, stored.updated_at)
    assert app_rows.read_app(row_after(None, again)) == stored
    assert not write_over(first, again).applied


@pytest.mark.parametrize("lost", ["streams", "updated_at"])
def test_a_row_without_an_attribute_is_corrupt(lost: str) -> None:
    row = row_after(None, app_rows.announce(APP, frozenset({ARN}), None, 1.7e9))
    with pytest.raises(CorruptRowError, match=f"attribute {lost} is missing"):
        app_rows.read_app({key: row[key] for key in row.keys() - {lost}})

"""Test how checks fail, without ``assert``."""

from __future__ import annotations

import pytest

from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    expect,
    expect_equal,
    expect_error,
    registrar,
)


def test_a_false_condition_fails_with_its_text() -> None:
    expect(True, "never shown")
    with pytest.raises(CheckFailedError, match="no record arrived"):
        expect(False, "no record arrived")


def test_unequal_values_are_both_named_and_long_ones_are_cut() -> None:
    expect_equal([1], [1])
    with pytest.raises(CheckFailedError, match="shards: found 1, expected 2"):
        expect_equal(1, 2, "shards")
    with pytest.raises(CheckFailedError) as raised:
        expect_equal(b"x" * 500_000, b"")
    assert len(str(raised.value)) < MAX_ERROR_LETTERS + 100


def raise_in_block(error: Exception | None, text: str = "") -> None:
    with expect_error(ValueError, text):
        if error is not None:
            raise error


def test_an_error_is_expected_with_its_kind_and_text() -> None:
    raise_in_block(ValueError("stream orders"), "orders")
    with pytest.raises(CheckFailedError, match="no ValueError was raised"):
        raise_in_block(None)
    with pytest.raises(CheckFailedError, match="doesn't contain 'orders'"):
        raise_in_block(ValueError("stream clicks"), "orders")
    with pytest.raises(KeyError):
        raise_in_block(KeyError("an error of another kind"))


def test_a_check_is_named_as_its_function() -> None:
    checks: list[Check[[]]] = []

    @registrar(checks)(3)
    async def records_come_in_order() -> None:
        """Do nothing."""

    assert checks == [records_come_in_order]
    assert checks[0].name == "records come in order"
    assert checks[0].shards == 3

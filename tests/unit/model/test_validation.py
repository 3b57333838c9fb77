"""Test the checks of arguments that take several values."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kinesumer import RetryPolicy
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import is_async, require_list
from kinesumer.testing.handlers import simulate_handler


@pytest.mark.parametrize(
    "given", [["a", "b"], ("a", "b"), {"a": 1, "b": 2}, iter("ab")]
)
def test_values_of_iterables_are_accepted(given: Any) -> None:
    assert require_list("names", given) == ("a", "b")


@pytest.mark.parametrize("given", ["ab", b"ab", "", 7, None, ValueError])
def test_text_and_single_values_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"isn't a list: write names=\["):
        require_list("names", given)


def test_a_list_of_non_retryable_errors_works_like_a_tuple() -> None:
    assert RetryPolicy(non_retryable=[ValueError]).non_retryable == (ValueError,)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["ValueError", ValueError, ["ValueError"], [7]])
def test_errors_that_restart_a_client_are_a_list_of_types(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="restarts_after"):
        simulate_handler(plain, batch=False, restarts_after=given)


def plain(record: object) -> None: ...


async def asynchronous(record: object) -> None: ...


class Plain:
    def __call__(self, record: object) -> None: ...


class Asynchronous:
    async def __call__(self, record: object) -> None: ...

    async def method(self, record: object) -> None: ...


@pytest.mark.parametrize("function", [plain, partial(plain, 1), Plain(), print, dict])
def test_a_function_that_returns_a_value_is_not_async(function: Any) -> None:
    assert not is_async(function)


@pytest.mark.parametrize(
    "function",
    [
        asynchronous,
        partial(partial(asynchronous), 1),
        Asynchronous(),
        partial(Asynchronous()),
        Asynchronous().method,
        AsyncMock(),
    ],
)
def test_a_function_that_returns_a_coroutine_is_async(function: Any) -> None:
    assert is_async(function)

"""Test that functions are known as async in all forms in which they are given."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kinesumer.model.functions import is_async


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

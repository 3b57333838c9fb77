"""A check, and how it fails or is skipped.

The checks don't use ``assert``, since Python's option -O removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, ParamSpec

from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.runtime.text import shorten

P = ParamSpec("P")
AT_ONCE = 50  # the number of calls that a check of races or throttling makes at once


class CheckFailedError(Exception):
    """A check found something else than the library promises."""


class CheckSkippedError(Exception):
    """The check couldn't be made. The text says why."""


class Check(NamedTuple, Generic[P]):
    """A check of one property, with the number of shards that it uses."""

    name: str
    run: Callable[P, Awaitable[None]]
    # Every shard that exists at some time during the check, for the costs.
    shards: int


def registrar(
    checks: list[Check[P]],
) -> Callable[[int], Callable[[Callable[P, Awaitable[None]]], Check[P]]]:
    """Return a decorator that adds a function to a list of checks.

    The decorator's argument is the number of shards. The check's name is the function's
    name.
    """

    def check(shards: int) -> Callable[[Callable[P, Awaitable[None]]], Check[P]]:
        def add(run: Callable[P, Awaitable[None]]) -> Check[P]:
            name = getattr(run, "__name__", "").replace("_", " ")
            checks.append(Check(name, run, shards))
            return checks[-1]

        return add

    return check


def expect(holds: bool, otherwise: str) -> None:
    """Raise CheckFailedError with a text unless a condition holds."""
    if not holds:
        raise CheckFailedError(otherwise)


def expect_equal(found: object, expected: object, what: str = "") -> None:
    """Raise CheckFailedError unless two values are equal. ``what`` names the value."""
    if found != expected:
        subject = f"{what}: " if what else ""
        raise CheckFailedError(
            f"{subject}found {_short(found)}, expected {_short(expected)}"
        )


@contextmanager
def expect_error(kind: type[Exception], text: str = "") -> Iterator[None]:
    """Raise CheckFailedError unless the block raises an error that contains a text."""
    try:
        yield
    except kind as error:
        expect(text in str(error), f"the error {error} doesn't contain {text!r}")
    else:
        raise CheckFailedError(f"no {kind.__name__} was raised")


def _short(value: object) -> str:
    return shorten(repr(value), MAX_ERROR_LETTERS)

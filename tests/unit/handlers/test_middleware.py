"""Test the hooks around each call of a handler."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from kinesumer import Batch, Record
from kinesumer.handlers import Middleware, RetryPolicy
from kinesumer.handlers.handler import read_run_options
from kinesumer.handlers.handler_function import read_function, wrapped
from tests.support.handler_client import Runner
from tests.support.world import World, batch_of, hold, in_virtual_time


class Notes(Middleware):
    """Hooks that record their calls."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def before(self, item: Any) -> None:
        self.said.append(f"{self.name} before")

    def after(self, item: Any) -> None:
        self.said.append(f"{self.name} after")

    def on_error(self, item: Any, error: Exception) -> None:
        self.said.append(f"{self.name} {error!r}")


class Awaiting(Notes):
    """Asynchronous hooks that record their calls."""

    async def before(self, item: Any) -> None:  # type: ignore[override]
        super().before(item)

    async def after(self, item: Any) -> None:  # type: ignore[override]
        super().after(item)

    async def on_error(self, item: Any, error: Exception) -> None:  # type: ignore[override]
        super().on_error(item, error)


async def call(handler: Any, *hooks: Middleware) -> None:
    """Call a handler of records with its hooks."""
    made = wrapped(read_function(handler, False), hooks)
    found = made.call(batch_of(hold(), 1).records[0])
    if made.is_async:
        await found


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("kind", "is_async"), [(Notes, False), (Notes, True), (Awaiting, True)]
)
async def test_the_first_of_several_hooks_is_the_outermost(
    kind: type[Notes], *, is_async: bool, fails: bool
) -> None:
    said: list[str] = []

    def handle(_: Record) -> None:
        said.append("handler")
        if fails:
            raise ValueError("bad")

    async def handle_async(record: Record) -> None:
        handle(record)

    hooks = kind("outer", said), kind("inner", said)
    with pytest.raises(ValueError, match="bad") if fails else nullcontext():
        await call(handle_async if is_async else handle, *hooks)
    end = "ValueError('bad')" if fails else "after"
    expected = ["outer before", "inner before", "handler"]
    assert said == [*expected, f"inner {end}", f"outer {end}"]


@in_virtual_time
async def test_hooks_see_each_try_and_what_they_raise_is_a_failure(
    world: World,
) -> None:
    said: list[str] = []

    class Refusing(Notes):
        def after(self, item: Any) -> None:
            super().after(item)
            if said.count("a after") == 1:
                raise OSError("not yet")

    async def handle(batch: Batch) -> None:
        said.append(f"handler {len(batch)}")

    world.put("x", "y")
    retries = RetryPolicy(max_attempts=2)
    Runner(world, handle, middleware=[Refusing("a", said)], retries=retries)
    await world.until(lambda: said.count("a after") == 2)
    assert said == [
        "a before",
        "handler 2",
        "a after",
        "a OSError('not yet')",
        "a before",
        "handler 2",
        "a after",
    ]


def test_hooks_that_do_nothing_are_fine() -> None:
    def handle(_: Record) -> None: ...

    options = read_run_options(handle, batch=False, middleware=[Middleware()])
    assert options.function.call(None) is None

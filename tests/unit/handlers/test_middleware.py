"""Hooks around each call of a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.handlers import Middleware, RetryPolicy
from kinesumer.handlers.middleware import wrapped
from kinesumer.handlers.options import read_run_options
from kinesumer.handlers.signature import read_handler
from tests.support.world import World, batch_of, hold, in_virtual_time
from tests.unit.handlers.runner import Runner

if TYPE_CHECKING:
    from kinesumer import Batch, Record


class Notes(Middleware):
    """Writes down what it is told."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def before(self, item: Any) -> None:
        self.said.append(f"{self.name} before")

    def after(self, item: Any) -> None:
        self.said.append(f"{self.name} after")

    def on_error(self, item: Any, error: Exception) -> None:
        self.said.append(f"{self.name} {error!r}")


class Awaiting(Notes):
    """The same, but each hook has to be awaited."""

    async def before(self, item: Any) -> None:  # type: ignore[override]
        super().before(item)

    async def after(self, item: Any) -> None:  # type: ignore[override]
        super().after(item)

    async def on_error(self, item: Any, error: Exception) -> None:  # type: ignore[override]
        super().on_error(item, error)


async def call(handler: Any, *hooks: Middleware) -> None:
    """Call a handler of records with its hooks."""
    made = wrapped(read_handler(handler, False), hooks)
    found = made.call(batch_of(hold(), 1).records[0])
    if made.is_async:
        await found


@pytest.mark.parametrize("kind", [Notes, Awaiting])
async def test_the_first_of_several_is_the_outermost(kind: type[Notes]) -> None:
    said: list[str] = []

    async def handle(_: Record) -> None:
        said.append("handler")

    await call(handle, kind("outer", said), kind("inner", said))
    assert said == [
        "outer before",
        "inner before",
        "handler",
        "inner after",
        "outer after",
    ]


@pytest.mark.parametrize("kind", [Notes, Awaiting])
async def test_an_error_is_told_and_goes_on(kind: type[Notes]) -> None:
    said: list[str] = []

    async def handle(_: Record) -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await call(handle, kind("outer", said), kind("inner", said))
    assert said[2:] == ["inner ValueError('bad')", "outer ValueError('bad')"]


async def test_hooks_of_a_plain_function_run_where_it_runs() -> None:
    said: list[str] = []

    def handle(record: Record) -> None:
        said.append("handler")
        if len(said) > 3:
            raise ValueError("bad")

    await call(handle, Notes("a", said))
    with pytest.raises(ValueError, match="bad"):
        await call(handle, Notes("a", said))
    assert said == [
        "a before",
        "handler",
        "a after",
        "a before",
        "handler",
        "a ValueError('bad')",
    ]


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
    assert options.handler.call(None) is None

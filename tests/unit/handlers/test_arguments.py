"""Test the parameters and the hooks of handlers, and arguments of ``run()``."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import kinesumer
from kinesumer import Batch, Record
from kinesumer.dead_letters import DeadLetter
from kinesumer.errors import ConfigurationError
from kinesumer.handlers import Middleware, RetryPolicy
from kinesumer.handlers.handler import read_run_options
from kinesumer.handlers.handler_function import read_function, wrapped
from tests.support.handler_client import Runner
from tests.support.world import InMemory, World, batch_of, hold

if TYPE_CHECKING:
    import somewhere  # type: ignore[import-not-found]


async def of_record(record: Record) -> None: ...
async def of_batch(batch: Batch) -> None: ...
def plain(record: Record) -> None: ...
def plain_batch(batch: Batch) -> None: ...
async def with_more(record: Record, *, limit: int = 3) -> None: ...
async def by_package(batch: kinesumer.Batch) -> None: ...
async def by_unknown_package(batch: somewhere.models.Batch) -> None: ...
async def as_text(batch: Batch) -> None: ...
async def of_values(batch: Batch[dict[str, int]]) -> None: ...
async def nothing_said(record) -> None: ...  # type: ignore[no-untyped-def]
async def another_type(record: bytes) -> None: ...
async def no_argument() -> None: ...
async def only_keywords(*, record: Record) -> None: ...
async def two(limit: int, record: Record) -> None: ...
def generator(record: Record) -> Iterator[int]:
    yield 1


async def async_generator(record: Record) -> AsyncIterator[int]:
    yield 1


class Sink:
    async def method(self, batch: Batch) -> None: ...
    def plain_method(self, record: Record) -> None: ...


class Taker:
    async def __call__(self, batch: Batch) -> None: ...


def decorated(function: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def inner(*arguments: Any) -> None:
        await function(*arguments)

    return inner


READABLE = [
    (of_record, False, True),
    (of_batch, True, True),
    (plain, False, False),
    (plain_batch, True, False),
    (with_more, False, True),
    (functools.partial(with_more, limit=4), False, True),
    (functools.partial(two, 3), False, True),
    (by_package, True, True),
    (by_unknown_package, True, True),
    (as_text, True, True),
    (of_values, True, True),
    (Sink().method, True, True),
    (Sink().plain_method, False, False),
    (Taker(), True, True),
    (decorated(of_batch), True, True),
]


@pytest.mark.parametrize(("handler", "batches", "is_async"), READABLE)
def test_the_annotation_says_what_a_handler_takes(
    handler: Any, *, batches: bool, is_async: bool
) -> None:
    assert read_function(handler, None)[1:3] == (batches, is_async)


def test_a_type_known_by_another_name_is_looked_up() -> None:
    names: dict[str, Any] = {}
    code = (
        "from __future__ import annotations\n"
        "from kinesumer import Batch as Many, Record as One\n"
        "async def many(batch: Many) -> None: ...\n"
        "async def one(record: One) -> None: ...\n"
        "async def values(batch: Many[int]) -> None: ...\n"
    )
    exec(code, names)
    assert read_function(names["values"], None).takes_batches
    assert read_function(names["many"], None).takes_batches
    assert not read_function(names["one"], None).takes_batches


def test_an_annotation_that_was_evaluated_is_read_as_well() -> None:
    names: dict[str, Any] = {"Batch": Batch}
    exec("async def values(batch: Batch[int]) -> None: ...", names)
    assert read_function(names["values"], None).takes_batches


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("handler", [of_record, nothing_said, lambda item: None, print])
def test_an_argument_says_it_in_place_of_the_annotation(
    handler: Any, *, batch: bool
) -> None:
    assert read_function(handler, batch).takes_batches is batch


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (nothing_said, "nothing_said has no annotation"),
        (another_type, "another_type has the annotation 'bytes'"),
        (lambda item: None, "lambda> has no annotation"),
        (dict, "has no annotation|takes no argument"),
        (no_argument, "no_argument.*too many positional"),
        (only_keywords, "only_keywords.*with one record or batch"),
        (two, "two.*missing a required argument: 'record'"),
        (generator, "handler=.*generator.* is a generator, which does nothing"),
        (async_generator, "async_generator.* is a generator"),
        (None, "handler=None must be a function"),
        ("handle", "handler='handle' must be a function"),
    ],
)
def test_what_cannot_be_called_with_a_record_or_a_batch_is_refused(
    handler: Any, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_function(handler, None)


class AsyncHook(Middleware):
    async def after(self, item: object) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"on_failure": "dead-letter"}, "needs a target"),
        ({"dead_letters": "nowhere"}, "'nowhere' isn't a dead-letter target"),
        (
            {"dead_letters": "file:x", "on_failure": "stop-shard"},
            "has no effect with on_failure='stop-shard'",
        ),
        ({"middleware": [print]}, "must be a kinesumer.Middleware"),
        ({"middleware": Middleware()}, "isn't a list: write middleware="),
    ],
)
def test_arguments_that_cannot_work_are_refused(
    wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_run_options(of_record, **wrong)


def test_hooks_that_await_are_refused_where_the_handler_runs_in_a_thread() -> None:
    with pytest.raises(ConfigurationError, match=r"AsyncHook\.after is async, but"):
        read_run_options(plain, middleware=[AsyncHook()])
    read_run_options(of_record, middleware=[AsyncHook()])


async def keep(letter: DeadLetter) -> None: ...


def test_a_target_of_dead_letters_is_used_and_without_one_the_client_stops() -> None:
    assert read_run_options(of_record).on_failure == "stop-client"
    assert (
        read_run_options(of_record, dead_letters="file:x").on_failure == "dead-letter"
    )
    assert read_run_options(of_record, dead_letters=keep).on_failure == "dead-letter"
    assert (
        read_run_options(of_record, on_failure="stop-shard").on_failure == "stop-shard"
    )


# --- the client ---


async def test_manual_acks_are_refused_since_run_acks_by_itself(world: World) -> None:
    async with InMemory(world, commit="manual") as client:
        with pytest.raises(ConfigurationError, match="run\\(\\) acks records by"):
            await client.run("orders", of_record)


async def test_running_beside_an_iteration_is_refused(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
        with pytest.raises(ConfigurationError, match="was called before"):
            await client.run("orders", of_record)


async def test_leaving_before_the_start_ends_run(world: World) -> None:
    async with InMemory(world) as client:
        running = world.loop.create_task(client.run("orders", of_record))
        await asyncio.sleep(0.1)
        await client.leave()
        await running


@pytest.mark.parametrize("name", ["before", "after", "on_error"])
def test_a_hook_may_choose_the_names_of_its_parameters(name: str) -> None:
    """Type checkers refuse another name for a parameter that may be given by name."""
    _, *parameters = inspect.signature(getattr(Middleware, name)).parameters.values()
    assert {each.kind for each in parameters} == {inspect.Parameter.POSITIONAL_ONLY}


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

"""Test what handlers of an app depend on, and how often it is made and cleaned up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from kinesumer import App, Batch, ConfigurationError, Depends, Record

events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


async def open_pool() -> AsyncIterator[str]:
    events.append("open pool")
    yield "pool"
    events.append("close pool")


def connection(pool: Annotated[str, Depends(open_pool)]) -> Iterator[str]:
    events.append(f"connect to {pool}")
    try:
        yield "connection"
    except ValueError as error:
        events.append(f"roll back {error}")
        raise
    events.append("commit")


def key(record: Record) -> str:
    events.append("read key")
    return record.partition_key or ""


def name(key: Annotated[str, Depends(key, "call")]) -> str:
    return f"name of {key}"


Pool = Annotated[str, Depends(open_pool)]
Connection = Annotated[str, Depends(connection, scope="call")]
Key = Annotated[str, Depends(key, scope="call")]
Name = Annotated[str, Depends(name, scope="call")]


def app_of(function: Callable[..., Any], **options: Any) -> App:
    app = App("billing", streams=["orders"])
    app.handler(**options)(function)
    return app


async def test_a_dependency_of_the_process_is_opened_once_and_closed_at_the_end() -> (
    None
):
    async def handle(record: Record, pool: Pool) -> None:
        events.append(f"{record.data.decode()} with {pool}")

    async with app_of(handle).test() as test:
        assert events == ["open pool"]
        await test.feed("orders", b"one", b"two")
    assert events == ["open pool", "one with pool", "two with pool", "close pool"]


async def test_handlers_share_what_one_function_opens() -> None:
    app = App("billing")

    @app.handler("orders")
    async def on_order(record: Record, pool: Pool) -> None: ...

    @app.handler("payments")
    async def on_payment(record: Record, pool: Pool) -> None: ...

    async with app.test():
        assert events == ["open pool"]


async def test_a_dependency_of_a_call_is_made_and_cleaned_up_for_each_call() -> None:
    async def handle(record: Record, db: Connection) -> None:
        events.append(record.data.decode())

    async with app_of(handle).test() as test:
        await test.feed("orders", b"one", b"two")
    each = ["connect to pool", "{}", "commit"]
    calls = [text.format(data) for data in ("one", "two") for text in each]
    assert events == ["open pool", *calls, "close pool"]


async def test_a_call_in_a_thread_makes_its_dependencies_in_that_thread() -> None:
    threads = set()

    def connect() -> Iterator[int]:
        threads.add(threading.get_ident())
        yield 1
        threads.add(threading.get_ident())

    def handle(record: Record, db: Annotated[int, Depends(connect, "call")]) -> None:
        threads.add(threading.get_ident())

    handle.__annotations__["db"] = Annotated[int, Depends(connect, "call")]
    async with app_of(handle).test() as test:
        await test.feed("orders", b"one")
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_the_clean_up_of_a_call_sees_the_handlers_error() -> None:
    async def handle(record: Record, db: Connection) -> None:
        raise ValueError("no total")

    async with app_of(handle).test() as test:
        with pytest.raises(ValueError, match="no total"):
            await test.feed("orders", b"one")
    assert events[-2:] == ["roll back no total", "close pool"]


def swallowing() -> Iterator[None]:
    try:
        yield
    except ValueError:
        events.append("swallowed")


async def swallowing_async() -> AsyncIterator[None]:
    try:
        yield
    except ValueError:
        events.append("swallowed")


Swallowing = Annotated[None, Depends(swallowing, scope="call")]
SwallowingAsync = Annotated[None, Depends(swallowing_async, scope="call")]


async def fail(record: Record, it: Swallowing) -> None:
    raise ValueError("kept")


async def fail_async(record: Record, it: SwallowingAsync) -> None:
    raise ValueError("kept")


def fail_in_thread(record: Record, it: Swallowing) -> None:
    raise ValueError("kept")


@pytest.mark.parametrize("handler", [fail, fail_async, fail_in_thread])
async def test_a_clean_up_that_swallows_the_error_makes_no_success_of_it(
    handler: Callable[..., Any],
) -> None:
    async with app_of(handler).test() as test:
        with pytest.raises(ValueError, match="kept"):
            await test.feed("orders", b"one")
    assert events == ["swallowed"]


async def test_a_dependency_of_a_call_may_take_the_record_and_is_made_once_for_it() -> (
    None
):
    seen = []

    async def handle(record: Record, key: Key, name: Name) -> None:
        seen.append((key, name))

    async with app_of(handle).test() as test:
        await test.feed("orders", b"one", partition_key="ann")
    assert seen == [("ann", "name of ann")]
    assert events == ["read key"]


@asynccontextmanager
async def decorated_async() -> AsyncIterator[str]:
    yield "one"
    events.append("closed one")


@contextmanager
def decorated() -> Iterator[str]:
    yield "two"
    events.append("closed two")


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "three"


class Settings:
    """A class is called like a function."""


@pytest.mark.parametrize("scope", ["process", "call"])
async def test_functions_of_all_kinds_make_values(scope: Any) -> None:
    seen: list[Any] = []

    async def handle(
        record: Record, *, one: str, two: str, three: str, four: str
    ) -> None:
        seen.extend((one, two, three, type(four)))

    made = [decorated_async, decorated, coroutine, Settings]
    for parameter, function in zip(("one", "two", "three", "four"), made, strict=True):
        marked = Annotated[str, Depends(function, scope)]
        handle.__annotations__[parameter] = marked
    async with app_of(handle).test() as test:
        await test.feed("orders", b"one")
    assert seen == ["one", "two", "three", Settings]
    assert events == ["closed two", "closed one"]


async def test_a_handler_of_batches_has_dependencies_too() -> None:
    seen = []

    async def handle(batch: Batch, db: Connection) -> None:
        seen.append((len(batch), db))

    async with app_of(handle).test() as test:
        await test.feed("orders", b"one", b"two")
    assert seen == [(2, "connection")]


async def test_a_handler_without_dependencies_is_called_as_it_is() -> None:
    async def handle(record: Record, times: int = 1) -> None: ...

    async with app_of(handle)._opened() as handlers:
        [handler] = handlers.values()
    assert handler.function is handle


async def test_a_test_replaces_functions() -> None:
    seen = []

    async def handle(record: Record, db: Connection) -> None:
        seen.append(db)

    app = app_of(handle)
    async with app.test({connection: lambda: "fake"}) as test:
        await test.feed("orders", b"one")
    assert seen == ["fake"]
    assert events == []


# --- what is refused ---


async def plain(record: Record, db: str) -> None: ...


async def default(record: Record, db: Any = Depends(open_pool)) -> None:  # noqa: B008
    ...


async def first(pool: Pool, record: Record) -> None: ...


async def twice(
    record: Record, pool: Annotated[str, Depends(open_pool), Depends(open_pool)]
) -> None: ...


async def bare(record: Record, pool: Annotated[str, Depends]) -> None: ...


async def unknown(
    record: Record,
    pool: Annotated[str, Depends(missing)],  # noqa: F821
) -> None: ...


def thread(record: Record, it: SwallowingAsync) -> None: ...


async def of_process(
    record: Record, it: Annotated[str, Depends(key, scope="process")]
) -> None: ...


def needs_call(key: Key) -> str:
    return key


async def mixed(record: Record, it: Annotated[str, Depends(needs_call)]) -> None: ...


def itself(it: Annotated[str, Depends(lambda: "")]) -> str:
    return it


itself.__annotations__["it"] = Annotated[str, Depends(itself)]


async def circle(record: Record, it: Annotated[str, Depends(itself)]) -> None: ...


def needs_value(value: str) -> str:
    return value


async def without(record: Record, it: Annotated[str, Depends(needs_value)]) -> None: ...


async def positional(record: Record, pool: Pool, /) -> None: ...


REFUSED = {
    plain: "parameter db of handler plain has no value",
    default: r"Depends\(\) as its default.*Annotated\[…, Depends\(open_pool\)\]",
    first: "let the record or the batch be the first one",
    twice: "twice",
    bare: "without a function",
    unknown: "can't be evaluated.*import its names",
    thread: "runs in a thread, but its dependency swallowing_async is async",
    of_process: "only a call has: give its.*scope='call'",
    mixed: "needs_call lasts as long as the process, but needs key",
    circle: "needs itself.*itself → itself",
    without: "parameter value of dependency needs_value has no value",
    positional: "positional-only",
}


@pytest.mark.parametrize("handler", REFUSED, ids=lambda handler: handler.__name__)
async def test_a_dependency_that_cannot_be_made_is_refused(
    handler: Callable[..., Any],
) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED[handler]):
        async with app_of(handler).test():
            pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pool",), "must be a function"),
        ((open_pool, "request"), "'process' or 'call'"),
    ],
)
def test_a_dependency_takes_a_function_and_a_scope(arguments: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Depends(*arguments)

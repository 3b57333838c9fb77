"""Test how an app is declared, and what it gives to the client and to tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kinesumer import (
    App,
    Batch,
    ColumnBatch,
    ConfigurationError,
    DecodeError,
    Middleware,
    Record,
    Stream,
)
from kinesumer.testing import record


class Order(msgspec.Struct):
    total: int


async def handle(record: Record) -> None: ...


async def test_a_fed_record_is_decoded_and_passes_the_middleware() -> None:
    seen: list[Any] = []

    class Noting(Middleware):
        def before(self, item: Any) -> None:
            seen.append("before")

        async def after(self, item: Any) -> None:
            seen.append("after")

    app = App("billing", streams=["orders"], middleware=[Noting()])

    @app.handler("orders", decode=Order)
    async def on_order(record: Record[Order]) -> None:
        seen.append(record.value.total)

    async with app.test() as test:
        await test.feed("orders", b'{"total": 5}')
        with pytest.raises(DecodeError):
            await test.feed("orders", b"no JSON")
    assert seen == ["before", 5, "after"]


async def test_options_of_a_handler_take_precedence_over_those_of_the_app() -> None:
    seen: list[Any] = []
    app = App("billing", decode=Order)

    @app.handler("orders")
    def on_order(record: Record[Order]) -> None:
        seen.append(record.value)

    @app.handler("names", decode=lambda record: record.data.decode())
    def on_name(record: Record[str]) -> None:
        seen.append(record.value)

    async with app.test() as test:
        await test.feed("orders", b'{"total": 5}')
        await test.feed("names", b"ann")
    assert seen == [Order(5), "ann"]


async def test_fed_records_come_with_the_stream_and_the_key() -> None:
    seen = []
    app = App("billing")

    @app.handler("orders")
    async def on_order(record: Record) -> None:
        seen.append((record.stream, record.partition_key, record.fence.app))

    async with app.test() as test:
        await test.feed("orders", b"one", partition_key="ann")
        await test.feed("orders", record(b"two", partition_key=None, app="other"))
        with pytest.raises(ConfigurationError, match="isn't a record of stream orders"):
            await test.feed("orders", record(b"two", stream="payments"))
        with pytest.raises(ConfigurationError, match="must be bytes"):
            await test.feed("orders", "text")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="has no stream refunds"):
            await test.feed("refunds", b"one")
    assert seen == [("orders", "ann", "billing"), ("orders", None, "other")]


async def test_a_handler_of_batches_gets_what_is_fed_together() -> None:
    seen: list[Any] = []
    app = App("billing")

    @app.handler("orders")
    def on_orders(batch: Batch) -> None:
        seen.append([each.data for each in batch.records])

    @app.handler("columns")
    def on_columns(batch: ColumnBatch) -> None:
        seen.append(batch.data.to_pylist())

    async with app.test() as test:
        await test.feed("orders", b"one", b"two")
        await test.feed("orders")
        await test.feed("columns", b"three")
    assert seen == [[b"one", b"two"], [b"three"]]


async def test_the_lifespan_surrounds_all_calls_and_sets_the_state() -> None:
    seen = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, str]]:
        app.state.first = "set"
        yield {"second": "yielded"}
        seen.append("ended")

    app = App("billing", lifespan=lifespan)

    @app.handler("orders")
    async def on_order(record: Record) -> None:
        seen.extend((app.state.first, app.state.second))

    async with app.test() as test:
        await test.feed("orders", b"one")
    assert seen == ["set", "yielded", "ended"]


async def test_the_lifespan_ends_if_a_handler_is_wrong() -> None:
    ended = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.append(True)

    app = App("billing", lifespan=lifespan)
    app.handler("orders", concurrency=0)(handle)
    with pytest.raises(ConfigurationError, match="concurrency=0"):
        async with app.test():
            pass
    assert ended == [True]


ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/payments"


@pytest.mark.parametrize("wanted", [ARN, "payments", Stream(ARN)])
async def test_a_handler_names_a_stream_of_the_app_by_name_arn_or_itself(
    wanted: Any,
) -> None:
    app = App("billing", streams=["orders", ARN])
    app.handler(wanted)(handle)
    app.handler("orders")(handle)
    async with app._opened() as handlers:
        assert {*handlers} == {Stream("orders"), Stream(ARN)}


async def test_a_stream_keeps_the_options_that_the_app_gives_it() -> None:
    stream = Stream("orders", region="eu-west-1")
    app = App("billing", streams=[stream])
    app.handler("orders")(handle)
    async with app._opened() as handlers:
        assert [*handlers] == [stream]


async def test_one_function_may_handle_several_streams() -> None:
    app = App("billing")
    assert app.handler("orders", "payments")(handle) is handle
    async with app._opened() as handlers:
        assert [stream.name for stream in handlers] == ["orders", "payments"]


def test_a_client_of_the_app_has_its_arguments_unless_they_are_replaced() -> None:
    app = App("billing", table="states")
    assert (app.client().app, app.client().table) == ("billing", "states")
    other = app.client(app="audit", table="other", client_id="one")
    assert (other.app, other.table, other.client_id) == ("audit", "other", "one")


# --- what is refused ---


def with_orders() -> App:
    return App("billing", streams=["orders"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: App(""), "app='' is empty"),
        (lambda: App("a", table="b#c"), "table='b#c' contains '#'"),
        (lambda: App("a", region=1), "region=1 must be text"),  # type: ignore[arg-type]
        (lambda: App("a", config=None), "config=None must be a Config"),  # type: ignore[arg-type]
        (lambda: App("a", streams="orders"), r"streams=\[\.\.\.\]"),
        (lambda: App("a", streams=[]), "no stream to consume"),
        (lambda: App("a", lifespan=1), "lifespan=1 must be a function"),  # type: ignore[arg-type]
        (lambda: App("a", strat="LATEST"), "has no argument strat"),  # type: ignore[call-arg]
        (lambda: with_orders().handler("order"), r"no stream order \(it has: orders\)"),
        (lambda: App("a").handler(), "names no stream"),
        (lambda: with_orders().handler(handle), "without a function"),  # type: ignore[arg-type]
        (lambda: App("a").handler("orders")(1), "handler=1 must be a function"),  # type: ignore[type-var]
    ],
)
def test_a_wrong_declaration_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


def test_a_stream_has_one_handler() -> None:
    app = with_orders()
    app.handler("orders")(handle)
    with pytest.raises(ConfigurationError, match="stream orders has a handler"):
        app.handler("orders")


async def test_an_app_without_handlers_is_refused_when_it_runs() -> None:
    with pytest.raises(ConfigurationError, match="app billing has no handler"):
        await App("billing").run()
    app = App("billing", streams=["orders", "payments"])
    app.handler("orders")(handle)
    with pytest.raises(ConfigurationError, match=r"have no handler: payments; write"):
        await app.run()

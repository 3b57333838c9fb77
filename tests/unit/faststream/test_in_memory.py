"""Test the broker in memory, and what a test of an application sees of it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from faststream import FastStream, TestApp
from pydantic import ValidationError

from kinesumer.faststream import KinesisBroker, TestKinesisBroker
from tests.support.faststream_cases import ORDER, BrokerCases, Order


class TestInMemory(BrokerCases):
    def opened(self, broker: KinesisBroker) -> AbstractAsyncContextManager[Any]:
        return TestKinesisBroker(broker)


async def test_mocks_tell_how_handlers_and_publishers_were_called() -> None:
    broker = KinesisBroker("billing")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def on_order(order: Order) -> float:
        return order.total

    [invoices] = broker.publishers
    async with TestKinesisBroker(broker):
        await broker.publish(ORDER, "orders")
        on_order.mock.assert_called_once_with(ORDER)
        invoices.mock.assert_called_once_with(7.5)
        assert await broker.ping()


async def test_the_mock_of_a_publisher_of_batches_gets_the_batch() -> None:
    broker = KinesisBroker("billing")
    invoices = broker.publisher("invoices", batch=True)
    async with TestKinesisBroker(broker):
        await invoices.publish(["a", "b"])
        invoices.mock.assert_called_once_with(["a", "b"])
        assert await invoices.publish([]) == []


async def test_an_error_of_a_handler_is_raised_where_it_is_published() -> None:
    broker = KinesisBroker("billing")

    @broker.subscriber("orders")
    async def on_order(order: Order) -> None:
        raise ZeroDivisionError

    async with TestKinesisBroker(broker):
        with pytest.raises(ZeroDivisionError):
            await broker.publish(ORDER, "orders")
        with pytest.raises(ValidationError):
            await broker.publish({}, "orders")


async def test_records_of_a_stream_are_published_by_its_arn_too() -> None:
    broker = KinesisBroker("billing")

    @broker.subscriber("orders")
    async def on_order(body: str) -> None: ...

    async with TestKinesisBroker(broker):
        arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
        await broker.publish("x", arn)
        on_order.mock.assert_called_once_with("x")


async def test_an_application_runs_with_its_hooks() -> None:
    broker = KinesisBroker("billing")
    app = FastStream(broker)
    seen = []

    @broker.subscriber("orders")
    async def on_order(body: str) -> None:
        seen.append(body)

    @app.after_startup
    async def greet() -> None:
        await broker.publish("hello", "orders")

    async with TestKinesisBroker(broker), TestApp(app):
        assert seen == ["hello"]


async def test_several_brokers_share_their_streams() -> None:
    first, second = KinesisBroker("first"), KinesisBroker("second")

    @second.subscriber("orders")
    async def on_order(body: str) -> None: ...

    async with TestKinesisBroker(first, second) as (one, _):
        await one.publish("x", "orders")
        on_order.mock.assert_called_once_with("x")


async def test_a_put_returns_what_it_returns_with_aws() -> None:
    broker = KinesisBroker("billing")
    async with TestKinesisBroker(broker):
        place = await broker.publish("x", "orders")
        later = await broker.publish("x", "orders", no_confirm=True)
        [last] = await broker.publish_batch("x", stream="orders")
        numbers = [each.sequence_number for each in (place, await later, last)]
        assert numbers == sorted({*numbers})

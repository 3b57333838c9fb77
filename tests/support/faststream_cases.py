"""What FastStream promises of each broker: the cases run in memory and with AWS.

FastStream tests its own brokers in this way. A test that is not here is about one of
the two only.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import pytest
from faststream import BaseMiddleware, Context, Depends, Header
from pydantic import BaseModel

from kinesumer import Start
from kinesumer.faststream import (
    KinesisBatchMessage,
    KinesisBroker,
    KinesisMessage,
    KinesisPublisherRoute,
    KinesisResponse,
    KinesisRoute,
    KinesisRouter,
)
from tests.support.clock import PATIENCE_SECONDS
from tests.support.producers import QUICK

OLDEST = Start.TRIM_HORIZON


class Order(BaseModel):
    customer: str
    total: float


ORDER: dict[str, Any] = {"customer": "ann", "total": 7.5}


class Seen:
    """The values that handlers have got."""

    def __init__(self) -> None:
        self._values: asyncio.Queue[Any] = asyncio.Queue()

    def add(self, value: Any) -> None:
        self._values.put_nowait(value)

    async def take(self, count: int) -> list[Any]:
        """Return the next values."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await self._values.get() for _ in range(count)]


class BrokerCases:
    """Each test gets a broker, and opens it by ``opened()``."""

    # The streams of the tests.
    streams = ("orders", "orders-out", "refunds", "invoices", "answers")

    def broker(self, **options: Any) -> KinesisBroker:
        return KinesisBroker("billing", config=QUICK, logger=None, **options)

    def opened(self, broker: KinesisBroker) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    # --- consuming ------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            (ORDER, ORDER),
            (Order(customer="ann", total=7.5), ORDER),
            ("text", "text"),
            (b"\xff\xfe", b"\xff\xfe"),
            ([1, "two"], [1, "two"]),
            (None, b""),
        ],
    )
    async def test_a_handler_gets_what_is_published(
        self, message: Any, expected: Any
    ) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        async def on_order(body: Any) -> None:
            seen.add(body)

        async with self.opened(broker):
            await broker.publish(message, "orders")
            assert await seen.take(1) == [expected]

    async def test_bodies_are_validated_by_annotations(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        def on_order(order: Order) -> None:
            seen.add(order)

        @broker.subscriber("refunds", start=OLDEST)
        async def on_refund(customer: str, total: int) -> None:
            seen.add((customer, total))

        async with self.opened(broker):
            await broker.publish(ORDER, "orders")
            assert await seen.take(1) == [Order(**ORDER)]
            await broker.publish({"customer": "bob", "total": "3"}, "refunds")
            assert await seen.take(1) == [("bob", 3)]

    async def test_a_subscriber_has_several_streams(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", "refunds", start=OLDEST)
        async def on_any(body: str, message: KinesisMessage) -> None:
            seen.add((message.raw_message.stream, body))

        async with self.opened(broker):
            await broker.publish("a", "orders")
            await broker.publish("b", "refunds")
            assert {*await seen.take(2)} == {("orders", "a"), ("refunds", "b")}

    async def test_filters_choose_the_handler(self) -> None:
        seen, broker = Seen(), self.broker()
        subscriber = broker.subscriber("orders", start=OLDEST)

        @subscriber(filter=lambda message: message.content_type == "application/json")
        async def on_json(body: dict[str, Any]) -> None:
            seen.add(("json", body))

        @subscriber
        async def on_other(body: str) -> None:
            seen.add(("other", body))

        async with self.opened(broker):
            await broker.publish(ORDER, "orders", partition_key="one")
            await broker.publish("text", "orders", partition_key="one")
            assert await seen.take(2) == [("json", ORDER), ("other", "text")]

    async def test_headers_and_ids_travel_with_a_message(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        async def on_order(
            message: KinesisMessage,
            tenant: Annotated[str, Header()],
            key: Annotated[str, Context("message.raw_message.partition_key")],
        ) -> None:
            seen.add((tenant, key, message.correlation_id, message.message_id))

        async with self.opened(broker):
            await broker.publish(
                "x",
                "orders",
                headers={"tenant": "blau-grün", "message_id": "m1"},
                correlation_id="c1",
                partition_key="ann",
            )
            assert await seen.take(1) == [("blau-grün", "ann", "c1", "m1")]

    async def test_without_a_key_the_correlation_id_is_the_key(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        async def on_order(message: KinesisMessage) -> None:
            key, position = message.raw_message.partition_key, message.message_id
            seen.add((key, position == message.raw_message.position.text))

        async with self.opened(broker):
            await broker.publish("x", "orders", correlation_id="c1")
            assert await seen.take(1) == [("c1", True)]

    async def test_a_batch_is_one_message(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", batch=True, start=OLDEST)
        async def on_orders(orders: list[Order], message: KinesisBatchMessage) -> None:
            stored = len(message.raw_message.records)
            assert stored == len(message.batch_headers)
            for order in orders:
                seen.add(order.customer)

        async with self.opened(broker):
            orders = [{**ORDER, "customer": name} for name in ("ann", "bob", "cid")]
            await broker.publish_batch(*orders, stream="orders", partition_key="one")
            assert await seen.take(3) == ["ann", "bob", "cid"]

    async def test_dependencies_and_middlewares_surround_a_call(self) -> None:
        seen = Seen()

        class Noting(BaseMiddleware):
            async def consume_scope(self, call_next: Any, msg: Any) -> Any:
                seen.add("before")
                result = await call_next(msg)
                seen.add("after")
                return result

            async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
                cmd.headers["tenant"] = "blue"
                return await call_next(cmd)

        def tenant(tenant: Annotated[str, Header()]) -> str:
            return tenant

        broker = self.broker(middlewares=[Noting])

        @broker.subscriber("orders", start=OLDEST)
        async def on_order(name: Annotated[str, Depends(tenant)]) -> None:
            seen.add(name)

        async with self.opened(broker):
            await broker.publish("x", "orders")
            assert await seen.take(3) == ["before", "blue", "after"]

    async def test_parsers_and_decoders_may_be_ones_own(self) -> None:
        seen = Seen()

        async def parser(record: Any, original: Any) -> Any:
            message = await original(record)
            message.headers["parsed"] = "yes"
            return message

        async def decoder(message: Any, original: Any) -> Any:
            return (message.headers["parsed"], await original(message))

        broker = self.broker(parser=parser)

        @broker.subscriber("orders", decoder=decoder, start=OLDEST)
        async def on_order(body: Annotated[Any, Context("message")]) -> None:
            seen.add(await body.decode())

        async with self.opened(broker):
            await broker.publish("x", "orders")
            assert await seen.take(1) == [("yes", "x")]

    # --- publishing -----------------------------------------------------------------

    async def test_what_a_handler_returns_is_published(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        @broker.publisher("invoices", partition_key="all", headers={"tenant": "blue"})
        async def on_order(total: float) -> Any:
            if total < 0:
                return KinesisResponse(-total, partition_key="refunds")
            return total

        @broker.subscriber("invoices", start=OLDEST)
        async def on_invoice(
            amount: float, message: KinesisMessage, tenant: Annotated[str, Header()]
        ) -> None:
            key = message.raw_message.partition_key
            seen.add((amount, key, tenant, message.correlation_id))

        async with self.opened(broker):
            await broker.publish(5, "orders", correlation_id="c1")
            assert await seen.take(1) == [(5, "all", "blue", "c1")]
            await broker.publish(-3, "orders", correlation_id="c2")
            assert await seen.take(1) == [(3, "refunds", "blue", "c2")]

    async def test_a_publisher_publishes_by_itself(self) -> None:
        seen, broker = Seen(), self.broker()
        one = broker.publisher("orders", headers={"tenant": "blue"}, reply_to="answers")
        many = broker.publisher("orders", partition_key="all", batch=True)

        @broker.subscriber("orders", no_reply=True, start=OLDEST)
        async def on_order(body: str, message: KinesisMessage) -> str:
            seen.add((body, message.headers.get("tenant"), message.reply_to))
            return "unheard"

        async with self.opened(broker):
            await one.publish("x", headers={"extra": 1})
            assert await seen.take(1) == [("x", "blue", "answers")]
            await many.publish(["y", "z"])
            assert await seen.take(2) == [("y", None, ""), ("z", None, "")]

    async def test_an_answer_goes_to_the_stream_that_the_message_names(self) -> None:
        seen, broker = Seen(), self.broker()

        @broker.subscriber("orders", start=OLDEST)
        async def on_order(body: str) -> str:
            return body.upper()

        @broker.subscriber("answers", start=OLDEST)
        async def on_answer(body: str, message: KinesisMessage) -> None:
            seen.add((body, message.correlation_id))

        async with self.opened(broker):
            options = {"reply_to": "answers", "correlation_id": "c1"}
            await broker.publish("x", "orders", **options)  # type: ignore[arg-type]
            assert await seen.take(1) == [("X", "c1")]

    # --- routers --------------------------------------------------------------------

    async def test_routers_give_their_prefix_and_dependencies(self) -> None:
        seen, broker = Seen(), self.broker()
        inner = KinesisRouter(dependencies=[Depends(lambda: seen.add("inner"))])
        outer = KinesisRouter("or", dependencies=[Depends(lambda: seen.add("outer"))])

        @inner.subscriber("ders", start=OLDEST)
        @inner.publisher("ders-out")
        async def on_order(body: str) -> None:
            seen.add(body)

        outer.include_router(inner)
        broker.include_router(outer)
        [publisher] = broker.publishers
        assert publisher.stream == "orders-out"  # type: ignore[attr-defined]
        async with self.opened(broker):
            await broker.publish("x", "orders")
            assert await seen.take(3) == ["outer", "inner", "x"]

    async def test_routes_declare_handlers_without_decorators(self) -> None:
        seen = Seen()

        async def on_order(body: str) -> str:
            return body

        async def on_invoice(body: str, message: KinesisMessage) -> None:
            seen.add((body, message.raw_message.partition_key))

        route = KinesisPublisherRoute("invoices", partition_key="all")
        router = KinesisRouter(
            handlers=[
                KinesisRoute(on_order, "orders", publishers=[route], start=OLDEST),
                KinesisRoute(on_invoice, "invoices", start=OLDEST),
            ]
        )
        broker = self.broker(routers=[router])
        async with self.opened(broker):
            await broker.publish("x", "orders")
            assert await seen.take(1) == [("x", "all")]

"""Subscribers and publishers as decorators, as message broker frameworks have them.

    python app.py billing

The stream "orders" is read, and "invoices" is written.
"""

# docs: app
import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from kinesumer import Handler, Kinesumer, Producer, Record, Start

Subscriber = Callable[[Any], Awaitable[Any]]


class Broker:
    """Calls functions with the values of streams, and publishes what they return."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._producers: dict[str, Producer] = {}

    def subscriber(
        self, stream: str, decode: type, *, publish_to: str | None = None
    ) -> Callable[[Subscriber], Subscriber]:
        """Call the decorated function with each value of a stream."""
        if publish_to is not None:
            self._producers.setdefault(publish_to, Producer(publish_to))

        def register(function: Subscriber) -> Subscriber:
            async def handle(record: Record) -> None:
                answer = await function(record.value)
                if publish_to is not None and answer is not None:
                    await self._publish(publish_to, answer, record)

            self._handlers[stream] = Handler(handle, decode=decode, concurrency=100)
            return function

        return register

    async def _publish(self, stream: str, value: object, record: Record) -> None:
        """Put a value, and wait until Kinesis has stored it.

        The record is done only then, so no value is lost. A crash can repeat values.
        """
        put = await self._producers[stream].put(
            msgspec.json.encode(value), partition_key=record.partition_key or "none"
        )
        await put

    async def run(self, app: str) -> None:
        """Consume until SIGTERM."""
        async with AsyncExitStack() as stack:
            for producer in self._producers.values():
                await stack.enter_async_context(producer)
            client = Kinesumer(app, stop_signals=True)
            await stack.enter_async_context(client)
            await client.run(self._handlers, start=Start.TRIM_HORIZON)


class Order(msgspec.Struct):
    customer: str
    total: float


class Invoice(msgspec.Struct):
    customer: str
    amount: float


broker = Broker()


@broker.subscriber("orders", Order, publish_to="invoices")
async def invoice(order: Order) -> Invoice | None:
    if order.total == 0:
        return None
    return Invoice(order.customer, round(order.total * 1.19, 2))


if __name__ == "__main__":
    asyncio.run(broker.run(sys.argv[1]))
# docs: end

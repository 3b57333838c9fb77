"""Test what AsyncAPI's documents say of a broker."""

from __future__ import annotations

from typing import Any

from faststream import AsyncAPI, FastStream

from kinesumer import Stream
from kinesumer.faststream import KinesisBroker, KinesisRouter
from tests.support.faststream_cases import Order


def document(broker: KinesisBroker, version: Any = "3.0.0") -> dict[str, Any]:
    app = FastStream(broker, specification=AsyncAPI(schema_version=version))
    found: dict[str, Any] = app.schema.to_specification().to_jsonable()
    return found


def test_streams_are_channels_with_the_payloads_of_handlers() -> None:
    broker = KinesisBroker("billing", region="eu-west-1", description="Orders")

    @broker.subscriber("orders")
    @broker.publisher("totals")
    async def on_order(order: Order) -> float:
        """Charge an order."""
        return order.total

    found = document(broker)
    [server] = found["servers"].values()
    assert server["host"] == "kinesis.eu-west-1.amazonaws.com"
    assert (server["protocol"], server["description"]) == ("kinesis", "Orders")
    channel = found["channels"]["orders:OnOrder"]
    assert (channel["address"], channel["description"]) == (
        "orders",
        "Charge an order.",
    )
    actions = {name: each["action"] for name, each in found["operations"].items()}
    assert actions == {"orders:OnOrderSubscribe": "receive", "totals:Publisher": "send"}
    schemas = found["components"]["schemas"]
    assert schemas["Order"]["properties"]["total"]["type"] == "number"
    assert schemas["totals:Publisher:Message:Payload"]["type"] == "number"


def test_each_stream_of_a_subscriber_is_a_channel() -> None:
    broker, router = KinesisBroker("billing"), KinesisRouter("eu-")
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/refunds"

    @router.subscriber("orders", Stream(arn), title="Incoming", description="All")
    async def on_any(order: Order) -> None: ...

    router.publisher("totals", title="Outgoing", description="Sums", schema=float)
    router.publisher("hidden", include_in_schema=False)
    broker.include_router(router)
    found = document(broker)
    addresses = {name: each["address"] for name, each in found["channels"].items()}
    assert addresses == {
        "Incoming:eu-orders": "eu-orders",
        f"Incoming:{arn}".replace("/", "."): arn,
        "Outgoing": "eu-totals",
    }
    assert document(broker, "2.6.0")["servers"]["development"]["url"] == "kinesis"

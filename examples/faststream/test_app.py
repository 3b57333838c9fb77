"""Test the application without AWS, as a project of yours would."""

# docs: test
from app import broker, on_invoice, on_order

from kinesumer.faststream import TestKinesisBroker


async def test_an_order_becomes_an_invoice() -> None:
    order = {"customer": "ann", "total": 100}
    async with TestKinesisBroker(broker):
        await broker.publish(order, "orders")
        on_order.mock.assert_called_once_with(order)
        on_invoice.mock.assert_called_once_with({"customer": "ann", "amount": 119.0})


# docs: end

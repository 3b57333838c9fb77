"""From stream to stream: "orders" is read, and "invoices" is written.

kinesumer run app:app
"""

# docs: app
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from kinesumer import App, Depends, Producer, Record, Start


class Order(msgspec.Struct):
    customer: str
    total: float


class Invoice(msgspec.Struct):
    customer: str
    amount: float


async def open_invoices() -> AsyncIterator[Producer]:
    """Open one producer for the process, and send what waits at the end."""
    async with Producer("invoices") as producer:
        yield producer


Invoices = Annotated[Producer, Depends(open_invoices)]
app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders", decode=Order, concurrency=100)
async def on_order(record: Record[Order], invoices: Invoices) -> None:
    order = record.value
    if order.total == 0:
        return
    invoice = Invoice(order.customer, round(order.total * 1.19, 2))
    key = record.partition_key or "none"
    put = await invoices.put(msgspec.json.encode(invoice), partition_key=key)
    # The record is done when Kinesis has stored its invoice, so none is lost. A crash
    # can repeat some.
    await put


# docs: end

"""From stream to stream with FastStream: orders are read, and invoices are published.

faststream run app:app
"""

# docs: app
import os

from faststream import FastStream
from pydantic import BaseModel

from kinesumer.faststream import KinesisBroker, KinesisResponse


class Order(BaseModel):
    customer: str
    total: float


class Invoice(BaseModel):
    customer: str
    amount: float


letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
broker = KinesisBroker("billing")
app = FastStream(broker)


@broker.subscriber(
    "orders", start="TRIM_HORIZON", concurrency=10, dead_letters=f"file:{letters}"
)
@broker.publisher("invoices", schema=Invoice)
async def on_order(order: Order) -> KinesisResponse:
    """Publish the invoice of an order."""
    invoice = Invoice(customer=order.customer, amount=round(order.total * 1.19, 2))
    return KinesisResponse(invoice, partition_key=order.customer)


# docs: end


@broker.subscriber("invoices", start="TRIM_HORIZON")
async def on_invoice(invoice: Invoice) -> None:
    """Print an invoice."""
    print(f"{invoice.customer} pays {invoice.amount}", flush=True)

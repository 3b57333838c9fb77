"""Avro records with the header of the AWS Glue Schema Registry.

    kinesumer run app:app

The registry is that of GLUE_REGISTRY.
"""

# docs: app
import os
from dataclasses import dataclass

from kinesumer import App, Record, Start
from kinesumer.schemas import GlueDecoder

# What this program reads. Schemas of the registry may have more fields, and later ones
# may lack the coupon.
READER_SCHEMA = """
{"type": "record", "name": "Order", "fields": [
  {"name": "customer", "type": "string"},
  {"name": "total", "type": "double"},
  {"name": "coupon", "type": ["null", "string"], "default": null}
]}
"""


@dataclass
class Order:
    customer: str
    total: float
    coupon: str | None


registry = os.environ.get("GLUE_REGISTRY", "default-registry")
decode = GlueDecoder(type=Order, registry=registry, reader_schema=READER_SCHEMA)
app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders", decode=decode)
async def on_order(record: Record[Order]) -> None:
    order = record.value
    print(f"{order.customer} pays {order.total} (coupon: {order.coupon})", flush=True)


# docs: end

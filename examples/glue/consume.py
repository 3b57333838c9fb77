"""Avro records with the header of the AWS Glue Schema Registry.

    python consume.py billing orders shop

`shop` is the registry. The state store's table is that of KINESUMER_TABLE.
"""

# docs: consume
import asyncio
import sys
from dataclasses import dataclass

from kinesumer import Kinesumer, Record, Start
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


async def handle(record: Record[Order]) -> None:
    order = record.value
    print(f"{order.customer} pays {order.total} (coupon: {order.coupon})", flush=True)


async def consume(app: str, stream: str, registry: str) -> None:
    decode = GlueDecoder(type=Order, registry=registry, reader_schema=READER_SCHEMA)
    async with Kinesumer(app, stop_signals=True) as client:
        await client.run(stream, handle, decode=decode, start=Start.TRIM_HORIZON)


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:]))
# docs: end

"""A consumer of two streams, each with its own handler; bad records go to a file.

    python streams.py billing

The state store's table is that of KINESUMER_TABLE, the file that of DEAD_LETTERS.
"""

from __future__ import annotations

# docs: consume
import asyncio
import os
import sys

import msgspec

from kinesumer import Batch, Handler, Kinesumer, Record, RetryPolicy, Start


class Order(msgspec.Struct):
    customer: str
    total: int


class Payment(msgspec.Struct):
    customer: str
    amount: int


async def on_order(record: Record[Order]) -> None:
    order = record.value
    print(f"{order.customer} orders for {order.total}", flush=True)


def on_payments(batch: Batch[Payment]) -> None:
    for record in batch.records:
        print(f"{record.value.customer} pays {record.value.amount}", flush=True)


async def consume(app: str) -> None:
    letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
    async with Kinesumer(app, stop_signals=True) as client:
        await client.run(
            {
                "orders": on_order,
                "payments": Handler(on_payments, retries=RetryPolicy(max_attempts=2)),
            },
            decode={"orders": Order, "payments": Payment},
            start=Start.TRIM_HORIZON,
            dead_letters=f"file:{letters}",
        )


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1]))
# docs: end

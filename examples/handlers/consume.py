"""A consumer whose handler is called: bad records go to a file, the rest goes on.

    python consume.py billing orders

The state store's table is that of KINESUMER_TABLE, the file that of DEAD_LETTERS.
"""

from __future__ import annotations

# docs: consume
import asyncio
import json
import os
import sys
import time

from kinesumer import Kinesumer, Middleware, Record, RetryPolicy, Start


async def handle(record: Record) -> None:
    order = json.loads(record.data)
    await asyncio.sleep(0.01)  # a call to another service
    print(f"{order['customer']} pays {order['total']}", flush=True)


class Slow(Middleware):
    """Tells of records that take long."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    def before(self, record: Record) -> None:
        self._began[record.sequence_number] = time.monotonic()

    def after(self, record: Record) -> None:
        seconds = time.monotonic() - self._began.pop(record.sequence_number)
        if seconds > 1:
            print(f"{record.position.text} took {seconds:.1f} s", flush=True)

    def on_error(self, record: Record, error: Exception) -> None:
        del self._began[record.sequence_number]
        print(f"{record.partition_key} fails: {error!r}", flush=True)


async def consume(app: str, stream: str) -> None:
    letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
    async with Kinesumer(app, stop_signals=True) as client:
        await client.run(
            stream,
            handle,
            start=Start.TRIM_HORIZON,
            concurrency=10,
            retries=RetryPolicy(max_attempts=3, non_retryable=(json.JSONDecodeError,)),
            dead_letters=f"file:{letters}",
            middleware=[Slow()],
            traceparent="headers.traceparent",
        )


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2]))
# docs: end

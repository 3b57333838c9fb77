"""A consumer for containers and services.

    kinesumer run app:app

SIGTERM hands its shards over to the others and ends it with status 0.
"""

from __future__ import annotations

# docs: app
from kinesumer import App, Record, Start

app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders")
async def on_order(record: Record) -> None:
    print(record.shard_id, record.partition_key, record.data.decode(), flush=True)


# docs: end

"""A consumer for containers and services.

    KINESUMER_APP=billing KINESUMER_CLIENT_ID=one python consumer.py orders payments

SIGTERM hands its shards over to the others and ends it with status 0.
"""

from __future__ import annotations

import asyncio
import os
import sys

from kinesumer import Kinesumer, Record, Start


# docs: consumer
async def handle(record: Record) -> None:
    print(record.shard_id, record.partition_key, record.data.decode(), flush=True)


async def consume(streams: list[str]) -> None:
    async with Kinesumer(
        os.environ["KINESUMER_APP"],
        client_id=os.environ.get("KINESUMER_CLIENT_ID"),
        stop_signals=True,
    ) as client:
        await client.run(streams, handle, start=Start.TRIM_HORIZON)


# docs: end

if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1:]))

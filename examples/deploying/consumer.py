"""A consumer for containers and services.

    KINESUMER_APP=billing KINESUMER_CLIENT_ID=one python consumer.py orders payments

SIGTERM hands its shards over to the others and ends it with status 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from kinesumer import Kinesumer, Record, Start


# --8<-- [start:consumer]
async def handle(record: Record) -> None:
    print(record.shard_id, record.partition_key, record.data.decode(), flush=True)


async def consume(streams: list[str]) -> None:
    async with Kinesumer(
        os.environ["KINESUMER_APP"],
        table=os.environ.get("KINESUMER_TABLE", "kinesumer-state-store"),
        client_id=os.environ.get("KINESUMER_CLIENT_ID"),
    ) as client:
        loop, leave = asyncio.get_running_loop(), client.leave
        loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(leave()))
        await client.run(streams, handle, start=Start.TRIM_HORIZON)


# --8<-- [end:consumer]

if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1:]))

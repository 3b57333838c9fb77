"""Read every shard of a stream at a fixed pace, even if Kinesis throttles the reads.

    python -m benchmarks.fixed_pace_consumer STREAM PACE_SECONDS

The process runs until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

USER_AGENT = "benchmarks-fixed-pace"


async def read(
    client: Any, stream: str, shard_id: str, min_read_interval_seconds: float
) -> None:
    """Read a shard forever."""
    given = await client.get_shard_iterator(
        StreamName=stream, ShardId=shard_id, ShardIteratorType="LATEST"
    )
    iterator = given["ShardIterator"]
    clock = asyncio.get_running_loop().time
    due = clock()
    while True:
        with suppress(ClientError):
            page = await client.get_records(ShardIterator=iterator)
            iterator = page["NextShardIterator"]
        due = max(due + min_read_interval_seconds, clock())
        await asyncio.sleep(due - clock())


async def main() -> None:
    """Read all shards until standard input ends."""
    stream, pace = sys.argv[1], float(sys.argv[2])
    config = AioConfig(
        user_agent_extra=USER_AGENT,
        retries={"total_max_attempts": 1},
        max_pool_connections=100,
    )
    async with get_session().create_client("kinesis", config=config) as client:
        listed = await client.list_shards(StreamName=stream)
        reading = [
            asyncio.create_task(read(client, stream, shard["ShardId"], pace))
            for shard in listed["Shards"]
        ]
        await asyncio.to_thread(sys.stdin.read)
        for task in reading:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())

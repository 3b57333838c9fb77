"""A consumer that reads every shard at a fixed pace, whatever Kinesis refuses.

    python -m benchmarks.foreign STREAM PACE_SECONDS

It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

USER_AGENT = "benchmarks-foreign"


async def read(
    client: Any, stream: str, shard_id: str, min_read_interval_seconds: float
) -> None:
    """Read a shard for ever."""
    given = await client.get_shard_iterator(
        StreamName=stream, ShardId=shard_id, ShardIteratorType="LATEST"
    )
    iterator = given["ShardIterator"]
    while True:
        try:
            page = await client.get_records(ShardIterator=iterator)
        except ClientError:
            await asyncio.sleep(min_read_interval_seconds)
        else:
            iterator = page["NextShardIterator"]
            await asyncio.sleep(min_read_interval_seconds)


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

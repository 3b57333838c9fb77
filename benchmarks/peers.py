"""One consumer over HTTP, in a process of its own.

    python -m benchmarks.peers NAME RECORDS

NAME is kinesumer, aioboto3 or async-kinesis; AWS_ENDPOINT_URL_KINESIS says where to
read. Prints records per CPU second of this process, from the first record on. The peers
need an environment of their own: see ``benchmarks.consume``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from itertools import cycle
from typing import Any

SHARDS = 4
STREAM = f"canned-{SHARDS}"
MANY = "canned-64"
"""Enough shards that kinesumer's pace of reading one doesn't let it idle for long."""


async def plain_loop(records: int) -> float:
    """Read shard after shard with aioboto3, and touch every record."""
    import aioboto3

    count, began = 0, 0.0
    async with aioboto3.Session().client("kinesis") as client:
        shards = (await client.list_shards(StreamName=STREAM))["Shards"]
        iterators = {}
        for shard in shards:
            answer = await client.get_shard_iterator(
                StreamName=STREAM,
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )
            iterators[shard["ShardId"]] = answer["ShardIterator"]
        for shard_id in cycle(iterators):
            answer = await client.get_records(ShardIterator=iterators[shard_id])
            iterators[shard_id] = answer["NextShardIterator"]
            for _ in answer["Records"]:
                count += 1
                if count == records:
                    return count / (time.process_time() - began)
            if not began:  # the first page warms up
                count, began = 0, time.process_time()
    raise AssertionError


async def async_kinesis(records: int) -> float:
    """Iterate over async-kinesis' consumer, which parses nothing."""
    from kinesis import Consumer  # type: ignore[import-not-found,unused-ignore]
    from kinesis.processors import (  # type: ignore[import-not-found,unused-ignore]
        StringProcessor,
    )

    class Bytes(StringProcessor):  # type: ignore[misc,unused-ignore]
        def parse(self, data: Any) -> Any:
            yield data

    count, began = -records // 4, 0.0  # what was read ahead when the clock starts
    endpoint = os.environ["AWS_ENDPOINT_URL_KINESIS"]
    async with Consumer(
        STREAM,
        endpoint_url=endpoint,
        region_name="us-east-1",
        processor=Bytes(),
        sleep_time_no_records=0.01,
    ) as consumer:
        while True:
            async for _ in consumer:
                count += 1
                if not count:
                    began = time.process_time()
                if count == records:
                    return count / (time.process_time() - began)


async def kinesumer(records: int) -> float:
    """Iterate over kinesumer's records through its public interface."""
    from benchmarks.canned import drain, set_up_telemetry
    from kinesumer import Kinesumer, Start

    set_up_telemetry()
    async with Kinesumer(f"bench-{os.getpid()}", table="state") as client:
        stream = client.consume(MANY, start=Start.TRIM_HORIZON)
        spent = await drain(stream, records, skip=records // 4)
        return spent.per_cpu_second


CONSUMERS = {
    "kinesumer": kinesumer,
    "aioboto3": plain_loop,
    "async-kinesis": async_kinesis,
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    print(asyncio.run(CONSUMERS[sys.argv[1]](int(sys.argv[2]))))

"""Run one producer over HTTP in its own process.

    python -m benchmarks.produce_peers NAME RECORDS BYTES

NAME is kinesumer, kinesumer-aggregated, aioboto3 or async-kinesis.
AWS_ENDPOINT_URL_KINESIS is the server to put records to. Prints records per CPU second
of this process, without its start. The other libraries need their own environment: see
``benchmarks.consume``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = "canned-1"
KEYS = 1000
FULL_BATCH = 500
AT_ONCE = 4  # requests of the plain loop
WARM_UP = 5000


def records(count: int, size: int) -> Iterator[tuple[bytes, str]]:
    """Yield data and partition keys."""
    keys = [f"customer-{number}" for number in range(KEYS)]
    data = [os.urandom(size) for _ in range(KEYS)]
    for number in range(count):
        yield data[number % KEYS], keys[number % KEYS]


async def kinesumer(count: int, size: int, *, aggregate: bool) -> float:
    """Put records in a simple loop."""
    from kinesumer import Producer

    async with Producer(STREAM, aggregate=aggregate) as producer:
        speed = await simple_loop(producer, count, size)
        assert producer.counts.rows == count + WARM_UP
        return speed


async def simple_loop(producer: Any, count: int, size: int) -> float:
    """Put records one after the other. Return their number per CPU second."""
    for data, key in records(WARM_UP, size):
        await producer.put(data, partition_key=key)
    await producer.flush()
    began = time.process_time()
    for data, key in records(count, size):
        await producer.put(data, partition_key=key)
    await producer.flush()
    return count / (time.process_time() - began)


async def plain_loop(count: int, size: int) -> float:
    """Put full requests with aioboto3, some of them at once, and check the answers."""
    import aioboto3

    async with aioboto3.Session().client("kinesis") as client:

        async def put(batch: Any) -> None:
            answer = await client.put_records(StreamName=STREAM, Records=batch)
            assert not answer["FailedRecordCount"]

        async def put_all(count: int) -> None:
            left = records(count, size)
            running: set[asyncio.Task[None]] = set()
            while batch := list(islice(left, FULL_BATCH)):
                entries = [{"Data": data, "PartitionKey": key} for data, key in batch]
                running.add(asyncio.create_task(put(entries)))
                if len(running) == AT_ONCE:
                    done, running = await asyncio.wait(
                        running, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
            await asyncio.gather(*running)

        await put_all(WARM_UP)
        began = time.process_time()
        await put_all(count)
        return count / (time.process_time() - began)


async def async_kinesis(count: int, size: int) -> float:
    """Put records with async-kinesis' producer, without limits of its own.

    Its aggregation for the KPL needs another package, which its own dependencies lack.
    """
    from kinesis import Producer  # type: ignore[import-not-found,unused-ignore]
    from kinesis.processors import (  # type: ignore[import-not-found,unused-ignore]
        StringProcessor,
    )

    class Bytes(StringProcessor):  # type: ignore[misc,unused-ignore]
        def serialize(self, item: Any) -> Any:
            return item

    async with Producer(
        STREAM,
        endpoint_url=os.environ["AWS_ENDPOINT_URL_KINESIS"],
        region_name="us-east-1",
        processor=Bytes(),
        put_rate_limit_per_shard=1_000_000,
        put_bandwidth_limit_per_shard=1_000_000,
        batch_size=FULL_BATCH,
        max_queue_size=100_000,
        buffer_time=0.1,
    ) as producer:
        return await simple_loop(producer, count, size)


async def measure(name: str, count: int, size: int) -> float:
    """Return the records per CPU second of a producer."""
    if name == "aioboto3":
        return await plain_loop(count, size)
    if name == "async-kinesis":
        return await async_kinesis(count, size)
    return await kinesumer(count, size, aggregate=name.endswith("-aggregated"))


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    print(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))

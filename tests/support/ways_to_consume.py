"""Consume a stream of numbered records in several ways, to their end."""

from __future__ import annotations

import asyncio
from typing import Any

from kinesumer import Config, Kinesumer, Record, blocking
from kinesumer.testing import EmbeddedAws

STREAM = "orders"
RECORDS = 20
FROM_THE_START: dict[str, Any] = {"start": "TRIM_HORIZON", "until": "now"}


def put_numbers(aws: EmbeddedAws) -> None:
    """Create the stream, with its records."""
    aws.create_stream(STREAM, 2)
    for number in range(RECORDS):
        aws.put(STREAM, b"%d" % number, f"key-{number % 5}")


async def loop() -> None:
    """Iterate over records."""
    async with Kinesumer("app") as client:
        async for _ in client.consume([STREAM], **FROM_THE_START):
            pass


async def batches() -> None:
    """Iterate over batches."""
    async with Kinesumer("app") as client:
        async for _ in client.consume([STREAM], **FROM_THE_START).batches():
            pass


async def acknowledged() -> None:
    """Acknowledge each record."""
    async with Kinesumer("app", config=Config(commit="manual")) as client:
        async for record in client.consume([STREAM], **FROM_THE_START):
            client.ack(record)


async def handler() -> None:
    """Handle records by a coroutine function."""

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)

    async with Kinesumer("app") as client:
        await client.run([STREAM], handle, **FROM_THE_START)


async def handler_in_threads() -> None:
    """Handle records by a plain function, in threads."""

    def handle(record: Record) -> None:
        pass

    async with Kinesumer("app") as client:
        await client.run([STREAM], handle, concurrency=3, **FROM_THE_START)


async def in_a_thread() -> None:
    """Iterate by the blocking client, in a thread."""

    def consume() -> None:
        with blocking.Kinesumer("app") as client:
            for _ in client.consume([STREAM], **FROM_THE_START):
                pass

    await asyncio.to_thread(consume)

"""Test that all records arrive over a slow link."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws import kinesis
from kinesumer.core import congestion
from kinesumer.testing import UNTHROTTLED, EmbeddedAws

RECORDS = 900
PIECE_BYTES = 4096


@asynccontextmanager
async def slow_link(port: int, bytes_per_second: float) -> AsyncIterator[int]:
    """Forward a port. The responses of all connections share the bandwidth."""
    free_at = 0.0

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float
    ) -> None:
        nonlocal free_at
        with closing(writer):
            while piece := await reader.read(PIECE_BYTES):
                now = time.monotonic()
                free_at = max(free_at, now) + len(piece) / rate
                await asyncio.sleep(free_at - now)
                writer.write(piece)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)
        writer.transport.set_write_buffer_limits(high=0)
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            forward(reader, requests, 1e12),
            forward(answers, writer, bytes_per_second),
            return_exceptions=True,
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_all_arrives_over_a_link_that_carries_no_page_in_the_time_of_an_answer(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setattr(kinesis, "ANSWER_SECONDS", 0.6)
    environment.setattr(congestion, "QUICK_SECONDS", 0.06)
    environment.setattr(congestion, "SLOW_SECONDS", 0.2)
    async with (
        EmbeddedAws(limits=UNTHROTTLED) as aws,
        slow_link(aws.port, bytes_per_second=600_000) as port,  # a page has 400 kB
    ):
        for name, value in aws.environment().items():
            environment.setenv(name, value)
        environment.setenv("AWS_ENDPOINT_URL_KINESIS", f"http://127.0.0.1:{port}")
        aws.create_table()
        aws.create_stream("orders", shards=3)
        for number in range(RECORDS):
            aws.put("orders", b"x" * 1000, f"{number}")
        config = Config(unreachable_after_seconds=2.0)
        received = 0
        async with (
            asyncio.timeout(60),
            Kinesumer("app", table="kinesumer-state-store", config=config) as client,
        ):
            async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
                received += 1
                if received == RECORDS:
                    break
    assert "can't read" not in caplog.text

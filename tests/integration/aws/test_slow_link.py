"""A client and a Kinesis with a slow link between them: all records arrive."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.aws import kinesis
from kinesumer.aws.session import ClientFactory
from kinesumer.config import Config
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.core import congestion
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.testing.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARDS = 3
RECORDS = 600
DATA = b"x" * 1000


class SlowKinesis:
    """A stream of some shards behind a link of limited bandwidth, which all share."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writer.transport.set_write_buffer_limits(high=0)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
                asked = await reader.readexactly(int(fields["content-length"]))
                operation = fields["x-amz-target"].partition(".")[2]
                answer = getattr(self, f"_{operation}")(json.loads(asked))
                body = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n"
                    b"content-type: application/x-amz-json-1.1\r\n\r\n" % len(body)
                )
                await self._send(body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    async def _send(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        for at in range(0, len(body), 4096):
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + 4096 / self._rate
            await asyncio.sleep(self._free_at - now)
            writer.write(body[at : at + 4096])
            await writer.drain()

    def _describestreamsummary(self, _: dict[str, Any]) -> object:
        summary = {
            "StreamName": "orders",
            "StreamARN": ARN,
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": 1.7e9,
            "EnhancedMonitoring": [],
            "OpenShardCount": SHARDS,
        }
        return {"StreamDescriptionSummary": summary}

    def _listshards(self, _: dict[str, Any]) -> object:
        edges = [number * HASH_KEYS // SHARDS for number in range(SHARDS + 1)]
        return {
            "Shards": [
                {
                    "ShardId": f"shardId-{number:012}",
                    "HashKeyRange": {
                        "StartingHashKey": str(edges[number]),
                        "EndingHashKey": str(edges[number + 1] - 1),
                    },
                    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
                }
                for number in range(SHARDS)
            ]
        }

    def _getsharditerator(self, asked: dict[str, Any]) -> object:
        after = asked.get("StartingSequenceNumber")
        return {"ShardIterator": "0" if after is None else after.removeprefix("49")}

    def _getrecords(self, asked: dict[str, Any]) -> object:
        first = int(asked["ShardIterator"])
        stop = min(RECORDS, first + asked["Limit"])
        data = base64.b64encode(DATA).decode()
        records = [
            {
                "SequenceNumber": f"49{number + 1:054}",
                "ApproximateArrivalTimestamp": 1.7e9,
                "Data": data,
                "PartitionKey": "key",
            }
            for number in range(first, stop)
        ]
        behind = 0 if stop == RECORDS else 60_000
        return {
            "Records": records,
            "NextShardIterator": str(stop),
            "MillisBehindLatest": behind,
        }


async def test_all_arrives_over_a_link_that_carries_no_page_in_the_time_of_an_answer(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setattr(kinesis, "ANSWER_SECONDS", 0.6)
    environment.setattr(congestion, "QUICK_SECONDS", 0.06)
    environment.setattr(congestion, "SLOW_SECONDS", 0.2)
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    service = SlowKinesis(bytes_per_second=600_000)  # a page has 900,000
    async with service.running(), ClientFactory() as clients:
        environment.setenv("AWS_ENDPOINT_URL", service.url)
        clock, ids = SystemClock(), iter(map(str, range(1000)))
        context = ClientContext(
            app="app",
            client_id="one",
            config=Config(unreachable_after_seconds=2.0),
            store=MemoryStore(clock),
            clock=clock,
            random=Random(1),
            new_id=lambda: next(ids),
            failure_log=FailureLog(clock),
        )
        delivery = RecordDelivery(clock, acks_by_asking=True)
        group = GroupConsumer(
            context,
            lambda stream: kinesis.open_source(clients, stream),
            HeartbeatTask(context),
            delivery,
        )
        received, degraded = 0, False

        async def start() -> None:
            await group.start("orders", Start.TRIM_HORIZON)

        async with asyncio.timeout(60):
            async for _ in Records(delivery, start):
                received += 1
                degraded = degraded or group._reachability._is_degraded
                if received == SHARDS * RECORDS:
                    break
        await group.stop(wait_for_user=False)
    assert not degraded

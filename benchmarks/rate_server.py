"""Imitate Kinesis over HTTP, with shards that receive records at a constant rate.

    python -m benchmarks.rate_server LATENCY_SECONDS RATE BYTES AGE_SECONDS

Prints its URL, and serves until its standard input ends. A stream's name ends with a
dash and its number of shards. When the server starts, each shard has received RATE
records a second for AGE_SECONDS; a RATE of 0 means no records. The server stores
nothing, since it computes each record from its number.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from base64 import b64encode

from aiohttp import web

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import serve

FIRST = 10**40
PAGE = 10_000


class RateServer(Canned):
    """Answers the calls of a Spark query's driver and tasks."""

    def __init__(self, latency: float, rate: float, size: int, age: float) -> None:
        super().__init__(b"")
        self._latency, self._rate = latency, rate
        self._began = time.time() - age
        self._data = b64encode(b"x" * size).decode()
        self.calls = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request after the latency."""
        self.calls += 1
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        given = json.loads(await request.read() or b"{}")
        await asyncio.sleep(self._latency)
        answer = getattr(self, f"_{operation}")(given)
        return web.Response(body=json.dumps(answer).encode(), content_type=JSON)

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        match given["ShardIteratorType"]:
            case "AFTER_SEQUENCE_NUMBER":
                number = int(given["StartingSequenceNumber"]) - FIRST + 1
            case "AT_TIMESTAMP":
                since = float(given["Timestamp"]) - self._began
                number = max(0, math.ceil(since * self._rate))
            case _:
                number = 0
        return {"ShardIterator": f"it-{min(number, self._count())}"}

    def _count(self) -> int:
        return int((time.time() - self._began) * self._rate)

    def _GetRecords(self, given: dict[str, str]) -> object:
        begin = int(given["ShardIterator"].removeprefix("it-"))
        there = self._count()
        end = min(there, begin + int(given.get("Limit", PAGE)))
        behind = 0 if end >= there else time.time() - self._arrived(max(0, end - 1))
        return {
            "Records": [
                {
                    "SequenceNumber": str(FIRST + number),
                    "ApproximateArrivalTimestamp": round(self._arrived(number), 3),
                    "Data": self._data,
                    "PartitionKey": "key",
                }
                for number in range(begin, end)
            ],
            "NextShardIterator": f"it-{max(begin, end)}",
            "MillisBehindLatest": int(behind * 1000),
        }

    def _arrived(self, number: int) -> float:
        return self._began + number / self._rate


if __name__ == "__main__":
    latency, rate, size, age = sys.argv[1:]
    server = RateServer(float(latency), float(rate), int(size), float(age))
    asyncio.run(serve(server.handle))

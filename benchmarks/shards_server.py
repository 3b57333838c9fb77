"""Imitate Kinesis for thousands of shards, with little CPU time for each call.

    python -m benchmarks.shards_server RATE LATENCY_SECONDS

Prints its URL, and serves until its standard input ends. A stream's name ends with a
dash and its number of shards. Each shard receives RATE records of 100 bytes a second.
For each line of standard input, the server prints its calls so far as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict

import msgspec

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import Requests, listening
from kinesumer.testing.embedded_aws.gateway import from_json, to_json
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR

RECORD_BYTES = 100
DATA = b"eHh4" * (RECORD_BYTES // 3)
RECORD = (
    b'{"SequenceNumber":"%d","ApproximateArrivalTimestamp":%.3f,"Data":"%s",'
    b'"PartitionKey":"key"}'
)
FIRST = 10**40


class Calls(msgspec.Struct):
    """The calls that a server has answered."""

    by_second: dict[int, dict[str, int]]
    """For each second, counted from the first call, the number of each operation."""
    first_reads_seconds: list[float]
    """For each shard that was read, when its first read came, after the first call."""
    connections: int
    """The connections that are open now."""


class ShardsServer(Canned):
    """Answers the calls of consumers, and counts them."""

    def __init__(self, rate: float, latency_seconds: float) -> None:
        super().__init__(b"")
        self.latency_seconds = latency_seconds
        self.connections = 0
        self._rate = rate
        self._began = time.time()
        self._first_call: float | None = None
        self._calls: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._first_reads: dict[str, float] = {}

    def calls(self) -> Calls:
        """Return the calls so far."""
        seconds = {second: dict(calls) for second, calls in self._calls.items()}
        return Calls(seconds, list(self._first_reads.values()), self.connections)

    def answer(self, operation: str, body: bytes) -> bytes:
        """Return the answer to one request."""
        now = time.monotonic()
        if self._first_call is None:
            self._first_call = now
        self._calls[int(now - self._first_call)][operation] += 1
        given = msgspec.json.decode(body or b"{}")
        if operation == "GetRecords":
            shard_id, _, number = given["ShardIterator"].partition("/")
            self._first_reads.setdefault(shard_id, now - self._first_call)
            return self._records(shard_id, int(number))
        return msgspec.json.encode(getattr(self, f"_{operation}")(given))

    def _records(self, shard_id: str, begin: int) -> bytes:
        # The shards' records arrive evenly within the time between two of a shard's.
        phase = int(shard_id[-4:]) / 10_000
        since = time.time() - self._began
        end = max(begin, int(since * self._rate + phase))
        records = b",".join(
            RECORD
            % (FIRST + number, self._began + (number - phase + 1) / self._rate, DATA)
            for number in range(begin, end)
        )
        return (
            b'{"Records":[%s],"NextShardIterator":"%s/%0200d","MillisBehindLatest":0}'
            % (records, shard_id.encode(), end)
        )

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        number = 0
        if given["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            number = int(given["StartingSequenceNumber"]) - FIRST + 1
        return {"ShardIterator": f"{given['ShardId']}/{number:0200}"}


class ServerConnection(Requests):
    """Answers the requests of one connection after the latency."""

    def __init__(self, server: ShardsServer) -> None:
        super().__init__()
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        super().connection_made(transport)
        self._server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._server.connections -= 1

    def handle(self, operation: str, head: bytes, body: bytes) -> None:
        """Answer a request in its own format."""
        content_type = JSON
        if CBOR.encode() in head:
            content_type, body = CBOR, to_json(body)
        answer = self._server.answer(operation, body)
        if content_type == CBOR:
            answer = from_json(answer)
        wait = self._server.latency_seconds
        asyncio.get_running_loop().call_later(wait, self.send, content_type, answer)


async def main(rate: float, latency_seconds: float) -> None:
    """Serve on a free port until standard input ends."""
    server = ShardsServer(rate, latency_seconds)
    async with listening(lambda: ServerConnection(server)):
        while await asyncio.to_thread(sys.stdin.readline):
            print(msgspec.json.encode(server.calls()).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*map(float, sys.argv[1:])))

"""Imitate Kinesis for thousands of shards, with little CPU time for each call.

    python -m benchmarks.shards_server RATE LATENCY_SECONDS

Prints its URL, and serves until its standard input ends. A stream's name ends with a
dash and its number of shards. Each shard receives RATE records of 100 bytes a second.
For each line of standard input, the server prints its calls so far as JSON.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter, defaultdict

import msgspec

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import listening
from kinesumer.testing.embedded_aws.gateway import from_json, to_json
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR

RECORD_BYTES = 100
DATA = b"eHh4" * (RECORD_BYTES // 3)
RECORD = (
    b'{"SequenceNumber":"%d","ApproximateArrivalTimestamp":%.3f,"Data":"%s",'
    b'"PartitionKey":"key"}'
)
FIRST = 10**40
_TARGET = re.compile(rb"\r\nx-amz-target: [^\r]*\.(\w+)", re.I)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.I)


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


class ServerConnection(asyncio.Protocol):
    """Receives the requests of one connection, one at a time."""

    def __init__(self, server: ShardsServer) -> None:
        self._server = server
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._server.connections -= 1

    def data_received(self, data: bytes) -> None:
        """Answer the request after the latency, when it is complete."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        target, length = _TARGET.search(head), _LENGTH.search(head)
        assert target is not None
        assert length is not None
        if len(body) < int(length[1]):
            return
        self._received = b""
        content_type = JSON
        if CBOR.encode() in head:
            content_type, body = CBOR, to_json(body)
        answer = self._server.answer(target[1].decode(), body)
        if content_type == CBOR:
            answer = from_json(answer)
        loop = asyncio.get_running_loop()
        wait = self._server.latency_seconds
        loop.call_later(wait, self._send, content_type.encode(), answer)

    def _send(self, content_type: bytes, answer: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s"
            % (content_type, len(answer), answer)
        )


async def main(rate: float, latency_seconds: float) -> None:
    """Serve on a free port until standard input ends."""
    server = ShardsServer(rate, latency_seconds)
    async with listening(lambda: ServerConnection(server)):
        while await asyncio.to_thread(sys.stdin.readline):
            print(msgspec.json.encode(server.calls()).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*map(float, sys.argv[1:])))

"""Imitate Kinesis over HTTP, with a backlog of prepared records in each shard.

    python -m benchmarks.backlog_server RECORDS BYTES [limits]

Prints its URL, and serves until its standard input ends. Any stream whose name ends in
``-8`` has eight open shards, with RECORDS records of BYTES each. The arrival times of a
shard's records are 1 ms apart, and end with the start of the server. With ``limits``, a
shard allows five reads and 2 MB a second, as on AWS. The server is a separate process,
so its CPU time and memory don't count as the reader's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from typing import Any

from aiohttp import web

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import serve

# The number of different payloads. Later records repeat them.
PAYLOADS = 10_000
PAGE_BYTES = 10 * 1024 * 1024
PER_SECOND = 1000
READS_PER_SECOND = 5
BYTES_PER_SECOND = 2_000_000
PAGES_KEPT = 400
PREFIX = "4966"
KEY_BYTES = 8


class Throttle:
    """Applies AWS's read limits to one shard."""

    def __init__(self) -> None:
        self.reads: list[float] = []
        self.free_at = 0.0

    def allows(self, now: float, size: int) -> bool:
        """Return whether a read of this size is allowed now, and count it if it is."""
        self.reads = [read for read in self.reads if read > now - 1]
        if len(self.reads) >= READS_PER_SECOND or now < self.free_at:
            return False
        self.reads.append(now)
        self.free_at = max(self.free_at, now - 1) + size / BYTES_PER_SECOND
        return True


class Backlog(Canned):
    """Answers the calls of readers. A shard iterator has the form SHARD/INDEX."""

    def __init__(self, records: int, size: int, limits: bool) -> None:
        self._records, self._size = records, size
        self._began = time.time() - records / PER_SECOND
        self._tails = [_tail(number, size) for number in range(PAYLOADS)]
        self._cached: dict[tuple[int, int], bytes] = {}
        self._limits = limits
        self._throttles: dict[str, Throttle] = {}
        self.throttled = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        given = json.loads(await request.read() or b"{}")
        if operation == "GetRecords":
            return self._get_records(given)
        answer = getattr(self, f"_{operation}")(given)
        return web.Response(body=json.dumps(answer).encode(), content_type=JSON)

    def _get_records(self, given: dict[str, Any]) -> web.Response:
        shard, _, text = given["ShardIterator"].rpartition("/")
        index = int(text)
        most = min(given.get("Limit", 10_000), PAGE_BYTES // (self._size + 10))
        count = min(most, self._records - index)
        if self._limits:
            throttle = self._throttles.setdefault(shard, Throttle())
            size = count * (self._size + KEY_BYTES)
            if not throttle.allows(time.monotonic(), size):
                self.throttled += 1
                body = b'{"__type":"ProvisionedThroughputExceededException"}'
                return web.Response(status=400, body=body, content_type=JSON)
        following = index + count
        behind = int(1000 * (time.time() - self._arrived(following)))
        left = following < self._records
        end = b'],"NextShardIterator":"%s","MillisBehindLatest":%d}' % (
            f"{shard}/{following}".encode(),
            behind if left else 0,
        )
        return web.Response(body=self._page(index, count) + end, content_type=JSON)

    def _page(self, index: int, count: int) -> bytes:  # type: ignore[override]
        key = (index, count)
        if key not in self._cached:
            if len(self._cached) >= PAGES_KEPT:
                self._cached.clear()
            self._cached[key] = b'{"Records":[%s' % b",".join(
                b'{"SequenceNumber":"%s%052d","ApproximateArrivalTimestamp":%.3f%s'
                % (
                    PREFIX.encode(),
                    number,
                    self._arrived(number),
                    self._tails[number % PAYLOADS],
                )
                for number in range(index, index + count)
            )
        return self._cached[key]

    def _arrived(self, index: int) -> float:
        return self._began + index / PER_SECOND

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        return {"ShardIterator": f"{given['ShardId']}/{self._start(given)}"}

    def _start(self, given: dict[str, Any]) -> int:
        match given["ShardIteratorType"]:
            case "TRIM_HORIZON":
                return 0
            case "LATEST":
                return self._records
            case "AT_TIMESTAMP":
                index = (float(given["Timestamp"]) - self._began) * PER_SECOND
                return min(self._records, max(0, int(index)))
        index = index_of(given["StartingSequenceNumber"])
        return index + int(given["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER")

    def _Throttled(self, given: object) -> object:
        return {"Throttled": self.throttled}


def number_of(index: int) -> str:
    """Return a record's sequence number from its index in the shard."""
    return f"{PREFIX}{index:052}"


def index_of(number: str) -> int:
    """Return a record's index in the shard from its sequence number."""
    return int(number.removeprefix(PREFIX))


def _tail(number: int, size: int) -> bytes:
    data = base64.b64encode(os.urandom(size))
    return b',"Data":"%s","PartitionKey":"user-%03d"}' % (data, number % 1000)


async def main() -> None:
    """Serve until standard input ends."""
    records, size = int(sys.argv[1]), int(sys.argv[2])
    backlog = Backlog(records, size, limits="limits" in sys.argv[3:])
    await serve(backlog.handle)


if __name__ == "__main__":
    asyncio.run(main())

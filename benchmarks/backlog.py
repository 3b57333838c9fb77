"""Serve a Kinesis over HTTP whose shards hold a backlog of prepared records.

    python -m benchmarks.backlog RECORDS BYTES [limits]

Prints its URL, and serves until its standard input ends. Any stream whose name ends in
``-8`` has eight open shards, with RECORDS records of BYTES each. They arrived at 1,000
a second, the last one as the server started. With ``limits`` a shard is read five times
and 2 MB a second, as on AWS. CPU time and memory are the server's, not the reader's.
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

from benchmarks.server import JSON, Canned
from benchmarks.serving import serve

PAYLOADS = 10_000
"""Number of different payloads; after these they repeat."""
PAGE_BYTES = 10 * 1024 * 1024
PER_SECOND = 1000
READS_PER_SECOND = 5
BYTES_PER_SECOND = 2_000_000
PAGES_KEPT = 400
PREFIX = "4966"
KEY_BYTES = 8


class Throttle:
    """Remaining read allowance of a shard."""

    def __init__(self) -> None:
        self.reads: list[float] = []
        self.free_at = 0.0

    def allows(self, now: float, size: int) -> bool:
        """Count a read of this many bytes, unless the limit rejects it."""
        self.reads = [read for read in self.reads if read > now - 1]
        if len(self.reads) >= READS_PER_SECOND or now < self.free_at:
            return False
        self.reads.append(now)
        self.free_at = max(self.free_at, now - 1) + size / BYTES_PER_SECOND
        return True


class Backlog(Canned):
    """Answers readers' calls. Iterators have the form SHARD/INDEX."""

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
        place = int(text)
        most = min(given.get("Limit", 10_000), PAGE_BYTES // (self._size + 10))
        count = min(most, self._records - place)
        if self._limits:
            throttle = self._throttles.setdefault(shard, Throttle())
            size = count * (self._size + KEY_BYTES)
            if not throttle.allows(time.monotonic(), size):
                self.throttled += 1
                body = b'{"__type":"ProvisionedThroughputExceededException"}'
                return web.Response(status=400, body=body, content_type=JSON)
        following = place + count
        behind = int(1000 * (time.time() - self._arrived(following)))
        left = following < self._records
        end = b'],"NextShardIterator":"%s","MillisBehindLatest":%d}' % (
            f"{shard}/{following}".encode(),
            behind if left else 0,
        )
        return web.Response(body=self._page(place, count) + end, content_type=JSON)

    def _page(self, place: int, count: int) -> bytes:  # type: ignore[override]
        key = (place, count)
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
                for number in range(place, place + count)
            )
        return self._cached[key]

    def _arrived(self, place: int) -> float:
        return self._began + place / PER_SECOND

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        return {"ShardIterator": f"{given['ShardId']}/{self._start(given)}"}

    def _start(self, given: dict[str, Any]) -> int:
        match given["ShardIteratorType"]:
            case "TRIM_HORIZON":
                return 0
            case "LATEST":
                return self._records
            case "AT_TIMESTAMP":
                place = (float(given["Timestamp"]) - self._began) * PER_SECOND
                return min(self._records, max(0, int(place)))
        place = place_of(given["StartingSequenceNumber"])
        return place + (given["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER")

    def _Throttled(self, given: object) -> object:
        return {"Throttled": self.throttled}


def number_of(place: int) -> str:
    """Return the sequence number of a shard's record, from 0."""
    return f"{PREFIX}{place:052}"


def place_of(number: str) -> int:
    """Return the index of a sequence number in its shard."""
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

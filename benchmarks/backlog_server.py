"""Imitate Kinesis over HTTP, with a backlog of records in each shard.

    python -m benchmarks.backlog_server RECORDS BYTES [limits]

Prints its URL, and serves until its standard input ends. Any stream whose name ends in
``-8`` has eight open shards of RECORDS records each. A record has BYTES on average, and
from half of that to one and a half. A shard's records arrived at random times, 1,000 in
a second on average, until the start of the server. Pages are JSON, or CBOR for a client
that asks for it. With ``limits``, a shard allows five reads and 2 MB a second, as on
AWS. The server is a separate process, so its CPU time and memory don't count as the
reader's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np
from aiohttp import web

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import serve
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.wire import cbor

# The number of different records. Later records repeat their data and keys.
DIFFERENT = 10_000
MAX_RECORDS = 10_000
PAGE_BYTES = 10 * 1024 * 1024
PER_SECOND = 1000
READS_PER_SECOND = 5
BYTES_PER_SECOND = 2_000_000
PREFIX = "4966"
KEY_BYTES = 8
DIGITS = 9  # the last digits of a sequence number, which differ between records


class Template:
    """Encoded records, each without its own sequence number and arrival time."""

    def __init__(self, records: list[bytes], number: bytes, arrival: bytes) -> None:
        # Each record is stored twice, so that any MAX_RECORDS of them are in one piece.
        text = b"".join(records + records)
        self._text = np.frombuffer(text, np.uint8)
        sizes = [len(record) for record in records]
        self._begins = np.concatenate([[0], np.cumsum(sizes + sizes)])
        numbers = [record.index(number) + len(number) for record in records]
        self._numbers = self._begins[:-1] + numbers * 2 - DIGITS
        arrivals = [record.index(arrival) for record in records]
        self._arrivals = self._begins[:-1] + arrivals * 2
        self._arrival_size = len(arrival)

    def page(self, first: int, numbers: Bytes, arrivals: Bytes) -> Bytes:
        """Return the records from an index, with these numbers and arrival times."""
        stop = first + len(numbers)
        begin = self._begins[first]
        page = self._text[begin : self._begins[stop]].copy()
        at = self._numbers[first:stop] - begin
        page[at[:, None] + np.arange(DIGITS)] = numbers
        at = self._arrivals[first:stop] - begin
        page[at[:, None] + np.arange(self._arrival_size)] = arrivals
        return page


Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def digits(numbers: np.ndarray[Any, Any], count: int) -> Bytes:
    """Return the last decimal digits of each number, as ASCII."""
    powers = 10 ** np.arange(count - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


class Backlog(Canned):
    """Answers the calls of readers. A shard iterator has the form SHARD/INDEX."""

    def __init__(self, records: int, size: int, limits: bool) -> None:
        self._records = records
        chance = random.Random(size)
        halves = [chance.randint(size // 2, size) for _ in range(DIFFERENT // 2)]
        sizes = [each for half in halves for each in (half, 2 * size - half)]
        chance.shuffle(sizes)
        data = [os.urandom(each) for each in sizes]
        keys = [f"user-{chance.randrange(1000)}" for _ in sizes]
        self._json = _json_template(data, keys)
        self._cbor = _cbor_template(data, keys)
        self._ends = np.cumsum(sizes + sizes)
        # The arrival times of all shards, in milliseconds. Each shard has its own gaps.
        gaps = np.random.default_rng(size).exponential(1000 / PER_SECOND, (8, records))
        arrivals = gaps.cumsum(axis=1)
        self._arrivals = (1000 * time.time() + arrivals - arrivals[:, -1:]).astype(int)
        self._limits = limits
        # For each shard, the reads and bytes that it still allows.
        self._calls = defaultdict[str, Bucket](lambda: Bucket(READS_PER_SECOND))
        self._bytes = defaultdict[str, Bucket](lambda: Bucket(BYTES_PER_SECOND))
        self.throttled = 0

    def _get_records(self, content_type: str, given: Any) -> web.Response:
        shard, _, text = given["ShardIterator"].rpartition("/")
        index = int(text)
        first = (index + 1237 * _number(shard)) % DIFFERENT
        before = self._ends[first - 1] if first else 0
        most = int(np.searchsorted(self._ends, before + PAGE_BYTES)) - first
        limit = given.get("Limit", MAX_RECORDS)
        count = min(most, limit, MAX_RECORDS, self._records - index)
        if self._limits:
            size = self._ends[first + count - 1] - before if count else 0
            if not self._allows(shard, int(size) + count * KEY_BYTES):
                self.throttled += 1
                body = b'{"__type":"ProvisionedThroughputExceededException"}'
                return web.Response(status=400, body=body, content_type=JSON)
        following = index + count
        behind = 0
        if following < self._records:
            arrived = int(self._arrivals[_number(shard), following])
            behind = max(0, int(1000 * time.time()) - arrived)
        rest = {
            "NextShardIterator": f"{shard}/{following}",
            "MillisBehindLatest": behind,
        }
        numbers = digits(np.arange(index, following), DIGITS)
        times = self._arrivals[_number(shard), index:following]
        if content_type != cbor.CONTENT_TYPE:
            # A number with 13 digits, and a point before the last three.
            arrivals = np.insert(digits(times, 13), 10, ord("."), axis=1)
            page = self._json.page(first, numbers, arrivals)[1:]  # without its comma
            end = b"]," + json.dumps(rest).encode()[1:]
            body = b"".join((b'{"Records":[', page.data, end))
            return web.Response(body=body, content_type=JSON)
        arrivals = times.astype(">i8").view(np.uint8).reshape(-1, 8)
        page = self._cbor.page(first, numbers, arrivals)
        # A map and an array without a length, which end with a break.
        parts = (b"\xbf", cbor.encode("Records"), b"\x9f", page.data, b"\xff")
        body = b"".join((*parts, cbor.encode(rest)[1:], b"\xff"))
        return web.Response(body=body, content_type=cbor.CONTENT_TYPE)

    def _allows(self, shard: str, size: int) -> bool:
        now, allowed = time.monotonic(), self._bytes[shard]
        if not allowed.holds(0, now) or not self._calls[shard].take(1, now):
            return False
        allowed.spend(size)
        return True

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        return {"ShardIterator": f"{given['ShardId']}/{self._start(given)}"}

    def _start(self, given: dict[str, Any]) -> int:
        match given["ShardIteratorType"]:
            case "TRIM_HORIZON":
                return 0
            case "LATEST":
                return self._records
            case "AT_TIMESTAMP":
                arrivals = self._arrivals[_number(given["ShardId"])]
                return int(np.searchsorted(arrivals, 1000 * float(given["Timestamp"])))
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


def _number(shard: str) -> int:
    """Return the number of a shard, or 0 for a shard without one."""
    text = shard.removeprefix("shardId-")
    return int(text) if text.isdigit() else 0


def _json_template(data: list[bytes], keys: list[str]) -> Template:
    number, arrival = number_of(0).encode(), b"1732531200.789"
    records = [
        b',{"SequenceNumber":"%s","ApproximateArrivalTimestamp":%s,"Data":"%s",'
        b'"PartitionKey":"%s"}'
        % (number, arrival, base64.b64encode(each), key.encode())
        for each, key in zip(data, keys, strict=True)
    ]
    return Template(records, number, arrival)


def _cbor_template(data: list[bytes], keys: list[str]) -> Template:
    number, arrived = number_of(0), cbor.Milliseconds(1_732_531_200_789)
    records = [
        cbor.encode(
            {
                "SequenceNumber": number,
                "ApproximateArrivalTimestamp": arrived,
                "Data": each,
                "PartitionKey": key,
            }
        )
        for each, key in zip(data, keys, strict=True)
    ]
    return Template(records, number.encode(), arrived.to_bytes(8))


if __name__ == "__main__":
    records, size = int(sys.argv[1]), int(sys.argv[2])
    backlog = Backlog(records, size, limits="limits" in sys.argv[3:])
    asyncio.run(serve(backlog.handle))

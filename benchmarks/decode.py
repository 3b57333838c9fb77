"""Measure the cost of decoding pages and KPL aggregates.

    python -m benchmarks.decode

Prints records per CPU second, and how many times faster that is than json and base64 of
the standard library in the same run. The standard library opens no aggregates.
"""

from __future__ import annotations

import base64
import json
import os
import time
from hashlib import md5
from typing import TYPE_CHECKING

from kinesumer.model.records import Fence, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.testing.embedded_aws.gateway import from_json
from kinesumer.wire.aggregation import MAGIC, OpenedRecords
from kinesumer.wire.cbor import compiled
from kinesumer.wire.records import decode_page
from tests.support.aggregates import field, open_records, varint

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 25
SOURCE = Source(Fence(ShardKey("arn:x:stream/s", "shard-0"), 1), 0, HASH_KEYS // 2)


def main() -> None:
    """Print one line per page layout."""
    print(f"{'page':>28} {'records/s':>12} {'ratio':>6}")
    for count, size in ((10_000, 100), (2_000, 1_000), (500, 10_000)):
        body = page([os.urandom(size) for _ in range(count)])
        report(f"{count:,} × {size:,} B", body, count)
        if compiled is not None:
            cbor = from_json(body)
            seconds = cheapest(lambda b=cbor: read(b))  # type: ignore[misc]
            print(f"{'the same in CBOR':>28} {count / seconds:12,.0f}")
    for distinct in (1, 100):
        body = page([aggregate(100, 100, distinct) for _ in range(100)])
        report(f"KPL 100 × 100 × 100 B, {distinct} keys", body, 10_000)
        records = decode_page(body).records
        seconds = cheapest(lambda r=records: open_records(r, SOURCE))  # type: ignore[misc]
        print(f"{'thereof opening':>28} {seconds * 1e4:9.1f} µs an aggregate")


def report(name: str, body: bytes, count: int) -> None:
    """Print the speed of decoding a page, and its ratio to the standard library."""
    assert len(read(body).records) == count
    ours, theirs = cheapest(lambda: read(body)), cheapest(lambda: plain(body))
    print(f"{name:>28} {count / ours:12,.0f} {theirs / ours:6.1f}")


def read(body: bytes) -> OpenedRecords:
    """Decode a response and open its aggregates, as a shard's reader does."""
    return open_records(decode_page(body).records, SOURCE)


def plain(body: bytes) -> list[tuple[str, str, bytes]]:
    """Decode a response with the standard library, as simply as possible."""
    return [
        (r["SequenceNumber"], r["PartitionKey"], base64.b64decode(r["Data"]))
        for r in json.loads(body)["Records"]
    ]


def cheapest(work: Callable[[], object]) -> float:
    """Do the work many times, and return the CPU seconds of the cheapest time."""
    return min(each(work))


def each(work: Callable[[], object]) -> list[float]:
    """Do the work many times, and return the CPU seconds of each time."""
    costs = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        costs.append(time.process_time() - begin)
    return costs


def page(payloads: list[bytes]) -> bytes:
    """Return a GetRecords response in the form in which Kinesis writes it."""
    records = [
        {
            "SequenceNumber": f"4966{place:052}",
            "ApproximateArrivalTimestamp": 1.732e9 + place / 1000,
            "Data": base64.b64encode(payload).decode(),
            "PartitionKey": f"user-{place % 1000}",
        }
        for place, payload in enumerate(payloads)
    ]
    answer = {
        "Records": records,
        "NextShardIterator": "A" * 200,
        "MillisBehindLatest": 0,
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def aggregate(count: int, size: int, distinct: int) -> bytes:
    """Return a KPL aggregate whose records belong to the benchmark's shard."""
    keys = [key for key in map("user-{}".format, range(9999)) if in_range(key)]
    message = b"".join(field(0x0A, key.encode()) for key in keys[:distinct])
    for place in range(count):
        inner = b"\x08" + varint(place % distinct) + field(0x1A, os.urandom(size))
        message += field(0x1A, inner)
    return MAGIC + message + md5(message).digest()


def in_range(key: str) -> bool:
    """Return whether Kinesis would route the key to the benchmark's shard."""
    return int.from_bytes(md5(key.encode()).digest()) <= SOURCE.last_hash


if __name__ == "__main__":
    main()

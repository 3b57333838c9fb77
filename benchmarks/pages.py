"""Prepare GetRecords responses for benchmarks."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from benchmarks.decode import aggregate, page


class Layout(NamedTuple):
    """Contents of a page."""

    name: str
    records: int  # User records per page
    size: int
    aggregated: bool = False
    is_json: bool = False

    def body(self) -> bytes:
        """Return a page with these contents."""
        if self.aggregated:
            some = [aggregate(100, self.size, 10) for _ in range(10)]
            return page(some * (self.records // 1000))
        if self.is_json:
            return page([document(place, self.size) for place in range(self.records)])
        return page([os.urandom(self.size) for _ in range(self.records)])


class Order(msgspec.Struct):
    """The type of the documents of a layout of JSON."""

    id: int
    customer: str
    total: float
    note: str


def document(number: int, size: int) -> bytes:
    """Return an order as JSON of this size."""
    order = Order(number, f"user-{number % 1000}", number / 7, "")
    order.note = "n" * (size - len(msgspec.json.encode(order)))
    return msgspec.json.encode(order)


def numbered(body: bytes, number: int) -> bytes:
    """Return a copy of a page, with the sequence numbers of a shard's n-th page."""
    following = b'"NextShardIterator":"%s"' % iterator(number + 1).encode()
    return (
        body.replace(b'"MillisBehindLatest":0', b'"MillisBehindLatest":60000')
        .replace(b'"NextShardIterator":"%s"' % (b"A" * 200), following)
        .replace(b'"SequenceNumber":"4966', b'"SequenceNumber":"4%03d' % number)
    )


def iterator(number: int) -> str:
    """Return the iterator of a shard's n-th page, from 0."""
    return f"{number:0200}"


LAYOUTS = {
    "100B": Layout("10,000 × 100 B", 10_000, 100),
    "1KB": Layout("2,000 × 1 KB", 2_000, 1_000),
    "10KB": Layout("500 × 10 KB", 500, 10_000),
    "1MB": Layout("10 × 1 MB", 10, 1_000_000),
    "KPL": Layout("KPL 100 × 100 × 100 B", 10_000, 100, aggregated=True),
}
# Only this layout has records that can be decoded.
JSON = Layout("10,000 × 100 B of JSON", 10_000, 100, is_json=True)

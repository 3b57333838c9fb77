"""Prepared GetRecords responses."""

from __future__ import annotations

import os
from typing import NamedTuple

from benchmarks.decode import aggregate, page


class Layout(NamedTuple):
    """Contents of a page."""

    name: str
    records: int
    """User records per page."""
    size: int
    aggregated: bool = False

    def body(self) -> bytes:
        """Return a page."""
        if self.aggregated:
            some = [aggregate(100, self.size, 10) for _ in range(10)]
            return page(some * (self.records // 1000))
        return page([os.urandom(self.size) for _ in range(self.records)])


def numbered(body: bytes, number: int) -> bytes:
    """Return a page as the shard's page of this number, counted from 0."""
    following = b'"NextShardIterator":"%s"' % iterator(number + 1).encode()
    return (
        body.replace(b'"MillisBehindLatest":0', b'"MillisBehindLatest":60000')
        .replace(b'"NextShardIterator":"%s"' % (b"A" * 200), following)
        .replace(b'"SequenceNumber":"4966', b'"SequenceNumber":"4%03d' % number)
    )


def iterator(number: int) -> str:
    """Return the iterator for a shard's page."""
    return f"{number:0200}"


LAYOUTS = {
    "100B": Layout("10,000 × 100 B", 10_000, 100),
    "1KB": Layout("2,000 × 1 KB", 2_000, 1_000),
    "10KB": Layout("500 × 10 KB", 500, 10_000),
    "KPL": Layout("KPL 100 × 100 × 100 B", 10_000, 100, aggregated=True),
}

"""Divide a batch's limits among the shards, so that they advance evenly in time.

If one shard were read ahead of the others, Spark's watermark would pass their unread
records. So a batch consists of the oldest records of all shards together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey

# AWS's write limits of a shard. Only short bursts exceed them.
MAX_ROWS_PER_SECOND = 1_000.0
MAX_BYTES_PER_SECOND = 1_000_000.0
PROVEN_ROWS = 500  # a longer burst shows that the server doesn't enforce the limits


class Limits(NamedTuple):
    """The maximum rows and bytes of a batch, which it may slightly exceed."""

    rows: int | None = None
    bytes: int | None = None

    @property
    def any(self) -> bool:
        """True if there is a limit."""
        return self.rows is not None or self.bytes is not None


class ProbedRecord(NamedTuple):
    """The position, arrival time and size of a record."""

    position: Position
    arrived_at: float
    size: int


class Sample(NamedTuple):
    """The next records of a shard. ``whole`` is true if the shard has no others."""

    records: Sequence[ProbedRecord]
    whole: bool

    def up_to(self, until: float) -> Sample:
        """Return a sample that ends before the first record after a time."""
        later = (i for i, r in enumerate(self.records) if r.arrived_at > until)
        count = next(later, len(self.records))
        return Sample(self.records[:count], self.whole or count < len(self.records))

    def as_before(self, until: float) -> Sample:
        """Return the sample with later arrival times replaced by ``until``."""
        records = [
            r._replace(arrived_at=min(r.arrived_at, until)) for r in self.records
        ]
        return Sample(records, self.whole)


class Share(NamedTuple):
    """A shard's part of a batch: some sampled records, or all records up to a time."""

    records: int
    until: float | None = None


def admit(
    samples: Mapping[ShardKey, Sample], limits: Limits, until: float = inf
) -> dict[ShardKey, Share]:
    """Return each shard's share of a batch. The batch has at least one record.

    A share may extend beyond the sampled records, but only to those that arrived up to
    ``until``.
    """
    # Until this time, the samples together contain all records of the shards.
    horizon = min(
        (s.records[-1].arrived_at for s in samples.values() if not s.whole), default=inf
    )
    records = sorted(
        (record.arrived_at, key, record)
        for key, sample in samples.items()
        for record in sample.records
    )
    counts = dict.fromkeys(samples, 0)
    rows: float = inf if limits.rows is None else limits.rows
    size: float = inf if limits.bytes is None else limits.bytes
    known = len(records)
    for index, (arrived_at, key, record) in enumerate(records):
        if arrived_at > horizon:
            known = index
            break
        rows, size = rows - 1, size - record.size
        # The first record is always admitted. Otherwise, a record that is larger than
        # the limit would stop the query.
        if index and (rows < 0 or size < 0):
            return {key: Share(count) for key, count in counts.items()}
        counts[key] += 1
    growing = [sample for sample in samples.values() if not sample.whole]
    if not growing:
        return {key: Share(count) for key, count in counts.items()}
    until = min(until, horizon + _seconds(growing, rows, size))
    more = Counter(key for arrived_at, key, _ in records[known:] if arrived_at <= until)
    shares = {}
    for key, sample in samples.items():
        count = counts[key] + more[key]
        reaches = not sample.whole and count == len(sample.records)
        shares[key] = Share(count, until if reaches else None)
    return shares


def _seconds(samples: Sequence[Sample], rows: float, size: float) -> float:
    """Estimate in what time this many further rows or bytes arrived in the shards."""
    rows_rate = bytes_rate = 0.0
    for sample in samples:
        span = sample.records[-1].arrived_at - sample.records[0].arrived_at
        span = max(span, 1e-6)
        count = len(sample.records)
        per_second = count / span
        bytes_per_second = sum(record.size for record in sample.records) / span
        if count <= PROVEN_ROWS or per_second <= 4 * MAX_ROWS_PER_SECOND:
            per_second = min(MAX_ROWS_PER_SECOND, per_second)
            bytes_per_second = min(MAX_BYTES_PER_SECOND, bytes_per_second)
        rows_rate += per_second
        bytes_rate += bytes_per_second
    return min(rows / rows_rate, size / max(bytes_rate, 1e-6))

"""Limits of a batch: the end in each shard, so that all shards advance evenly in time.

A shard ahead of the others would move a query's watermark past their records. So a
batch takes the oldest records of all shards.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.spark.planning.probe import ProbedRecord

MAX_ROWS_PER_SECOND = 1_000.0
MAX_BYTES_PER_SECOND = 1_000_000.0
"""The write limits of a shard: a faster burst doesn't last."""
PROVEN_ROWS = 500
"""So many records at once prove that the server has no limits."""


class Limits(NamedTuple):
    """Soft limits of a batch."""

    rows: int | None = None
    bytes: int | None = None

    @property
    def any(self) -> bool:
        """True if there is a limit."""
        return self.rows is not None or self.bytes is not None


class Sample(NamedTuple):
    """The next records of a shard; ``whole`` if no others follow."""

    records: Sequence[ProbedRecord]
    whole: bool

    def up_to(self, until: float) -> Sample:
        """Return the sample without records that arrived later than a time."""
        later = (i for i, found in enumerate(self.records) if found.arrived_at > until)
        count = next(later, len(self.records))
        return Sample(self.records[:count], self.whole or count < len(self.records))

    def as_before(self, until: float) -> Sample:
        """Return the sample with arrival times of ``until`` at most."""
        records = [
            f._replace(arrived_at=min(f.arrived_at, until)) for f in self.records
        ]
        return Sample(records, self.whole)


class Share(NamedTuple):
    """The part of a batch for a shard: records of its sample, or all up to a time."""

    records: int
    until: float | None = None


Key = tuple[str, str]


def admit(
    samples: Mapping[Key, Sample], limits: Limits, until: float = inf
) -> dict[Key, Share]:
    """Return each shard's share of a batch of at least one record.

    Records after the samples are admitted up to a time at most.
    """
    horizon = min(
        (s.records[-1].arrived_at for s in samples.values() if not s.whole),
        default=inf,
    )
    known = sorted(
        chain.from_iterable(
            ((found.arrived_at, key, found) for found in sample.records)
            for key, sample in samples.items()
        )
    )
    counts = dict.fromkeys(samples, 0)
    budget = _Budget(limits)
    for place, (arrived_at, key, found) in enumerate(known):
        if arrived_at > horizon:
            return _by_time(samples, counts, known[place:], budget, until)
        if not budget.take(1, found.size):
            return {key: Share(count) for key, count in counts.items()}
        counts[key] += 1
    return _by_time(samples, counts, [], budget, until)


class _Budget:
    def __init__(self, limits: Limits) -> None:
        self.rows: float = inf if limits.rows is None else limits.rows
        self.bytes: float = inf if limits.bytes is None else limits.bytes
        self._first = True

    def take(self, rows: int, size: int) -> bool:
        if not self._first and (rows > self.rows or size > self.bytes):
            return False
        self._first = False
        self.rows -= rows
        self.bytes -= size
        return True


def _by_time(
    samples: Mapping[Key, Sample],
    counts: Mapping[Key, int],
    known: Sequence[tuple[float, Key, ProbedRecord]],
    budget: _Budget,
    most: float,
) -> dict[Key, Share]:
    """Choose a time up to which the records about fill the rest of the budget."""
    going_on = {key: sample for key, sample in samples.items() if not sample.whole}
    if not going_on:
        return {key: Share(count) for key, count in counts.items()}
    horizon = min(sample.records[-1].arrived_at for sample in going_on.values())
    until = min(most, horizon + _seconds(list(going_on.values()), budget))
    more = Counter(key for arrived_at, key, _ in known if arrived_at <= until)
    shares = {}
    for key, sample in samples.items():
        count = counts[key] + more[key]
        reaches = not sample.whole and count == len(sample.records)
        shares[key] = Share(count, until if reaches else None)
    return shares


def _seconds(samples: Sequence[Sample], budget: _Budget) -> float:
    """Estimate in how many seconds records for the rest of the budget arrived."""
    rows = size = 0.0
    for sample in samples:
        first, last = sample.records[0], sample.records[-1]
        span = max(last.arrived_at - first.arrived_at, 1e-6)
        count, held = len(sample.records), sum(found.size for found in sample.records)
        if count > PROVEN_ROWS and count > 4 * MAX_ROWS_PER_SECOND * span:
            rows, size = rows + count / span, size + held / span
        else:
            rows += min(MAX_ROWS_PER_SECOND, count / span)
            size += min(MAX_BYTES_PER_SECOND, held / span)
    return min(budget.rows / rows, budget.bytes / max(size, 1e-6))

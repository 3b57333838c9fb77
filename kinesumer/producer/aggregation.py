"""Records packed into KPL aggregates, each of records that go to one shard."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kinesumer.producer.batching import PendingRecord
from kinesumer.wire.aggregation import hash_key_of
from kinesumer.wire.put_records import Aggregate, Entry, UserRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesumer.model.streams import Shard

AGGREGATE_BYTES = 100_000
"""A tenth of what a shard takes in a second: a larger one would come in bursts."""
OPEN_BYTES = 16 << 20
"""What may wait in aggregates that aren't full."""


class Aggregator:
    """Packs rows by the shard that their hash keys lie in.

    The shards are those of the task's start: an aggregate that is put just when its
    shard splits may hold records whose own key lies in the other child.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._firsts = sorted(s.first_hash for s in shards if not s.closed)
        self._open: dict[int, tuple[Entry, Aggregate]] = {}
        self._bytes = 0

    def pack(self, entries: Iterable[Entry]) -> Iterator[PendingRecord]:
        """Take rows over; yield the aggregates that are full."""
        for entry in entries:
            shard = self.shard_of(entry)
            if shard in self._open:
                size = self._open[shard][1].size
                if size + _upper_bound(entry) > AGGREGATE_BYTES:
                    yield self._close(shard)
            if shard not in self._open:
                self._open[shard] = entry, Aggregate()
            aggregate = self._open[shard][1]
            self._bytes -= aggregate.size
            aggregate.add(UserRecord(*_parts(entry)))
            self._bytes += aggregate.size
            if self._bytes > OPEN_BYTES:
                yield from self.flush()

    def shard_of(self, entry: Entry) -> int:
        """Return the lane of the aggregate that a record belongs to."""
        hash_key = hash_key_of(entry.partition_key, entry.explicit_hash_key)
        return bisect_right(self._firsts, hash_key)

    def flush(self) -> Iterator[PendingRecord]:
        """Yield everything that is left."""
        for shard in list(self._open):
            yield self._close(shard)

    def _close(self, shard: int) -> PendingRecord:
        first, aggregate = self._open.pop(shard)
        self._bytes -= aggregate.size
        rows = len(aggregate)
        if rows == 1:  # an aggregate of one is only larger, maybe too large
            return PendingRecord(first, first.size, 1, shard)
        entry = Entry(aggregate.encode(), first.partition_key, first.explicit_hash_key)
        return PendingRecord(entry, entry.size, rows, shard)


def _upper_bound(entry: Entry) -> int:
    """Return the most that a row adds to an aggregate."""
    return entry.size + 39 + 40


def _parts(entry: Entry) -> tuple[bytes, str, str | None]:
    return entry.data, entry.partition_key, entry.explicit_hash_key

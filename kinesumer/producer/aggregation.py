"""Pack records into KPL aggregates, and again after a reshard or a switch to AUTO.

An aggregate is packed for one shard. After a split, Kinesis stores the whole aggregate
in one child, although some of its records belong to the other child. If a stream
distributes records by AUTO, Kinesis stores an aggregate in any shard. The KCL skips the
records that belong elsewhere, so they have to be put again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from kinesumer.model.streams import Shard
from kinesumer.producer.pending import PendingRecord
from kinesumer.producer.put_stream import Patience, PutStream
from kinesumer.runtime.failure_log import logger
from kinesumer.wire.aggregation import hash_key_of
from kinesumer.wire.put_records import (
    AGGREGATED_RECORD_BYTES,
    HASH_KEY_DIGITS,
    Entry,
    EntryResult,
)

# A tenth of the bytes that a shard accepts per second. Larger aggregates would arrive
# in bursts.
AGGREGATE_BYTES = 100_000
# Number of partition keys whose shards are remembered. Hashing a key takes longer than
# packing a record. So many usual keys take some 2 MB.
KEYS_REMEMBERED = 20_000


class Aggregator:
    """Packs records into aggregates, each of which has records of one shard.

    The aggregator knows the shards that were listed when it was created. Each record
    has a partition key.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._ranges = {s.shard_id: (s.first_hash, s.last_hash) for s in shards}
        unended = sorted((s.first_hash, s.shard_id) for s in shards if not s.closed)
        self._first_hashes = [first for first, _ in unended]
        self._shard_ids = [shard_id for _, shard_id in unended]
        self._slots: dict[str | None, int] = {}
        # The aggregates that aren't full, by the place of their shard.
        self.opened: dict[int, PendingRecord] = {}

    def add(
        self, entry: Entry, size: int, cost: int, number: int, traceparent: str = ""
    ) -> tuple[PendingRecord, PendingRecord | None]:
        """Add a record. Return its aggregate, and an aggregate that is full now.

        A new aggregate gets ``number``.
        """
        slot = self._slots.get(entry.partition_key)
        if slot is None or entry.explicit_hash_key is not None:
            slot = self._slot_of(entry)
        if entry.explicit_hash_key is not None:
            size += HASH_KEY_DIGITS
        size += AGGREGATED_RECORD_BYTES
        full = None
        aggregate = self.opened.get(slot)
        if aggregate is None or aggregate.size + size > AGGREGATE_BYTES:
            full = aggregate
            aggregate = self.opened[slot] = PendingRecord(number, slot)
        aggregate.add(entry, size, cost, traceparent)
        return aggregate, full

    def take_open(self) -> list[PendingRecord]:
        """Return the aggregates that aren't full, and begin new ones."""
        taken = list(self.opened.values())
        self.opened.clear()
        return taken

    def is_expected(self, record: PendingRecord, shard_id: str | None) -> bool:
        """Return whether a record was put into the shard it was packed for."""
        slot = record.order_key
        return not isinstance(slot, int) or self._shard_ids[slot] == shard_id

    def explains(
        self, stored_in: set[str], before: Aggregator | None, *, routes_by_key: bool
    ) -> bool:
        """Return whether the listed shards explain where Kinesis has stored records.

        If the stream distributes records by AUTO, any listed shard is explained.
        """
        is_new = before is None or self._shard_ids != before._shard_ids
        return stored_in <= self._ranges.keys() and (is_new or not routes_by_key)

    def outside(self, entries: Sequence[Entry], shard_id: str) -> list[int]:
        """Return the indexes of the records whose hash keys aren't in a shard's range.

        The result is empty if the shard wasn't listed.
        """
        if shard_id not in self._ranges:
            return []
        first, last = self._ranges[shard_id]
        return [
            index
            for index, entry in enumerate(entries)
            if not first
            <= hash_key_of(entry.partition_key or "", entry.explicit_hash_key)
            <= last
        ]

    def _slot_of(self, entry: Entry) -> int:
        key, hash_key = entry.partition_key or "", entry.explicit_hash_key
        if len(self._shard_ids) < 2:
            return 0
        slot = bisect_right(self._first_hashes, hash_key_of(key, hash_key)) - 1
        if hash_key is None:
            if len(self._slots) >= KEYS_REMEMBERED:
                self._slots.clear()
            self._slots[key] = slot
        return max(slot, 0)


# A listing may lack the newest shards. Wait for a reshard during so many listings.
# With the waits of CALL_BACKOFF, these take 4 to 8 s.
MAX_LISTINGS = 6


class Reshard:
    """Records whose requests ended after Kinesis answered with an unexpected shard."""

    def __init__(self) -> None:
        # Accepted records that Kinesis has stored in an unexpected shard.
        self.misplaced: list[tuple[PendingRecord, EntryResult]] = []
        # Records that Kinesis hasn't accepted yet.
        self.returned: list[PendingRecord] = []

    def records(self) -> list[PendingRecord]:
        """Return all records that aren't settled."""
        return [record for record, _ in self.misplaced] + self.returned

    async def read_distribution(
        self, stream: PutStream, patience: Patience, before: Aggregator | None
    ) -> tuple[Aggregator, bool]:
        """Return what packs for the present shards, and whether to aggregate with it.

        Wait until a listing explains where Kinesis has stored the records. If none
        does, the stream evidently doesn't distribute records by their keys.
        """
        stored_in = {result.shard_id or "" for _, result in self.misplaced}
        for listings in range(1, MAX_LISTINGS + 1):
            info = await stream.reread(asyncio.get_running_loop().time())
            shards = Aggregator(await stream.list_shards())
            by_key = info.routes_by_key
            if shards.explains(stored_in, before, routes_by_key=by_key):
                return shards, by_key
            await patience.back_off(listings)
        logger.warning(
            "Kinesis has put aggregates into unexpected shards (%s), but lists no "
            "reshard: no records are aggregated for a minute",
            ", ".join(sorted(stored_in)),
        )
        return shards, False

    def to_pack(
        self, after: Aggregator, waiting: list[PendingRecord]
    ) -> list[tuple[PendingRecord, list[int]]]:
        """Return the records to pack again, with the indexes of their user records.

        The result is in the order in which records were added. Each misplaced record
        gets the result of those user records that are in the right shard.
        """
        packed = [(record, list(range(record.rows))) for record in self.returned]
        packed += [(record, list(range(record.rows))) for record in waiting]
        for record, result in self.misplaced:
            record.result = result
            outside: list[int] = []
            # The KCL takes a record that isn't an aggregate from any shard.
            if record.rows > 1:
                outside = after.outside(record.entries, result.shard_id or "")
            packed.append((record, outside))
        return sorted(packed, key=lambda pair: pair[0].number)

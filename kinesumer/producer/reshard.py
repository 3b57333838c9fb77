"""Put records of an aggregate again after a reshard, or after a switch to AUTO.

An aggregate is packed for one shard. After a split, Kinesis stores the whole aggregate
in one child, although some of its records belong to the other child. If a stream
distributes records by AUTO, Kinesis stores an aggregate in any shard. The KCL skips the
records that belong elsewhere, so they have to be put again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.producer.aggregation import Aggregator
from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from kinesumer.producer.patience import Patience
    from kinesumer.producer.pending import PendingRecord
    from kinesumer.producer.put_stream import PutStream
    from kinesumer.wire.put_records import EntryResult

# A listing may lack the newest shards. Wait for a reshard during so many listings.
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

    def is_listed(
        self, before: Aggregator | None, after: Aggregator, *, routes_by_key: bool
    ) -> bool:
        """Return whether a listing explains where Kinesis has stored the records.

        If the stream distributes records by AUTO, any listed shard is explained.
        """
        if not all(map(after.knows, self._shard_ids())):
            return False
        return not routes_by_key or before is None or not after.has_shards_of(before)

    async def read_distribution(
        self, stream: PutStream, patience: Patience, before: Aggregator | None
    ) -> tuple[Aggregator, bool]:
        """Return what packs for the present shards, and whether to aggregate with it.

        Wait until a listing explains where Kinesis has stored the records. If none
        does, the stream evidently doesn't distribute records by their keys.
        """
        for listings in range(1, MAX_LISTINGS + 1):
            info = await stream.reread(asyncio.get_running_loop().time())
            shards = Aggregator(await stream.list_shards())
            if self.is_listed(before, shards, routes_by_key=info.routes_by_key):
                return shards, info.routes_by_key
            await patience.back_off(listings)
        logger.warning(
            "Kinesis has put aggregates into unexpected shards (%s), but lists no "
            "reshard: no records are aggregated for a minute",
            ", ".join(sorted(self._shard_ids())),
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

    def _shard_ids(self) -> set[str]:
        return {result.shard_id or "" for _, result in self.misplaced}

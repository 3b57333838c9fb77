"""Put records of an aggregate again after a reshard.

An aggregate is packed for one shard. After a split, Kinesis stores the whole aggregate
in one child, although some of its records belong to the other child. The KCL skips
these records, so they have to be put again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from kinesumer.producer.aggregation import Aggregator
    from kinesumer.producer.pending import PendingRecord
    from kinesumer.wire.put_records import EntryResult

# A listing may lack the newest shards. After so many listings without a reshard, the
# records count as put.
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

    def is_listed(self, before: Aggregator, after: Aggregator, listings: int) -> bool:
        """Return whether the reshard is listed, or the wait for it should end."""
        names = {result.shard_id or "" for _, result in self.misplaced}
        if all(map(after.knows, names)) and not after.has_shards_of(before):
            return True
        if listings >= MAX_LISTINGS:
            logger.warning(
                "Kinesis has put aggregates into unexpected shards (%s), but lists no "
                "reshard: their records aren't put again",
                ", ".join(sorted(names)),
            )
            return True
        return False

    def to_pack(
        self,
        before: Aggregator,
        after: Aggregator,
        waiting: list[PendingRecord],
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
            # The key of a record that isn't an aggregate determines its shard.
            if record.rows > 1 and not after.has_shards_of(before):
                outside = after.outside(record.entries, result.shard_id or "")
            packed.append((record, outside))
        return sorted(packed, key=lambda pair: pair[0].number)

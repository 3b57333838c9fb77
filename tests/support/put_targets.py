"""A stream that takes every record, for the tests of producers."""

from __future__ import annotations

from collections.abc import Sequence

from kinesumer.model.streams import Shard, StreamInfo
from kinesumer.wire.put_records import Entry, EntryResult

INFO = StreamInfo("arn:aws:kinesis:us-east-1:123456789012:stream/orders", "ACTIVE", 0.0)
TAKEN = EntryResult(shard_id="shardId-0", sequence_number="1")


class PutTarget:
    """Takes all records. Tests override ``put_records()``."""

    def __init__(self, info: StreamInfo = INFO) -> None:
        self.info = info
        self.descriptions = self.listings = 0

    async def describe(self) -> StreamInfo:
        """Return the description that the test has set."""
        self.descriptions += 1
        return self.info

    async def list_shards(self) -> Sequence[Shard]:
        """Return no shards."""
        self.listings += 1
        return []

    async def put_records(self, records: Sequence[Entry]) -> Sequence[EntryResult]:
        """Take all records."""
        return [TAKEN] * len(records)

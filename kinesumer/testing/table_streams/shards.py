"""Model a shard of a table's stream, and its records."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.kinesis.record_log import RecordLog
from kinesumer.testing.table_streams.settings import TableStreamSettings


class StreamRecord(msgspec.Struct, gc=False):
    """A record in a shard's log."""

    sequence_number: str
    arrived_at: float
    size: int
    content: bytes  # JSON, as GetRecords returns it

    def forget(self) -> None:
        """Free the record's data."""
        self.content = b""


class Partition(NamedTuple):
    """A part of a table: the items whose hash keys are in a range."""

    first_hash: int
    last_hash: int


class TableShard(RecordLog[StreamRecord]):
    """A shard, which holds the changes of one partition for a while."""

    def __init__(
        self,
        shard_id: str,
        partition: Partition,
        parent_id: str | None,
        first_number: str,
        opened_at: float,
        settings: TableStreamSettings,
    ) -> None:
        super().__init__()
        self.shard_id = shard_id
        self.partition = partition
        self.parent_id = parent_id
        self.first_number = first_number
        self.last_number: str | None = None  # once the shard is closed
        self.opened_at = opened_at
        self.closed_at: float | None = None
        self.children: list[TableShard] = []
        self.read_calls: Bucket = Bucket(settings.read_calls_per_second)
        self.read_bytes: Bucket = Bucket(settings.read_bytes_per_second)

    @property
    def first_hash(self) -> int:
        """The lowest hash key of the shard's partition."""
        return self.partition.first_hash

    @property
    def closed(self) -> bool:
        """True if the shard takes no more records."""
        return self.closed_at is not None

    def close(self, now: float) -> None:
        """Take no more records.

        As AWS documents it, the ending number is that of the last record. A shard
        without records ends where it started.
        """
        self.closed_at = now
        self.last_number = self.first_number
        if self.log:
            self.last_number = self.log[-1].sequence_number

    def description(self) -> dict[str, Any]:
        """Return the shard as DescribeStream describes it."""
        numbers = {"StartingSequenceNumber": self.first_number}
        if self.last_number is not None:
            numbers["EndingSequenceNumber"] = self.last_number
        answer: dict[str, Any] = {
            "ShardId": self.shard_id,
            "SequenceNumberRange": numbers,
        }
        # A parent is named even if it has expired.
        if self.parent_id is not None:
            answer["ParentShardId"] = self.parent_id
        return answer

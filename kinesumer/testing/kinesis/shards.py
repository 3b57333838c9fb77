"""Model a shard, and its log of records."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5
from typing import Any

import msgspec

from kinesumer.model.streams import Shard as Description
from kinesumer.testing.kinesis.limits import Bucket, Limits
from kinesumer.testing.kinesis.record_log import RecordLog


class StoredRecord(msgspec.Struct, rename="pascal", omit_defaults=True, gc=False):
    """A record in a shard's log. Encoded as JSON, it is as Kinesis sends it."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    arrived_at: float = msgspec.field(name="ApproximateArrivalTimestamp", default=-1.0)

    @property
    def size(self) -> int:
        """The bytes that limits count."""
        key = self.partition_key
        return len(self.data) + (len(key.encode()) if key else 0)

    def forget(self) -> None:
        """Free the record's data."""
        self.data = b""


class Shard(RecordLog[StoredRecord]):
    """A shard and its records."""

    def __init__(
        self,
        description: Description,
        index: int,
        first_number: str,
        created_at: float,
        limits: Limits,
    ) -> None:
        super().__init__()
        self.shard = description
        self.index = index
        self.first_number = first_number
        self.created_at = created_at
        self.children: list[Shard] = []
        self.closed_at: float | None = None
        # Functions to call when the log grows, or when the shard or the stream ends.
        self.listeners: list[Callable[[], None]] = []
        self.read_calls: Bucket = Bucket(limits.read_calls_per_second)
        self.read_bytes: Bucket = Bucket(limits.read_bytes_per_second)
        self.iterator_calls: Bucket = Bucket(limits.iterator_calls_per_second)
        self.write_records: Bucket = Bucket(limits.write_records_per_second)
        self.write_bytes: Bucket = Bucket(limits.write_bytes_per_second)

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    @property
    def first_hash(self) -> int:
        """The shard's lowest hash key."""
        return self.shard.first_hash

    @property
    def last_hash(self) -> int:
        """The shard's highest hash key."""
        return self.shard.last_hash

    @property
    def closed(self) -> bool:
        """True if the shard takes no more records."""
        return self.closed_at is not None

    def changed(self) -> None:
        """Tell the subscriptions that the shard, its stream or the time has changed."""
        for listener in list(self.listeners):
            listener()

    def throttles_write(self, size: int, now: float) -> bool:
        """Return whether a write of this size exceeds a limit. If not, count it."""
        if not self.write_records.holds(1, now) or not self.write_bytes.take(size, now):
            return True
        self.write_records.spend(1)
        return False

    def millis_behind(self, start: int, end: int, now: float) -> int:
        """Return how far the page between two indexes is behind, in milliseconds."""
        if end == len(self.log):
            return 0
        return max(0, round((now - self.log[max(end - 1, start)].arrived_at) * 1000))


def child_description(child: Shard) -> dict[str, Any]:
    """Return a child as the last response of a closed shard names it."""
    return {
        "ShardId": child.shard_id,
        "ParentShards": child.shard.parents,
        "HashKeyRange": hash_key_range(child),
    }


def hash_key_range(shard: Shard) -> dict[str, str]:
    """Return the range of a shard's hash keys as Kinesis's responses have it."""
    return {
        "StartingHashKey": str(shard.first_hash),
        "EndingHashKey": str(shard.last_hash),
    }


def hash_key(partition_key: str) -> int:
    """Return the hash key that a partition key maps to."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())

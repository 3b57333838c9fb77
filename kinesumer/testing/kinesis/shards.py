"""Model a shard, and its log of records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from hashlib import md5
from operator import attrgetter
from typing import Any

import msgspec

from kinesumer.model.positions import number_order
from kinesumer.model.streams import Shard as Description
from kinesumer.testing.kinesis.limits import Bucket, Limits


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


class Shard:
    """A shard. Its log keeps expired records, so that indexes stay valid."""

    def __init__(
        self,
        description: Description,
        index: int,
        first_number: str,
        created_at: float,
        limits: Limits,
    ) -> None:
        self.shard = description
        self.index = index
        self.first_number = first_number
        self.created_at = created_at
        self.log: list[StoredRecord] = []
        # The number of expired records. They are the first ones in the log.
        self.trimmed: int = 0
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

    def place_after(self, sequence_number: str) -> int:
        """Return the index of the first record after a sequence number."""
        return bisect_right(self.log, number_order(sequence_number), key=_record_order)

    def place_at(self, sequence_number: str) -> int:
        """Return the index of the first record at or after a sequence number."""
        return bisect_left(self.log, number_order(sequence_number), key=_record_order)

    def place_since(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after a time."""
        return bisect_left(self.log, timestamp, key=attrgetter("arrived_at"))

    def expire(self, before: float) -> None:
        """Expire the records that arrived before a time, and free their data."""
        log = self.log
        while self.trimmed < len(log) and log[self.trimmed].arrived_at < before:
            log[self.trimmed].data = b""
            self.trimmed += 1

    def page(self, start: int, records: int, most_bytes: float) -> tuple[int, int]:
        """Return where the page that begins at an index ends, and its size in bytes.

        The page has up to ``records`` records and up to ``most_bytes`` bytes. If the
        first record is larger than that, the page has only this record.
        """
        size = 0
        for index, record in enumerate(self.log[start : start + records], start):
            following = size + record.size
            if following > most_bytes and index > start:
                return index, size
            size = following
        return min(len(self.log), start + records), size

    def millis_behind(self, start: int, end: int, now: float) -> int:
        """Return how far the page between two indexes is behind, in milliseconds."""
        if end == len(self.log):
            return 0
        return max(0, round((now - self.log[max(end - 1, start)].arrived_at) * 1000))


def _record_order(record: StoredRecord) -> tuple[int, str]:
    return number_order(record.sequence_number)


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

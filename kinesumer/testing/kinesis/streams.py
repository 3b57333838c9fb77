"""Model streams: their shards, splits and merges, and their records."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kinesumer.model.streams import HASH_KEYS
from kinesumer.model.streams import Shard as Description
from kinesumer.testing.kinesis.limits import Bucket, Limits
from kinesumer.testing.kinesis.requests import in_use, invalid_argument, not_found
from kinesumer.testing.kinesis.shards import Shard, StoredRecord, hash_key
from kinesumer.testing.kinesis.subscription import Consumer

# The strategies by which a stream distributes records over its shards.
BY_KEY, AUTO = "USER_PARTITION_KEY", "AUTO"

_first_hash = attrgetter("first_hash")


class AwsNumbers:
    """Numbers of 56 digits: the stream's creation, the count, and the shard.

    As in AWS, they have too many digits for a DynamoDB number, which has up to 38.
    All shards of a stream share the count of its records, so children have higher
    numbers than their parents.
    """

    first: int = 1  # the first count of a new stream

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the sequence number of a count, in the shard with this index."""
        return f"49{created_ms:014d}{count:032d}{shard:08d}"

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number, or None if no such shard has the number."""
        count = int(text[16:48]) if text.isdecimal() and len(text) > 48 else 0
        return count if text == self.text(created_ms, count, shard) else None


class GrowingNumbers(AwsNumbers):
    """Plain counts. After 40 of them, numbers have one more digit.

    This reveals code that compares them as text.
    """

    first: int = 10**55 - 40

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the count."""
        return str(count)

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number."""
        return int(text)


class Stream:
    """One stream, from its creation to its deletion."""

    def __init__(
        self,
        arn: str,
        shards: int,
        now: float,
        limits: Limits,
        *,
        mode: str = "PROVISIONED",
        numbers: AwsNumbers | None = None,
    ) -> None:
        self.arn = arn
        self.account: str = arn.split(":")[4]
        self.name: str = arn.rpartition("/")[2]
        self.mode = mode
        self.distribution = BY_KEY
        self.created_at = now
        self.retention_hours: float = 24
        self.max_record_kib = 1024
        self.key_id: str | None = None  # of the key that encrypts records
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}  # by name
        self.has_advantage = False  # whether its account has On-demand Advantage
        self.limits = limits
        self.shards: dict[str, Shard] = {}
        # Open shards by first hash key.
        self.open: list[Shard] = []
        self._serial = 0
        self._expired_at = now
        self.numbers: AwsNumbers = numbers or AwsNumbers()
        self.first_number: int = self.numbers.first
        # Shards share this count: see ``AwsNumbers``.
        self.next_number: int = self.first_number
        self.status: str = "CREATING"
        self._due = now + limits.creating_seconds
        self._pending: Callable[[float], None] = lambda at: self._create(shards, at)
        self.listing_calls: Bucket = Bucket(limits.listing_calls_per_second)

    @property
    def created_ms(self) -> int:
        """The creation time in ms, which distinguishes streams with the same name."""
        return round(self.created_at * 1000)

    @property
    def max_consumers(self) -> int:
        """The greatest number of registered consumers."""
        if self.has_advantage and self.mode == "ON_DEMAND":
            return self.limits.advantage_consumers_per_stream
        return self.limits.consumers_per_stream

    def summary(self) -> dict[str, Any]:
        """Return the fields that every description of a stream has."""
        return {
            "StreamName": self.name,
            "StreamARN": self.arn,
            "StreamStatus": self.status,
            "StreamModeDetails": {"StreamMode": self.mode},
            "StreamCreationTimestamp": self.created_at,
        }

    def settle(self, now: float) -> None:
        """Finish the change in progress if it is due."""
        if self.status in ("CREATING", "UPDATING") and now >= self._due:
            self._pending(now)
            self.status = "ACTIVE"

    def change(self, now: float, apply: Callable[[float], None]) -> None:
        """Set the stream to UPDATING. Apply the change after ``updating_seconds``."""
        self.require_active()
        self.status = "UPDATING"
        self._due = now + self.limits.updating_seconds
        self._pending = apply
        self.settle(now)

    def require_active(self) -> None:
        """Raise ResourceInUseException unless the stream is ACTIVE."""
        if self.status != "ACTIVE":
            raise in_use(
                f"Stream {self.name} under account {self.account} not ACTIVE, "
                f"instead in state {self.status}",
            )

    def require_open(self) -> None:
        """Raise ResourceNotFoundException unless records can be read and put."""
        if self.status not in ("ACTIVE", "UPDATING"):
            raise not_found(
                f"Stream {self.name} under account {self.account} not found."
            )

    def delete(self) -> None:
        """Begin to delete the stream. Its subscriptions end."""
        self.status = "DELETING"
        self.wake_subscriptions()

    def wake_subscriptions(self) -> None:
        """Let the subscriptions to all shards look for a change."""
        for shard in self.shards.values():
            shard.changed()

    # --- shards ----------------------------------------------------------------------

    def _create(self, shards: int, now: float) -> None:
        bounds = [HASH_KEYS * i // shards for i in range(shards + 1)]
        for first, end in itertools.pairwise(bounds):
            self._add((first, end - 1), now)

    def _add(self, hashes: tuple[int, int], now: float, *parents: Shard) -> Shard:
        ids = tuple(parent.shard_id for parent in parents)
        description = Description(f"shardId-{self._serial:012d}", *hashes, ids)
        number = self._take_number(self._serial)
        shard = Shard(description, self._serial, number, now, self.limits)
        self._serial += 1
        for parent in parents:
            parent.children.append(shard)
        self.shards[shard.shard_id] = shard
        insort(self.open, shard, key=_first_hash)
        return shard

    def _close(self, shard: Shard, now: float) -> None:
        self.open.remove(shard)
        shard.closed_at = now
        # The number is greater than that of the last record.
        ending = self._take_number(shard.index)
        shard.shard = shard.shard._replace(ending_sequence_number=ending)
        shard.changed()

    def require_splittable(
        self, shard_id: str, at_hash: int | None
    ) -> tuple[Shard, int]:
        """Return an open shard, and the hash key to split it at, by default its middle.

        Raise AwsError if the shard can't be split at the hash key.
        """
        shard = self._open_shard(shard_id)
        if at_hash is None:
            at_hash = (shard.first_hash + shard.last_hash + 1) // 2
        if not shard.first_hash < at_hash <= shard.last_hash:
            raise invalid_argument(
                f"NewStartingHashKey {at_hash} used in SplitShard() on shard "
                f"{shard_id} in stream {self.name} under account {self.account} is not "
                "both greater than one plus the shard's StartingHashKey "
                f"{shard.first_hash} and less than the shard's EndingHashKey "
                f"{shard.last_hash}."
            )
        return shard, at_hash

    def require_mergeable(
        self, shard_id: str, adjacent_shard_id: str
    ) -> tuple[Shard, Shard]:
        """Return two open shards. Raise AwsError if they aren't adjacent."""
        left = self._open_shard(shard_id)
        right = self._open_shard(adjacent_shard_id)
        low, high = sorted((left, right), key=_first_hash)
        if low.last_hash + 1 != high.first_hash:
            raise invalid_argument(
                f"Shards {shard_id} and {adjacent_shard_id} in stream {self.name} "
                f"under account {self.account} are not an adjacent pair of shards "
                "eligible for merging"
            )
        return left, right

    def _open_shard(self, shard_id: str) -> Shard:
        shard = self.shard(shard_id)
        if shard.closed:
            raise invalid_argument(
                f"Shard {shard_id} in stream {self.name} under account {self.account} "
                "is closed."
            )
        return shard

    def split(self, shard: Shard, at_hash: int, now: float) -> None:
        """Close a shard, and open two shards that meet at a hash key."""
        self._close(shard, now)
        self._add((shard.first_hash, at_hash - 1), now, shard)
        self._add((at_hash, shard.last_hash), now, shard)

    def merge(self, left: Shard, right: Shard, now: float) -> None:
        """Close two adjacent shards, and open one with the hash keys of both."""
        self._close(left, now)
        self._close(right, now)
        low, high = sorted((left, right), key=_first_hash)
        self._add((low.first_hash, high.last_hash), now, left, right)

    def roll_over(self, shard: Shard, now: float) -> None:
        """Close a shard, and open one with the same hash keys.

        Only shards of tables' streams do so.
        """
        self._close(shard, now)
        self._add((shard.first_hash, shard.last_hash), now, shard)

    def rescale(self, count: int, now: float) -> None:
        """Split and merge until ``count`` shards of equal size are open.

        As in AWS, intermediate shards are opened and immediately closed.
        """
        bounds = [HASH_KEYS * i // count for i in range(count)]
        for bound in bounds:
            shard = self.route(bound)
            if shard.first_hash != bound:
                self.split(shard, bound, now)
        for bound, end in zip(bounds, [*bounds[1:], HASH_KEYS], strict=True):
            while (shard := self.route(bound)).last_hash != end - 1:
                self.merge(shard, self.route(shard.last_hash + 1), now)

    def route(self, hash_key: int) -> Shard:
        """Return the open shard that a hash key belongs to."""
        return self.open[bisect_right(self.open, hash_key, key=_first_hash) - 1]

    def choose(self, key: str | None, explicit_hash_key: int | None) -> Shard:
        """Return the open shard that takes a record. Without keys, the hash key is 0.

        With AUTO, no key selects the shard.
        """
        if self.distribution == AUTO:
            return self.next_in_turn()
        if explicit_hash_key is None:
            explicit_hash_key = 0 if key is None else hash_key(key)
        return self.route(explicit_hash_key)

    def next_in_turn(self) -> Shard:
        """Return the open shard that takes the next record of a stream with AUTO."""
        return self.open[self.next_number % len(self.open)]

    def shard(self, shard_id: str) -> Shard:
        """Return a shard. Raise ResourceNotFoundException if it is missing."""
        shard = self.shards.get(shard_id)
        if shard is None:
            raise not_found(
                f"Could not find shard {shard_id} in stream {self.name} "
                f"under account {self.account}."
            )
        return shard

    def horizon(self, now: float) -> float:
        """Return the arrival time before which records expire."""
        return now - self.retention_hours * 3600

    def apply_retention(self, now: float) -> None:
        """Expire what is too old, at most once in ``limits.expiry_seconds``."""
        if now >= self._expired_at + self.limits.expiry_seconds:
            self._expired_at = now
            self.expire(self.horizon(now))

    def expire(self, before: float) -> None:
        """Expire records older than a time, and shards closed before that time."""
        for shard in list(self.shards.values()):
            shard.expire(before)
            if shard.closed_at is not None and shard.closed_at < before:
                del self.shards[shard.shard_id]

    # --- records ---------------------------------------------------------------------

    def append(self, shard: Shard, data: bytes, key: str | None, now: float) -> str:
        """Store a record, and return its sequence number.

        ``key`` is the partition key, or None for a record without one.
        """
        number = self._take_number(shard.index)
        shard.log.append(StoredRecord(number, data, key, now))
        if shard.listeners:
            shard.changed()
        return number

    def _take_number(self, index: int) -> str:
        number = self.number(index, self.next_number)
        self.next_number += 1
        return number

    def number(self, index: int, count: int) -> str:
        """Return the sequence number of a count, in the shard with this index."""
        return self.numbers.text(self.created_ms, count, index)

    def count_of(self, shard: Shard, sequence_number: str) -> int:
        """Return the value of the stream's count in a shard's sequence number.

        Raise InvalidArgumentException if the number isn't from this shard, or if the
        shard is closed and the number lies past its last record.
        """
        count = self.numbers.count(sequence_number, self.created_ms, shard.index)
        if count is None or not self.first_number <= count < self.next_number:
            raise invalid_argument(
                f"StartingSequenceNumber {sequence_number} used in GetShardIterator "
                f"on shard {shard.shard_id} in stream {self.name} under account "
                f"{self.account} is invalid because it did not come from this stream."
            )
        ending = shard.shard.ending_sequence_number
        if ending and int(sequence_number) >= int(ending):
            raise invalid_argument(
                f"Invalid SequenceNumber {sequence_number} for shard {shard.shard_id}: "
                "SequenceNumber has reached max possible value for the shard."
            )
        return count

"""Model streams and shards, their records, and splits and merges."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.embedded_aws.kinesis.limits import Bucket
from kinesumer.testing.embedded_aws.kinesis.tokens import (
    format_sequence,
    parse_sequence,
)
from kinesumer.testing.embedded_aws.request import AwsError, invalid_argument, not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.testing.embedded_aws.kinesis.consumer import Consumer
    from kinesumer.testing.embedded_aws.kinesis.limits import Limits


# The strategies by which a stream distributes records over its shards.
BY_KEY, AUTO = "USER_PARTITION_KEY", "AUTO"


class Shard:
    """A shard with its hash keys, records, parents and children."""

    first_hash: int
    last_hash: int

    def __init__(
        self, index: int, hashes: tuple[int, int], counter: int, now: float, lim: Limits
    ) -> None:
        self.index = index
        self.shard_id: str = f"shardId-{index:012d}"
        self.first_hash, self.last_hash = hashes
        self.created_at = now
        self.first_counter = counter
        self.log: RecordLog = RecordLog()
        self.parents: tuple[Shard, ...] = ()
        self.children: list[Shard] = []
        self.closed_at: float | None = None
        # Called after each change, for subscriptions.
        self.listeners: list[Callable[[], None]] = []
        self.last_counter: int | None = None
        self.read_calls: Bucket = Bucket(lim.read_calls_per_second)
        self.read_bytes: Bucket = Bucket(lim.read_bytes_per_second)
        self.iterator_calls: Bucket = Bucket(lim.iterator_calls_per_second)
        self.write_records: Bucket = Bucket(lim.write_records_per_second)
        self.write_bytes: Bucket = Bucket(lim.write_bytes_per_second)

    def changed(self) -> None:
        """Tell the subscriptions that the shard, its stream or the time has changed."""
        for listener in self.listeners:
            listener()

    def hash_key_range(self) -> dict[str, str]:
        """Return the range of the shard's hash keys as Kinesis's responses have it."""
        return {
            "StartingHashKey": str(self.first_hash),
            "EndingHashKey": str(self.last_hash),
        }

    def throttles_write(self, size: int, now: float) -> bool:
        """Return whether a write of this size exceeds a limit. If not, count it."""
        if not self.write_records.holds(1, now) or not self.write_bytes.take(size, now):
            return True
        self.write_records.spend(1)
        return False


class Stream:
    """One stream, from its creation to its deletion."""

    account: str
    name: str

    def __init__(
        self, arn: str, shards: int, now: float, lim: Limits, *, mode: str
    ) -> None:
        self.arn = arn
        self.account, self.name = arn.split(":")[4], arn.rpartition("/")[2]
        self.mode = mode
        self.distribution = BY_KEY
        self._turn = 0  # with AUTO, the shards take turns
        self.created_at = now
        self.retention_hours = 24
        self.max_record_kib = 1024
        self.key_id: str | None = None  # of the key that encrypts records
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}  # by name
        self.has_advantage = False  # whether its account has On-demand Advantage
        self.limits = lim
        self.shards: dict[str, Shard] = {}
        self.open: list[Shard] = []
        self._starts: list[int] = []
        # All shards share this counter. So a child's sequence numbers are higher than
        # those of its parents.
        self.counter: int = 0
        self.status: str = "CREATING"
        self._due = now + lim.creating_seconds
        self._pending: Callable[[float], None] = lambda at: self._create(shards, at)
        self.listing_calls: Bucket = Bucket(lim.listing_calls_per_second)

    @property
    def created_ms(self) -> int:
        """The creation time in ms, which distinguishes streams with the same name."""
        return round(self.created_at * 1000)

    @property
    def max_consumers(self) -> int:
        """How many consumers can be registered."""
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
            raise AwsError(
                "ResourceInUseException",
                f"Stream {self.name} under account {self.account} not ACTIVE, "
                f"instead in state {self.status}",
            )

    def require_open(self) -> None:
        """Raise ResourceNotFoundException unless records can be read and put."""
        if self.status not in ("ACTIVE", "UPDATING"):
            raise not_found(
                f"Stream {self.name} under account {self.account} not found."
            )

    def wake_subscriptions(self) -> None:
        """Let the subscriptions to all shards look for a change."""
        for shard in self.shards.values():
            shard.changed()

    # --- shards ----------------------------------------------------------------------

    def _create(self, shards: int, now: float) -> None:
        bounds = [HASH_KEYS * i // shards for i in range(shards + 1)]
        for first, end in itertools.pairwise(bounds):
            self._add((first, end - 1), now)
        self._index()

    def _add(self, hashes: tuple[int, int], now: float, *parents: Shard) -> Shard:
        self.counter += 1
        shard = Shard(len(self.shards), hashes, self.counter, now, self.limits)
        shard.parents = parents
        for parent in parents:
            parent.children.append(shard)
        self.shards[shard.shard_id] = shard
        return shard

    def _close(self, shard: Shard, now: float) -> None:
        self.counter += 1
        shard.closed_at, shard.last_counter = now, self.counter
        shard.changed()

    def _index(self) -> None:
        self.open = sorted(
            (s for s in self.shards.values() if s.closed_at is None),
            key=lambda shard: shard.first_hash,
        )
        self._starts = [shard.first_hash for shard in self.open]

    def require_splittable(self, shard_id: str, at_hash: int, now: float) -> Shard:
        """Return an open shard. Raise AwsError if it can't be split at a hash key."""
        shard = self._open_shard(shard_id, now)
        if not shard.first_hash < at_hash <= shard.last_hash:
            raise invalid_argument(
                f"NewStartingHashKey {at_hash} used in SplitShard() on shard "
                f"{shard_id} in stream {self.name} under account {self.account} is not "
                "both greater than one plus the shard's StartingHashKey "
                f"{shard.first_hash} and less than the shard's EndingHashKey "
                f"{shard.last_hash}."
            )
        return shard

    def require_mergeable(
        self, shard_id: str, adjacent_shard_id: str, now: float
    ) -> tuple[Shard, Shard]:
        """Return two open shards. Raise AwsError if they aren't adjacent."""
        left = self._open_shard(shard_id, now)
        right = self._open_shard(adjacent_shard_id, now)
        low, high = sorted((left, right), key=lambda shard: shard.first_hash)
        if low.last_hash + 1 != high.first_hash:
            raise invalid_argument(
                f"Shards {shard_id} and {adjacent_shard_id} in stream {self.name} "
                f"under account {self.account} are not an adjacent pair of shards "
                "eligible for merging"
            )
        return left, right

    def _open_shard(self, shard_id: str, now: float) -> Shard:
        shard = self.shard(shard_id, now)
        if shard.closed_at is not None:
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
        self._index()

    def merge(self, left: Shard, right: Shard, now: float) -> None:
        """Close two adjacent shards, and open one with the hash keys of both."""
        self._close(left, now)
        self._close(right, now)
        low, high = sorted((left, right), key=lambda shard: shard.first_hash)
        self._add((low.first_hash, high.last_hash), now, left, right)
        self._index()

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
        return self.open[bisect_right(self._starts, hash_key) - 1]

    def next_in_turn(self) -> Shard:
        """Return the open shard that takes the next record of a stream with AUTO."""
        self._turn += 1
        return self.open[self._turn % len(self.open)]

    def horizon(self, now: float) -> float:
        """Return the arrival time before which records have expired."""
        return now - self.retention_hours * 3600

    def visible(self, now: float) -> list[Shard]:
        """Return the shards that haven't expired, in order of their ids."""
        horizon = self.horizon(now)
        return [
            shard
            for shard in self.shards.values()
            if shard.closed_at is None or shard.closed_at > horizon
        ]

    def shard(self, shard_id: str, now: float) -> Shard:
        """Return a shard. Raise ResourceNotFoundException if it is missing."""
        shard = self.shards.get(shard_id)
        if shard is None or (shard.closed_at or now) <= self.horizon(now):
            raise not_found(
                f"Could not find shard {shard_id} in stream {self.name} "
                f"under account {self.account}."
            )
        shard.log.trim(self.horizon(now))
        return shard

    # --- records ---------------------------------------------------------------------

    def append(
        self, shard: Shard, data: bytes, key: bytes | None, size: int, now: float
    ) -> str:
        """Store base64 data with a JSON key. Return the record's sequence number."""
        self.counter += 1
        number = self.sequence(shard, self.counter)
        tail = b'"}' if key is None else b'","PartitionKey":%b}' % key
        encoded = (
            b'{"SequenceNumber":"%b","ApproximateArrivalTimestamp":%.3f,"Data":"%b%b'
            % (number.encode(), now, data, tail)
        )
        shard.log.append(self.counter, now, size, encoded)
        if shard.listeners:
            shard.changed()
        return number

    def sequence(self, shard: Shard, counter: int) -> str:
        """Return a shard's sequence number for a value of the stream's counter."""
        return format_sequence(self.created_ms, counter, shard.index)

    def counter_of(self, shard: Shard, sequence_number: str) -> int:
        """Return the value of the stream's counter in a shard's sequence number.

        Raise InvalidArgumentException if the number isn't from this shard, or if the
        shard is closed and the number lies past its last record.
        """
        parsed = parse_sequence(sequence_number, self.created_ms)
        if parsed is None or parsed[1] != shard.index or parsed[0] > self.counter:
            raise invalid_argument(
                f"StartingSequenceNumber {sequence_number} used in GetShardIterator "
                f"on shard {shard.shard_id} in stream {self.name} under account "
                f"{self.account} is invalid because it did not come from this stream."
            )
        if shard.last_counter is not None and parsed[0] >= shard.last_counter:
            raise invalid_argument(
                f"Invalid SequenceNumber {sequence_number} for shard {shard.shard_id}: "
                "SequenceNumber has reached max possible value for the shard."
            )
        return parsed[0]


# Number of expired records to delete at a time, since a deletion moves all others.
_COMPACT = 4096


class RecordLog:
    """A shard's records in order of arrival. Their counters have the same order."""

    def __init__(self) -> None:
        self.counters: array[int] = array("q")
        self.times: array[float] = array("d")
        self._ends = array("q")  # payload bytes up to and including each record
        self._dropped = 0  # payload bytes of the deleted records
        self._encoded: list[bytes] = []
        self.first: int = 0  # index of the oldest record that hasn't expired

    def __len__(self) -> int:
        return len(self._encoded)

    def append(self, counter: int, at: float, size: int, encoded: bytes) -> None:
        """Add an encoded record, which has ``size`` bytes of payload."""
        self.counters.append(counter)
        self.times.append(at)
        self._ends.append(self._before(len(self._ends)) + size)
        self._encoded.append(encoded)

    def trim(self, horizon: float) -> None:
        """Remove the records that arrived before a time."""
        if self.first < len(self.times) and self.times[self.first] < horizon:
            self.first = bisect_left(self.times, horizon, self.first)
            if self.first >= min(_COMPACT, len(self.times)):
                self._compact()

    def _compact(self) -> None:
        self._dropped = self._before(self.first)
        for column in (self.counters, self.times, self._ends, self._encoded):
            del column[: self.first]
        self.first = 0

    def _before(self, index: int) -> int:
        return self._ends[index - 1] if index else self._dropped

    def after(self, counter: int) -> int:
        """Return the index of the first record whose counter is above ``counter``."""
        return bisect_right(self.counters, counter, self.first)

    def since(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after a time."""
        return bisect_left(self.times, timestamp, self.first)

    def page_end(self, start: int, records: int, size: int) -> int:
        """Return the index after the last record of the page that begins at ``start``.

        The page has up to ``records`` records and up to ``size`` bytes. If the first
        record is larger than that, the page has only this record.
        """
        stop = min(start + records, len(self._ends))
        fits = bisect_right(self._ends, self._before(start) + size, start, stop)
        return min(stop, max(start + 1, fits))

    def size(self, start: int, end: int) -> int:
        """Return the payload bytes of the records from ``start`` to before ``end``."""
        return self._before(end) - self._before(start)

    def join(self, start: int, end: int) -> bytes:
        """Return the records from ``start`` to before ``end``, joined by commas."""
        return b",".join(self._encoded[start:end])

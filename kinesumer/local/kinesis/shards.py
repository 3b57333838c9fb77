"""A stream: its open and closed shards, where records go, how shards part and join."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from kinesumer.local.kinesis.limits import Bucket
from kinesumer.local.kinesis.tokens import HASH_KEYS, format_sequence, parse_sequence
from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local.kinesis.limits import Limits


class Shard:
    """One shard: a range of hash keys, its records, its parents and children."""

    def __init__(
        self, index: int, hashes: tuple[int, int], counter: int, now: float, lim: Limits
    ) -> None:
        self.index = index
        self.shard_id = f"shardId-{index:012d}"
        self.first_hash, self.last_hash = hashes
        self.created_at = now
        self.first_counter = counter
        self.log = RecordLog()
        self.parents: tuple[Shard, ...] = ()
        self.children: list[Shard] = []
        self.closed_at: float | None = None
        self.last_counter: int | None = None
        self.read_calls = Bucket(lim.read_calls_per_second)
        self.read_bytes = Bucket(lim.read_bytes_per_second)
        self.iterator_calls = Bucket(lim.iterator_calls_per_second)
        self.write_records = Bucket(lim.write_records_per_second)
        self.write_bytes = Bucket(lim.write_bytes_per_second)

    def throttles_write(self, size: int, now: float) -> bool:
        """Return whether a record of this size is too much now; else take it in."""
        if not self.write_records.holds(1, now) or not self.write_bytes.take(size, now):
            return True
        self.write_records.spend(1)
        return False


class Stream:
    """One stream, from its creation to its deletion."""

    def __init__(
        self, arn: str, shards: int, now: float, lim: Limits, *, mode: str
    ) -> None:
        self.arn = arn
        self.account, self.name = arn.split(":")[4], arn.rpartition("/")[2]
        self.mode = mode
        self.created_at = now
        self.retention_hours = 24
        self.max_record_kib = 1024
        self.limits = lim
        self.shards: dict[str, Shard] = {}
        self.open: list[Shard] = []
        self._starts: list[int] = []
        self.counter = 0
        self.status = "CREATING"
        self._due = now + lim.creating_seconds
        self._pending: Callable[[float], None] = lambda at: self._create(shards, at)
        self.listing_calls = Bucket(lim.listing_calls_per_second)

    @property
    def created_ms(self) -> int:
        """Creation time in milliseconds: what tells streams of one name apart."""
        return round(self.created_at * 1000)

    def settle(self, now: float) -> None:
        """Finish the change in progress if its time has come."""
        if self.status in ("CREATING", "UPDATING") and now >= self._due:
            self._pending(now)
            self.status = "ACTIVE"

    def change(self, now: float, apply: Callable[[float], None]) -> None:
        """Apply a change, during which the stream is UPDATING for some time."""
        self.require_active()
        self.status = "UPDATING"
        self._due = now + self.limits.updating_seconds
        self._pending = apply
        self.settle(now)

    def delete(self, now: float) -> float:
        """Begin to delete the stream and return when it is gone."""
        self.status = "DELETING"
        return now + self.limits.deleting_seconds

    def require_active(self) -> None:
        """Raise ResourceInUseException unless the stream is ACTIVE."""
        if self.status != "ACTIVE":
            raise AwsError(
                "ResourceInUseException",
                f"Stream {self.name} under account {self.account} not ACTIVE, "
                f"instead in state {self.status}",
            )

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

    def _index(self) -> None:
        self.open = sorted(
            (s for s in self.shards.values() if s.closed_at is None),
            key=lambda shard: shard.first_hash,
        )
        self._starts = [shard.first_hash for shard in self.open]

    def split(self, shard: Shard, at_hash: int, now: float) -> None:
        """Close a shard and open two that part at a hash key."""
        self._close(shard, now)
        self._add((shard.first_hash, at_hash - 1), now, shard)
        self._add((at_hash, shard.last_hash), now, shard)
        self._index()

    def merge(self, left: Shard, right: Shard, now: float) -> None:
        """Close two neighbours and open one over both."""
        self._close(left, now)
        self._close(right, now)
        low, high = sorted((left, right), key=lambda shard: shard.first_hash)
        self._add((low.first_hash, high.last_hash), now, left, right)
        self._index()

    def rescale(self, count: int, now: float) -> None:
        """Split and merge until so many shards of one size are open.

        As at AWS this leaves shards between that were open for a moment only.
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

    def horizon(self, now: float) -> float:
        """Return the moment before which records are gone."""
        return now - self.retention_hours * 3600

    def visible(self, now: float) -> list[Shard]:
        """Return the shards that retention has left, in order of their ids."""
        horizon = self.horizon(now)
        return [
            shard
            for shard in self.shards.values()
            if shard.closed_at is None or shard.closed_at > horizon
        ]

    def shard(self, shard_id: str, now: float) -> Shard:
        """Return a shard; raise ResourceNotFoundException if there is none (left)."""
        found = self.shards.get(shard_id)
        if found is None or (found.closed_at or now) <= self.horizon(now):
            raise AwsError(
                "ResourceNotFoundException",
                f"Could not find shard {shard_id} in stream {self.name} "
                f"under account {self.account}.",
            )
        found.log.trim(self.horizon(now))
        return found

    # --- records ---------------------------------------------------------------------

    def append(
        self, shard: Shard, data: bytes, key: bytes | None, size: int, now: float
    ) -> str:
        """Store a record of base64 data and JSON key; return its sequence number."""
        self.counter += 1
        number = self.sequence(shard, self.counter)
        tail = b'"}' if key is None else b'","PartitionKey":%b}' % key
        encoded = (
            b'{"SequenceNumber":"%b","ApproximateArrivalTimestamp":%.3f,"Data":"%b%b'
            % (number.encode(), now, data, tail)
        )
        shard.log.append(self.counter, now, size, encoded)
        return number

    def sequence(self, shard: Shard, counter: int) -> str:
        """Return the sequence number of a counter in a shard."""
        return format_sequence(self.created_ms, counter, shard.index)

    def counter_of(self, shard: Shard, sequence_number: str) -> int:
        """Return the counter in a sequence number of this shard.

        Raises InvalidArgumentException if it is from elsewhere.
        """
        parsed = parse_sequence(sequence_number, self.created_ms)
        if parsed is None or parsed[1] != shard.index or parsed[0] > self.counter:
            raise AwsError(
                "InvalidArgumentException",
                f"StartingSequenceNumber {sequence_number} used in GetShardIterator "
                f"on shard {shard.shard_id} in stream {self.name} under account "
                f"{self.account} is invalid because it did not come from this stream.",
            )
        return parsed[0]


_COMPACT = 4096


class RecordLog:
    """Records in order of their counters, and of their times of arrival."""

    def __init__(self) -> None:
        self.counters = array("q")
        self.times = array("d")
        self._ends = array("q")  # bytes up to and including each record
        self._dropped = 0  # bytes before the first element
        self._encoded: list[bytes] = []
        self.first = 0
        """Index of the oldest record that retention has left."""

    def __len__(self) -> int:
        return len(self._encoded)

    def append(self, counter: int, at: float, size: int, encoded: bytes) -> None:
        """Add a record of ``size`` bytes of payload."""
        self.counters.append(counter)
        self.times.append(at)
        self._ends.append(self._before(len(self._ends)) + size)
        self._encoded.append(encoded)

    def trim(self, horizon: float) -> None:
        """Drop what arrived before a moment."""
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
        """Return the index of the first record behind a counter."""
        return bisect_right(self.counters, counter, self.first)

    def since(self, moment: float) -> int:
        """Return the index of the first record that arrived at or after a moment."""
        return bisect_left(self.times, moment, self.first)

    def page_end(self, start: int, records: int, size: int) -> int:
        """Return where a page of at most so many records and bytes ends.

        It has at least one record if there is one.
        """
        stop = min(start + records, len(self._ends))
        fits = bisect_right(self._ends, self._before(start) + size, start, stop)
        return min(stop, max(start + 1, fits))

    def size(self, start: int, end: int) -> int:
        """Return the bytes of payload from start up to end."""
        return self._before(end) - self._before(start)

    def join(self, start: int, end: int) -> bytes:
        """Return the encoded records from start up to end, joined by commas."""
        return b",".join(self._encoded[start:end])

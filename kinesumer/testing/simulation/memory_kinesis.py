"""Kinesis in memory, with reshards, retention and a limit on reads."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.polling import PollingSource
from kinesumer.core.shard_end import is_past_end
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KeyUnavailableError,
    ShardMissingError,
    ShardThrottledError,
    StartInFutureError,
    StreamMissingError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard, StreamInfo
from kinesumer.wire.records import JSON_PER_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.model.streams import Start
    from kinesumer.ports import Clock, Reservation

# Limits of AWS: an iterator expires after five minutes, a page holds up to 10 MB, and
# all consumers of a shard together may read it five times a second.
ITERATOR_SECONDS = 300.0
PAGE_BYTES = 10 * 1024 * 1024
READS_PER_SECOND = 5
# After 40 records, sequence numbers have one more digit. This reveals code that
# compares them as text.
FIRST_NUMBER = 10**55 - 40


class StoredRecord(NamedTuple):
    """A record in a shard's log."""

    sequence_number: str
    data: bytes
    partition_key: str | None
    arrived_at: float


@dataclass(eq=False)
class MemoryShard:
    """One shard and its log, which keeps expired records so that indexes stay valid."""

    shard: Shard
    serial: int
    log: list[StoredRecord] = field(default_factory=list)
    # The number of expired records. They are the first ones in the log.
    trimmed: int = 0
    children: list[MemoryShard] = field(default_factory=list)
    closed_at: float | None = None
    reads: deque[float] = field(default_factory=deque)
    # Functions to call when the log grows, or when the shard or the stream ends.
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def changed(self) -> None:
        """Tell the subscriptions to look at the shard."""
        for listener in list(self.listeners):
            listener()

    @property
    def closed(self) -> bool:
        """True if the shard takes no more records."""
        return self.closed_at is not None

    def place_after(self, sequence_number: str) -> int:
        """Return the index of the first record after a sequence number."""
        return bisect_right(self.log, _order(sequence_number), key=_record_order)

    def place_at(self, sequence_number: str) -> int:
        """Return the index of the first record at or after a sequence number."""
        return bisect_left(self.log, _order(sequence_number), key=_record_order)

    def place_since(self, timestamp: float) -> int:
        """Return the index of the first record that arrived at or after a time."""
        return bisect_left(self.log, timestamp, key=attrgetter("arrived_at"))


class MemoryStream:
    """One stream, with its shards, its next sequence number and its retention."""

    def __init__(
        self,
        arn: str,
        created_at: float,
        retention_hours: float,
        first_number: int = 0,
    ) -> None:
        self.arn = arn
        self.created_at = created_at
        self.retention_hours = retention_hours
        self.status = "ACTIVE"
        # False while the stream distributes records by AUTO.
        self.routes_by_key = True
        self.shards: dict[str, MemoryShard] = {}
        # Open shards by first hash key.
        self.open: list[MemoryShard] = []
        # A stream that is created again rejects the numbers of the earlier one.
        self.first_number: int = first_number
        self.next_number: int = first_number or FIRST_NUMBER
        self._serial = 0
        # Until then, KMS refuses the use of the stream's key.
        self.key_fails_until: float = 0.0

    def require_key(self, now: float) -> None:
        """Raise KeyUnavailableError while the stream's key can't be used."""
        if now < self.key_fails_until:
            raise KeyUnavailableError(f"the key of {self.arn} is disabled; enable it")

    def add(self, first: int, last: int, parents: tuple[str, ...] = ()) -> MemoryShard:
        """Open a shard with the hash keys from ``first`` to ``last``."""
        shard_id = f"shardId-{self._serial:012}"
        shard = MemoryShard(Shard(shard_id, first, last, parents), self._serial)
        self._serial += 1
        self.shards[shard_id] = shard
        insort(self.open, shard, key=_first_hash)
        return shard

    def close(self, shard: MemoryShard, at: float) -> None:
        """Close an open shard. Its ending number is greater than its last record's."""
        self.open.remove(shard)
        shard.closed_at = at
        ending, self.next_number = str(self.next_number), self.next_number + 1
        shard.shard = shard.shard._replace(ending_sequence_number=ending)
        shard.changed()

    def route(self, hash_key: int) -> MemoryShard:
        """Return the open shard that takes a hash key."""
        index = bisect_right(self.open, hash_key, key=_first_hash)
        return self.open[index - 1]

    def shard(self, shard_id: str) -> MemoryShard:
        """Return a shard that hasn't expired. Raises ShardMissingError."""
        shard = self.shards.get(shard_id)
        if shard is None:
            raise ShardMissingError(f"{self.arn} has no shard {shard_id}")
        return shard


class MemoryKinesis:
    """Kinesis in memory. ``reads_per_second`` limits each shard; 0 means no limit."""

    def __init__(
        self,
        clock: Clock,
        *,
        account: str = "123456789012",
        region: str = "us-east-1",
        reads_per_second: int = READS_PER_SECOND,
    ) -> None:
        self.clock = clock
        self.reads_per_second = reads_per_second
        self.throttled = 0
        self._where = f"arn:aws:kinesis:{region}:{account}:stream/"
        self._streams: dict[str, MemoryStream] = {}
        # The first sequence numbers of streams that are created again.
        self._first_numbers: dict[str, int] = {}

    def create_stream(
        self, name: str, shards: int = 1, *, retention_hours: float = 24
    ) -> MemoryStream:
        """Create an active stream whose shards have equal ranges of hash keys."""
        arn = self._where + name
        first_number = self._first_numbers.get(name, 0)
        stream = MemoryStream(arn, self.clock.wall(), retention_hours, first_number)
        for index in range(shards):
            first = index * HASH_KEYS // shards
            stream.add(first, (index + 1) * HASH_KEYS // shards - 1)
        self._streams[name] = stream
        return stream

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its records."""
        stream = self._streams.pop(name)
        self._first_numbers[name] = stream.next_number
        for shard in stream.shards.values():
            shard.changed()

    def stream(self, name: str) -> MemoryStream:
        """Return the stream with a name or ARN. Raises StreamMissingError."""
        stream = self._streams.get(name.rpartition("/")[2])
        if stream is None or (name.startswith("arn:") and stream.arn != name):
            raise StreamMissingError(
                f"the stream {name} doesn't exist; create it or correct its name"
            )
        return stream

    def put(
        self,
        name: str,
        data: bytes,
        partition_key: str = "",
        explicit_hash_key: int | None = None,
    ) -> tuple[str, str]:
        """Append a record; return its shard's id and its sequence number.

        With AUTO, the partition key is without meaning, and the explicit hash key is
        the place that the service has chosen. By default, the open shards take turns.
        """
        stream = self.stream(name)
        if explicit_hash_key is None and stream.routes_by_key:
            digest = hashlib.md5(partition_key.encode(), usedforsecurity=False)
            explicit_hash_key = int.from_bytes(digest.digest(), "big")
        elif explicit_hash_key is None:
            turn = stream.next_number % len(stream.open)
            explicit_hash_key = stream.open[turn].shard.first_hash
        shard = stream.route(explicit_hash_key)
        number = str(stream.next_number)
        stream.next_number += 1
        wall = self.clock.wall()
        shard.log.append(StoredRecord(number, data, partition_key or None, wall))
        shard.changed()
        return shard.shard.shard_id, number

    def split(self, name: str, shard_id: str, at: int | None = None) -> list[str]:
        """Split an open shard, by default in the middle. Return the children's ids."""
        stream = self.stream(name)
        parent = stream.shard(shard_id)
        first, last = parent.shard.first_hash, parent.shard.last_hash
        middle = (first + last + 1) // 2 if at is None else at
        if parent.closed or not first < middle <= last:
            raise ValueError(f"{shard_id} can't be split at {middle}")
        stream.close(parent, self.clock.wall())
        halves = ((first, middle - 1), (middle, last))
        parent.children = [stream.add(*half, (shard_id,)) for half in halves]
        return [child.shard.shard_id for child in parent.children]

    def merge(self, name: str, shard_id: str, adjacent_id: str) -> str:
        """Merge an open shard and its upper neighbour. Return the child's id."""
        stream = self.stream(name)
        low, high = stream.shard(shard_id), stream.shard(adjacent_id)
        if low.closed or high.closed:
            raise ValueError(f"{shard_id} and {adjacent_id} aren't both open")
        if low.shard.last_hash + 1 != high.shard.first_hash:
            raise ValueError(f"{shard_id} and {adjacent_id} aren't neighbours")
        for parent in (low, high):
            stream.close(parent, self.clock.wall())
        both = (shard_id, adjacent_id)
        child = stream.add(low.shard.first_hash, high.shard.last_hash, both)
        low.children = high.children = [child]
        return child.shard.shard_id

    def expire(self, name: str, before: float) -> None:
        """Expire records older than a time, and shards closed before that time."""
        stream = self.stream(name)
        for shard in list(stream.shards.values()):
            shard.trimmed = max(shard.trimmed, shard.place_since(before))
            if shard.closed_at is not None and shard.closed_at < before:
                del stream.shards[shard.shard.shard_id]

    def apply_retention(self) -> None:
        """Expire the records in each stream that are older than its retention."""
        for name, stream in self._streams.items():
            self.expire(name, self.clock.wall() - stream.retention_hours * 3600)

    def source(self, name: str) -> MemorySource:
        """Return a ports.StreamSource for the stream with a name or ARN."""
        return MemorySource(self, name)


class MemorySource(PollingSource):
    """A ports.StreamSource for one stream of a MemoryKinesis."""

    kinesis: MemoryKinesis
    name: str

    def __init__(self, kinesis: MemoryKinesis, name: str) -> None:
        self.kinesis, self.name = kinesis, name

    async def describe(self) -> StreamInfo:
        """Return the stream as it is now. Raises StreamMissingError."""
        return self.describe_now()

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that hasn't expired."""
        return self.list_shards_now()

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once, since the number of connections is unlimited."""
        return nullcontext()

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        return self.get_iterator_now(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raises ExpiredIteratorError, ShardThrottledError."""

        async def read(place: str) -> tuple[Page, None]:
            page = self.get_records_now(place, limit)
            if reservation is not None and not reservation.covers(page.wire_bytes):
                await reservation.grow(page.wire_bytes)
            return page, None

        page, _ = await self._read_confirmed(iterator, read)
        return page

    # --- the same without a coroutine, for the simulator ---

    def describe_now(self) -> StreamInfo:
        """Return the stream as it is now. Raises StreamMissingError."""
        stream = self.kinesis.stream(self.name)
        now = self.kinesis.clock.wall()
        info = StreamInfo(
            stream.arn,
            stream.status,
            stream.created_at,
            now=now,
            routes_by_key=stream.routes_by_key,
        )
        # The retention may be a fraction of an hour, since simulations take minutes.
        return info._replace(retention_hours=stream.retention_hours)  # type: ignore[arg-type]

    def list_shards_now(self) -> list[Shard]:
        """Return every shard that hasn't expired."""
        stream = self.kinesis.stream(self.name)
        return [shard.shard for shard in stream.shards.values()]

    def get_iterator_now(
        self, shard_id: str, after: Position | Start, *, skew: float = 0.0
    ) -> str:
        """Return an iterator that expires in five minutes.

        The clock of the server that answers is ``skew`` seconds fast.
        """
        shard = self.kinesis.stream(self.name).shard(shard_id)
        return self._iterator(shard, self.index_of(shard, after, skew))

    def get_records_now(self, iterator: str, limit: int) -> Page:
        """Return the next page of a shard."""
        clock = self.kinesis.clock
        stream = self.kinesis.stream(self.name)
        created, shard_id, at, issued = iterator.split("|")
        now = clock.now()
        if created != repr(stream.created_at):
            raise ExpiredIteratorError(
                f"the iterator was issued for a deleted stream named {stream.arn}"
            )
        if float(issued) < now - ITERATOR_SECONDS:
            raise ExpiredIteratorError(f"the iterator of {shard_id} has expired")
        shard = stream.shard(shard_id)
        self._limit_reads(shard, now)
        stream.require_key(now)
        index = max(int(at), shard.trimmed)
        stored = _page(shard.log, index, limit)
        index += len(stored)
        at_end = index == len(shard.log)
        behind = 0 if at_end else int(1000 * (clock.wall() - stored[-1].arrived_at))
        # Approximate length of the answer's body, which is JSON with base64 data.
        data_bytes = sum([len(record.data) for record in stored])
        size = data_bytes * 4 // 3 + JSON_PER_RECORD * 4 // 3 * len(stored)
        records = [Record(*record) for record in stored]
        if shard.closed and at_end:
            return Page(records, None, 0, _children(shard), size)
        following = self._iterator(shard, index)
        return Page(records, following, behind, (), size)

    def index_of(
        self, shard: MemoryShard, after: Position | Start, skew: float = 0.0
    ) -> int:
        """Return the index of the first record to read.

        Raises TrimmedPositionError, InvalidPositionError, StartInFutureError.
        """
        if isinstance(after, Position):
            return self._index_of(shard, after)
        if after.type == "LATEST":
            return len(shard.log)
        if after.type == "TRIM_HORIZON" or after.timestamp is None:
            return shard.trimmed
        now = self.kinesis.clock.wall() + skew
        if after.timestamp > now:
            raise StartInFutureError(
                f"{self.name}/{shard.shard.shard_id}: {after.timestamp} is later than "
                f"{now}, the time of Kinesis"
            )
        # Round the timestamp down to whole seconds, as some implementations do.
        return max(shard.trimmed, shard.place_since(after.timestamp // 1))

    def _index_of(self, shard: MemoryShard, after: Position) -> int:
        number = after.sequence_number
        if int(number) < self.kinesis.stream(self.name).first_number:
            raise InvalidPositionError(
                f"{number} did not come from {self.name}; use a number of this stream"
            )
        if is_past_end(shard.shard, after):
            raise InvalidPositionError(
                f"{number} has reached the maximum of {shard.shard.shard_id}, a closed "
                "shard; use a lower number, or read its children"
            )
        if shard.place_at(number) < shard.trimmed:
            raise TrimmedPositionError(
                f"{self.name}/{shard.shard.shard_id}: {number} has expired"
            )
        if after.sub_sequence_number is None:
            return shard.place_after(number)
        return shard.place_at(number)

    def _iterator(self, shard: MemoryShard, index: int) -> str:
        created = self.kinesis.stream(self.name).created_at
        now = self.kinesis.clock.now()
        return f"{created!r}|{shard.shard.shard_id}|{index}|{now!r}"

    def _limit_reads(self, shard: MemoryShard, now: float) -> None:
        limit, reads = self.kinesis.reads_per_second, shard.reads
        while reads and reads[0] <= now - 1:
            reads.popleft()
        if limit and len(reads) >= limit:
            self.kinesis.throttled += 1
            raise ShardThrottledError(
                f"{self.name}/{shard.shard.shard_id}: more than {limit} reads a second"
            )
        reads.append(now)


def _page(log: list[StoredRecord], index: int, limit: int) -> list[StoredRecord]:
    records = log[index : index + limit]
    size = 0
    for count, record in enumerate(records):
        size += len(record.data)
        if size > PAGE_BYTES and count:
            return records[:count]
    return records


def _children(shard: MemoryShard) -> tuple[Shard, ...]:
    return tuple(
        child.shard._replace(ending_sequence_number=None) for child in shard.children
    )


def _first_hash(shard: MemoryShard) -> int:
    return shard.shard.first_hash


def _order(sequence_number: str) -> tuple[int, str]:
    return len(sequence_number), sequence_number


def _record_order(record: StoredRecord) -> tuple[int, str]:
    return _order(record.sequence_number)

"""KPL aggregates: many user records in one Kinesis record.

The data of such a record are four magic bytes, a protobuf message, and the message's
MD5 digest::

    message AggregatedRecord {
      repeated string partition_key_table = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records = 3;
    }
    message Record {
      required uint64 partition_key_index = 1;
      optional uint64 explicit_hash_key_index = 2;
      required bytes data = 3;
      repeated Tag tags = 4;
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from hashlib import md5
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kinesumer.model.records import PackedRecords, Record, Source
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.aggregate_readers import (
    KEPT_TEXTS,
    STEP_RECORDS,
    Part,
    check_any,
    check_common,
)
from kinesumer.wire.page_records import PageRecords

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = md5(usedforsecurity=False).digest_size
# So much data is opened in one step. Its digest takes about a millisecond.
STEP_BYTES = 512 * 1024
# Aggregates of packed records are opened without objects. A step then has so many user
# records, and so much data. The KPL writes no larger aggregates.
PACKED_RECORDS, PACKED_BYTES = 10_000, 1024 * 1024
# Maximum number of a step's partition keys that are hashed, as long as none of them is
# outside the shard's range. If half of the keys are, one sample in 256 misses that.
KEYS_HASHED = 8


class OpenedRecords(NamedTuple):
    """User records of a page."""

    records: Sequence[Record]
    # The sequence number of the last Kinesis record, even if this held no user record.
    # When all user records are done, the shard is done up to this number. None if there
    # are no records, or if the last one is not the last of its Kinesis record.
    last: str | None
    # Number of aggregated records whose hash keys lie outside the shard's range.
    outside: int
    # The Kinesis records that begin like an aggregate, but can't be opened.
    unopened: list[Record]


class OpeningStep(NamedTuple):
    """The result of one step of opening a page. It may have opened no records."""

    opened: OpenedRecords
    data_bytes: int  # data of the Kinesis records that were opened to their ends
    done: int  # number of these Kinesis records
    held_bytes: int  # memory that the opening of the next Kinesis record holds


def open_in_steps(
    records: Iterable[Record], source: Source | None
) -> Iterator[OpeningStep]:
    """Set each record's source, and replace aggregates by their user records.

    Each step takes a few milliseconds. Data that can't be opened is delivered
    unchanged. ``outside`` counts only records within aggregates. For other records,
    Kinesis doesn't return an explicit hash key. Without a source, it counts nothing.
    """
    if isinstance(records, PageRecords):
        return _open_packed(records, source)
    return _open_objects(records, source)


def _open_packed(records: PageRecords, source: Source | None) -> Iterator[OpeningStep]:
    """Open aggregates into packed records, except those that must become objects."""
    if not records.has_aggregates:
        whole = with_source(records, source)
        yield OpeningStep(whole, records.data_bytes, len(records), 0)
        return
    records.source = source
    outside, first = _OutsideCounter(source), 0
    while first < len(records):
        most = PACKED_RECORDS, PACKED_BYTES
        opened, stop, hash_keys = records.opened(first, MAGIC, _is_intact, most)
        if stop > first:
            outside.add(opened, hash_keys)
            last = records[stop - 1].sequence_number
            yield from _packed_steps(opened, last, outside.take())
        else:
            for step in _open_objects([records[first]], source):
                yield step._replace(data_bytes=0, done=0)
            stop += 1
        first = stop
    # The memory of the page is not free before.
    yield OpeningStep(NOTHING, records.data_bytes, len(records), 0)


def _packed_steps(
    records: PageRecords, last: str, outside: int
) -> Iterator[OpeningStep]:
    """Yield opened records. One aggregate may have more of them than a step."""
    for begin in range(0, max(1, len(records)), PACKED_RECORDS):
        part = records[begin : begin + PACKED_RECORDS]
        end = last if begin + PACKED_RECORDS >= len(records) else None
        yield OpeningStep(OpenedRecords(part, end, outside, []), 0, 0, 0)
        outside = 0


def _is_intact(data: memoryview) -> bool:
    """Return whether an aggregate has its digest, and isn't too large for one step."""
    message = data[len(MAGIC) : -DIGEST_BYTES]
    return len(data) <= PACKED_BYTES and md5_digest(message) == data[-DIGEST_BYTES:]


def _open_objects(
    records: Iterable[Record], source: Source | None
) -> Iterator[OpeningStep]:
    step = _Step(source)
    for record in records:
        record.source = source
        parts: Iterator[Part] | None = None
        held_bytes = 0
        if record.data.startswith(MAGIC):
            frame = _Frame(record)
            for held_bytes in frame.check():
                yield OpeningStep(NOTHING, 0, 0, held_bytes)
            parts = frame.parts
            if parts is None:
                step.unopened.append(record)
        if parts is None:
            step.records.append(record)
        for part in parts or ():
            if step.records and len(step.records) + len(part.records) > STEP_RECORDS:
                yield step.take(held_bytes)
            step.add(part)
        if step.finish(record):
            yield step.take()
    if step.count:
        yield step.take()


NOTHING = OpenedRecords([], None, 0, [])


def open_all(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Replace aggregates by their user records, also those of several shards.

    Each record keeps its source. Return the user records in their order, and the
    records that begin like an aggregate but can't be opened.
    """
    opened: list[Record] = []
    unopened: list[Record] = []
    for source, group in groupby(records, attrgetter("source")):
        for step in open_in_steps(group, source):
            opened += step.opened.records
            unopened += step.opened.unopened
    return opened, unopened


class _Step:
    """Collects the results of one step after the other."""

    def __init__(self, source: Source | None) -> None:
        self.records: list[Record] = []
        self.unopened: list[Record] = []
        self.count = self._data_bytes = 0
        self._last: str | None = None
        self._outside = _OutsideCounter(source)

    def add(self, part: Part) -> None:
        """Add user records of an aggregate that ``finish()`` is called for later."""
        if part.records:
            self._outside.add(part.records, part.hash_keys())
            self.records += part.records
            self._last = None

    def finish(self, record: Record) -> bool:
        """Count a Kinesis record as opened, and return whether the step ends here."""
        self.count += 1
        self._data_bytes += len(record.data)
        self._last = record.sequence_number
        return self._data_bytes >= STEP_BYTES or len(self.records) >= STEP_RECORDS

    def take(self, held_bytes: int = 0) -> OpeningStep:
        """Return the step, and begin the next one."""
        outside = self._outside.take()
        opened = OpenedRecords(self.records, self._last, outside, self.unopened)
        step = OpeningStep(opened, self._data_bytes, self.count, held_bytes)
        self.records, self.unopened, self._last = [], [], None
        self.count = self._data_bytes = 0
        return step


class _Frame:
    """An aggregate, which is read to its end before its user records are returned."""

    def __init__(self, record: Record) -> None:
        self._record = record
        # Its user records after ``check()``; None if it can't be opened.
        self.parts: Iterator[Part] | None = None

    def check(self) -> Iterator[int]:
        """Read the aggregate, and yield the held memory in bytes after each step."""
        data = self._record.data
        message = data[len(MAGIC) : -DIGEST_BYTES]
        found = md5(message[:STEP_BYTES], usedforsecurity=False)
        for first in range(STEP_BYTES, len(message), STEP_BYTES):
            yield 0
            found.update(message[first : first + STEP_BYTES])
        if found.digest() != data[len(MAGIC) + len(message) :]:
            return
        for check in (check_common, check_any):
            try:
                self.parts = yield from check(self._record, message)
            except (LookupError, ValueError):
                continue
            return


def with_source(records: Sequence[Record], source: Source | None) -> OpenedRecords:
    """Set every record's source, and leave aggregates unopened."""
    if isinstance(records, PackedRecords):
        records.source = source
    else:
        for record in records:
            record.source = source
    last = records[-1].sequence_number if records else None
    return OpenedRecords(records, last, 0, [])


def has_aggregates(records: Sequence[Record]) -> bool:
    """Return whether any data begins like an aggregate."""
    if isinstance(records, PackedRecords):
        return isinstance(records, PageRecords) and records.has_aggregates
    # A comparison takes a quarter of the time of startswith(), and leaves few records
    # for which startswith() is needed.
    high = [record.data for record in records if record.data >= MAGIC]
    return any(data.startswith(MAGIC) for data in high)


def md5_digest(data: bytes | memoryview) -> bytes:
    """Return the MD5 digest of data."""
    # A host in FIPS mode forbids MD5 for security, but allows it for checksums.
    return md5(data, usedforsecurity=False).digest()


class _OutsideCounter:
    """Counts aggregated records whose hash keys lie outside the shard's range."""

    def __init__(self, source: Source | None) -> None:
        self._count = 0
        self._first, self._last = 0, HASH_KEYS - 1
        if source is not None:
            self._first, self._last = source.first_hash, source.last_hash
        # True if the stream has only one shard, or if the shard isn't known. In this
        # case no key needs to be hashed.
        self._has_all = (self._first, self._last) == (0, HASH_KEYS - 1)
        # Which pairs of a partition key and an explicit hash key lie outside. Each key
        # is hashed once, since a producer may use a long key for many records.
        self._known: dict[tuple[str, str | None], bool] = {}

    def take(self) -> int:
        """Return how many records were counted since the last call."""
        count, self._count = self._count, 0
        return count

    def add(self, records: Sequence[Record], hash_keys: Set[str]) -> None:
        """Count the aggregated records among some that lie outside the shard's range.

        Their explicit hash keys are among ``hash_keys``.
        """
        if self._has_all or not records:
            return
        # Hashing every partition key would take as much time as all other work. So
        # eight keys are hashed, evenly spread over the records. If one of them is
        # outside, all keys are hashed. If half of the keys are outside, this is missed
        # in one of 256 cases. Explicit hash keys need no hashing.
        sample = records[:: -(-len(records) // KEYS_HASHED)]
        pairs = {*_hashed(sample), *(("", hash_key) for hash_key in hash_keys)}
        if any(map(self._is_outside, pairs)):
            counts = Counter(_hashed(records))
            self._count += sum(
                count * self._is_outside(pair) for pair, count in counts.items()
            )

    def _is_outside(self, pair: tuple[str, str | None]) -> bool:
        known = self._known.get(pair)
        if known is None:
            if len(self._known) >= KEPT_TEXTS:
                self._known.clear()
            known = not self._first <= hash_key_of(*pair) <= self._last
            self._known[pair] = known
        return known


def _hashed(records: Iterable[Record]) -> Iterator[tuple[str, str | None]]:
    """Yield what the hash keys of aggregated records are made of."""
    for record in records:
        if record.sub_sequence_number is not None:
            yield record.partition_key or "", record.explicit_hash_key


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key that Kinesis uses for a record."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(md5_digest(partition_key.encode()))

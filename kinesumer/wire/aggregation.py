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

There are two readers: a fast one for the layout that producers write, and one for every
valid message. Both require only what a user record needs: its data and its partition
key. Writers other than the KPL fill the remaining fields as they like. A hash key that
isn't a number, or isn't in the table, counts as missing.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import md5
from io import SEEK_CUR, BytesIO
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.records import Record, Source
from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
# Maximum number of an aggregate's partition keys that are hashed, as long as none of
# them is outside the shard's range.
KEYS_HASHED = 8
# Groups within groups that are skipped. Protobuf's own readers have the same limit.
MAX_GROUPS = 100

_KEY, _HASH, _RECORD = 0x0A, 0x12, 0x1A
_KEY_INDEX, _HASH_INDEX, _DATA = 0x08, 0x10, 0x1A


class OpenedRecords(NamedTuple):
    """A page's user records."""

    records: list[Record]
    # The sequence number of the last Kinesis record, even if this held no user record,
    # or None if the page had no records. When all user records are done, the shard is
    # done up to this number.
    last: str | None
    # Number of aggregated records whose hash keys lie outside the shard's range.
    outside: int
    # The Kinesis records that begin like an aggregate, but can't be opened.
    unopened: list[Record]


def open_records(records: list[Record], source: Source) -> OpenedRecords:
    """Set every record's source, and replace aggregates by their user records.

    Data that can't be opened is delivered unchanged. ``outside`` counts only records
    within aggregates. For other records, Kinesis doesn't return an explicit hash key.
    """
    as_read = with_source(records, source)
    if not has_aggregates(records):
        return as_read
    opened: list[Record] = []
    failed: list[Record] = []
    count = _OutsideCounter(source)
    for record in records:
        is_aggregate = record.data.startswith(MAGIC)
        parts = _open(record, count) if is_aggregate else None
        if parts is not None:
            opened += parts
            continue
        opened.append(record)
        if is_aggregate:
            failed.append(record)
    return OpenedRecords(opened, as_read.last, count.total, failed)


def with_source(records: list[Record], source: Source) -> OpenedRecords:
    """Set every record's source, and leave aggregates unopened."""
    for record in records:
        record.source = source
    last = records[-1].sequence_number if records else None
    return OpenedRecords(records, last, 0, [])


def has_aggregates(records: list[Record]) -> bool:
    """Return whether any data begins like an aggregate."""
    # A comparison takes a quarter of the time of startswith(), and leaves few records
    # for which startswith() is needed.
    high = [record.data for record in records if record.data >= MAGIC]
    return any(data.startswith(MAGIC) for data in high)


def take_piece(records: list[Record], most_bytes: int) -> list[Record]:
    """Remove and return the first records, up to a size but at least one record."""
    size = count = 0
    for record in records:
        size += len(record.data)
        if size > most_bytes and count:
            break
        count += 1
    piece = records[:count]
    del records[:count]
    return piece


def _open(record: Record, count: _OutsideCounter) -> list[Record] | None:
    """Return the user records, or None if the record isn't an aggregate."""
    message = record.data[len(MAGIC) : -DIGEST_BYTES]
    if md5_digest(message) != record.data[len(MAGIC) + len(message) :]:
        return None
    for read in (_read_common, _read_any):
        try:
            parts, hashes = read(record, message)
        except (LookupError, ValueError):
            continue
        count.add(parts, hashes)
        return parts
    return None


def md5_digest(data: bytes) -> bytes:
    """Return the MD5 digest of data."""
    # A host in FIPS mode forbids MD5 for security, but allows it for checksums.
    return md5(data, usedforsecurity=False).digest()


def _read_common(
    record: Record, message: bytes
) -> tuple[list[Record], list[str | None]]:
    """Read a message whose tables come first and whose varints take one or two bytes.

    Partition keys must be UTF-8. Return the user records and the table of hash keys.
    Raise ValueError or LookupError for any other message. Reading from a stream takes
    half the time of slicing.
    """
    number, arrived = record.sequence_number, record.approximate_arrival_timestamp
    source, heads = record.source, _heads()
    stream = BytesIO(message)
    read = stream.read
    keys, hashes = _read_tables(stream)
    opened: list[Record] = []
    add, part, user, length = opened.append, 0, b"", 0
    while head := read(6):
        hash_key = None
        known = heads.get(head)
        if known is not None:
            key, length = known
        else:
            key, entry, length = _read_head(stream, message, stream.tell() - len(head))
            hash_key = _entry(hashes, entry)
        user = read(length)
        add(Record(number, user, keys[key], arrived, hash_key, part, source))
        part += 1
    if len(user) != length:  # only the last record can be truncated
        raise ValueError
    return opened, hashes


@cache
def _heads() -> dict[bytes, tuple[int, int]]:
    """Map the six bytes before a record's data to the key index and the data's length.

    The map covers user records with a small index, little data and no hash key.
    """
    return {
        bytes((_RECORD, length + 4, _KEY_INDEX, key, _DATA, length)): (key, length)
        for key in range(128)
        for length in range(124)
    }


def _read_tables(stream: BytesIO) -> tuple[list[str], list[str | None]]:
    """Return the partition keys and hash keys, and seek to the first user record."""
    read = stream.read
    keys: list[str] = []
    hashes: list[str | None] = []
    while True:
        tag, size = read(2)
        if tag == _RECORD:
            stream.seek(-2, SEEK_CUR)
            return keys, hashes
        if size > 127:
            size = _two_bytes(size, read(1)[0])
        if tag == _KEY:
            keys.append(read(size).decode())
        elif tag == _HASH:
            hashes.append(_hash_key(read(size)))
        else:
            raise ValueError


def _read_head(stream: BytesIO, message: bytes, at: int) -> tuple[int, int | None, int]:
    """Return a user record's key index, hash key index and data length.

    Leave the stream at the start of the data.
    """
    tag, at, size = _read_field(message, at)
    stop = at + size
    key_tag, at, key = _read_field(message, at)
    data_tag, at, size = _read_field(message, at)
    entry = None
    if data_tag == _HASH_INDEX:
        entry = size
        data_tag, at, size = _read_field(message, at)
    if (tag, key_tag, data_tag) != (_RECORD, _KEY_INDEX, _DATA) or at + size != stop:
        raise ValueError
    stream.seek(at)
    return key, entry, size


def _read_field(data: bytes, at: int) -> tuple[int, int, int]:
    """Return a field's tag, the end of its number, and the number.

    The number has one or two bytes.
    """
    number = data[at + 1]
    if number < 128:
        return data[at], at + 2, number
    return data[at], at + 3, _two_bytes(number, data[at + 2])


def _two_bytes(low: int, high: int) -> int:
    if high > 127:
        raise ValueError
    return low + (high << 7) - 128


def _read_any(record: Record, data: bytes) -> tuple[list[Record], list[str | None]]:
    """Read any valid message: entries in any order, and unknown fields.

    Raise ValueError or LookupError if the message is invalid.
    """
    keys: list[str] = []
    hashes: list[str | None] = []
    parts: list[tuple[int, int | None, bytes]] = []
    for tag, value, stop in _fields(data, 0, len(data)):
        if tag == _KEY:
            # Two keys that aren't UTF-8 may become equal, as in the KCL.
            keys.append(data[value:stop].decode(errors="replace"))
        elif tag == _HASH:
            hashes.append(_hash_key(data[value:stop]))
        elif tag == _RECORD:
            parts.append(_part(data, value, stop))
    opened = [
        Record(
            record.sequence_number,
            user,
            keys[key],
            record.approximate_arrival_timestamp,
            _entry(hashes, entry),
            index,
            record.source,
        )
        for index, (key, entry, user) in enumerate(parts)
    ]
    return opened, hashes


def _part(data: bytes, at: int, end: int) -> tuple[int, int | None, bytes]:
    """Return one user record's partition key index, hash key index and data."""
    key = entry = user = None
    for tag, value, stop in _fields(data, at, end):
        if tag == _KEY_INDEX:
            key = value
        elif tag == _HASH_INDEX:
            entry = value
        elif tag == _DATA:
            user = data[value:stop]
    if key is None or user is None:
        raise ValueError
    return key, entry, user


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field's tag and either its number or its start and end.

    Groups, which protobuf has deprecated, are skipped with all fields in them.
    """
    groups: list[int] = []  # the numbers of the groups that have begun
    while at < end:
        tag, at = _varint(data, at, min(end, at + 5))
        kind = tag & 7
        if not 8 <= tag < 1 << 32:
            raise ValueError
        if kind == 0:
            value, at = _varint(data, at, end)
            if not groups:
                yield tag, value, at
            continue
        if kind in (_GROUP, _GROUP_END):
            _nest(groups, tag)
            continue
        size = _SIZES[kind]
        if size is None:
            size, at = _varint(data, at, min(end, at + 5))
        if size > end - at:
            raise ValueError
        if not groups:
            yield tag, at, at + size
        at += size
    if groups:
        raise ValueError


_GROUP, _GROUP_END = 3, 4
# The size of a value of each other kind; None if the value begins with its size.
_SIZES: dict[int, int | None] = {1: 8, 2: None, 5: 4}


def _nest(groups: list[int], tag: int) -> None:
    """Begin a group, or end the last one."""
    number, kind = divmod(tag, 8)
    if kind == _GROUP:
        groups.append(number)
    elif groups.pop() != number:
        raise ValueError
    if len(groups) > MAX_GROUPS:
        raise ValueError


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a varint of up to ten bytes, and the offset of its end."""
    value = 0
    for index in range(at, min(end, at + 10)):
        byte = data[index]
        value |= (byte & 127) << 7 * (index - at)
        if byte < 128:
            return value, index + 1
    raise ValueError


def _hash_key(text: bytes) -> str | None:
    """Return a hash key's text, or None for any other text."""
    # JavaScript writes "undefined" for records without a hash key.
    is_valid = text.isdigit() and len(text) < 40 and int(text) < HASH_KEYS
    return text.decode() if is_valid else None


def _entry(hashes: list[str | None], index: int | None) -> str | None:
    """Return a user record's hash key. Some writers set an index without a table."""
    if index is None or index >= len(hashes):
        return None
    return hashes[index]


class _OutsideCounter:
    """Counts aggregated records whose hash keys lie outside the shard's range."""

    def __init__(self, source: Source) -> None:
        self.total = 0
        self._first, self._last = source.first_hash, source.last_hash
        # True if the stream has only one shard. In this case no key needs to be hashed.
        self._has_all = (self._first, self._last) == (0, HASH_KEYS - 1)
        # The page's partition keys that were hashed and are in range.
        self._inside: set[str] = set()

    def add(self, parts: list[Record], hashes: list[str | None]) -> None:
        """Count an aggregate's records whose hash keys lie outside the shard's range.

        ``hashes`` are the aggregate's explicit hash keys.
        """
        if self._has_all or not parts:
            return
        # Hashing every partition key would take as much time as all other work. So
        # eight keys are hashed, evenly spread over the aggregate. If one of them is
        # outside, all keys are hashed. If half of an aggregate's keys are outside, this
        # is missed in one of 256 cases.
        sample = parts[:: -(-len(parts) // KEYS_HASHED)]
        keys = {p.partition_key or "" for p in sample if p.explicit_hash_key is None}
        keys -= self._inside
        explicit = [int(text) for text in hashes if text is not None]
        if any(map(self._misses, [*explicit, *map(hash_key_of, keys)])):
            # Hash each key only once, since a producer may use a long key for many
            # records.
            pairs = Counter((p.partition_key or "", p.explicit_hash_key) for p in parts)
            self.total += sum(
                count * self._misses(hash_key_of(*pair))
                for pair, count in pairs.items()
            )
        else:
            self._inside |= keys

    def _misses(self, hash_key: int) -> bool:
        return not self._first <= hash_key <= self._last


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return the hash key that Kinesis uses for a record."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(md5_digest(partition_key.encode()))

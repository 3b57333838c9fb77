"""KPL aggregates: many user records in one Kinesis record.

A frame is four bytes of magic, a protobuf message and the message's MD5::

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

Two readers: one for the layout that producers write, one for all that is allowed.
"""

from __future__ import annotations

from functools import partial
from hashlib import md5
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model import HASH_KEYS, Record, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
KEYS_HASHED = 8
"""Partition keys of an aggregate that are hashed while all of them are in range."""

# A host that allows no MD5 for security (FIPS) allows it for checksums.
_md5 = partial(md5, usedforsecurity=False)

_KEY, _HASH, _RECORD = 0x0A, 0x12, 0x1A
_KEY_INDEX, _HASH_INDEX, _DATA = 0x08, 0x10, 0x1A


class Opened(NamedTuple):
    """A page's user records."""

    records: list[Record]
    last: str | None
    """The last Kinesis record's sequence number, even if it held no user record: once
    all records are done the shard is done up to and including it. None: no records."""
    outside: int
    """Records of aggregates whose hash key lies outside the shard's range."""


def open_records(records: list[Record], source: Source) -> Opened:
    """Give every record its source, and aggregates' user records in their place.

    Data that isn't a valid aggregate, whatever it begins with, is delivered as it is.

    ``outside`` counts records within aggregates only: the hash key of any other record
    isn't known. Hashing every partition key would cost as much as all the rest, so of
    an aggregate's keys eight are hashed, evenly spread, and all as soon as one of them
    is outside. An aggregate half of which is outside is missed once in 256 times.
    """
    for record in records:
        record.source = source
    last = records[-1].sequence_number if records else None
    # Comparing costs a quarter of startswith(), and leaves few to look at.
    high = [record.data for record in records if record.data >= MAGIC]
    if not any(data.startswith(MAGIC) for data in high):
        return Opened(records, last, 0)
    opened: list[Record] = []
    outside = 0
    for record in records:
        parts = _open(record) if record.data.startswith(MAGIC) else None
        if parts is None:
            opened.append(record)
        else:
            opened += parts
            outside += _outside(parts, source)
    return Opened(opened, last, outside)


def _open(record: Record) -> list[Record] | None:
    """Return the user records, or None if this is no aggregate."""
    data = record.data
    end = len(data) - DIGEST_BYTES
    if end < len(MAGIC) or _md5(data[len(MAGIC) : end]).digest() != data[end:]:
        return None
    try:
        return _read_common(record, data, end)
    except (IndexError, ValueError):
        pass
    try:
        return _read_any(record, data, end)
    except (IndexError, ValueError):
        return None


def _read_common(record: Record, data: bytes, end: int) -> list[Record]:
    """Read a frame whose tables come first and whose varints take one or two bytes.

    Raises ValueError or IndexError for any other frame. The digest behind ``end`` lets
    it look ahead unchecked; where an entry ends is checked against ``end`` at the end,
    for entries only move on.
    """
    number, arrived = record.sequence_number, record.approximate_arrival_timestamp
    source = record.source
    at, keys, hashes = _read_tables(data, end)
    opened: list[Record] = []
    add, part = opened.append, 0
    while at < end:
        tag, size, key_tag, key, data_tag, length = _six_bytes(data, at)
        hash_key = None
        if (
            size == length + 4
            and length < 124
            and key < 128
            and tag == _RECORD
            and key_tag == _KEY_INDEX
            and data_tag == _DATA
        ):
            at += 6
            stop = at + length
        else:
            key, entry, at, stop = _read_entry(data, at)
            if entry is not None:
                hash_key = hashes[entry]
        user = data[at:stop]
        add(Record(number, user, keys[key], arrived, hash_key, part, source))
        part += 1
        at = stop
    if at != end:
        raise ValueError
    return opened


_six_bytes = Struct("6B").unpack_from


def _read_tables(data: bytes, end: int) -> tuple[int, list[str], list[str]]:
    """Return where the user records begin, the partition keys and the hash keys."""
    at = len(MAGIC)
    keys: list[str] = []
    hashes: list[str] = []
    while at < end and (tag := data[at]) != _RECORD:
        size = data[at + 1]
        at += 2
        if size > 127:
            size = _two_bytes(size, data[at])
            at += 1
        stop = at + size
        if tag == _KEY:
            keys.append(data[at:stop].decode())
        elif tag == _HASH:
            hashes.append(_hash_key(data[at:stop]))
        else:
            raise ValueError
        at = stop
    return at, keys, hashes


def _read_entry(data: bytes, at: int) -> tuple[int, int | None, int, int]:
    """Return a user record's key index, hash key index, and where its data is."""
    tag, at, size = _read_head(data, at)
    stop = at + size
    key_tag, at, key = _read_head(data, at)
    data_tag, at, size = _read_head(data, at)
    entry = None
    if data_tag == _HASH_INDEX:
        entry = size
        data_tag, at, size = _read_head(data, at)
    if (tag, key_tag, data_tag) != (_RECORD, _KEY_INDEX, _DATA) or at + size != stop:
        raise ValueError
    return key, entry, at, stop


def _read_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return a tag, where its number of one or two bytes ends, and the number."""
    number = data[at + 1]
    if number < 128:
        return data[at], at + 2, number
    return data[at], at + 3, _two_bytes(number, data[at + 2])


def _two_bytes(low: int, high: int) -> int:
    if high > 127:
        raise ValueError
    return low + (high << 7) - 128


def _read_any(record: Record, data: bytes, end: int) -> list[Record]:
    """Read any valid frame: entries in any order, fields that we don't know.

    Raises ValueError or IndexError if it isn't valid.
    """
    keys: list[str] = []
    hashes: list[str] = []
    parts: list[tuple[int, int | None, bytes]] = []
    for tag, value, stop in _fields(data, len(MAGIC), end):
        if tag == _KEY:
            keys.append(data[value:stop].decode())
        elif tag == _HASH:
            hashes.append(_hash_key(data[value:stop]))
        elif tag == _RECORD:
            parts.append(_part(data, value, stop))
    return [
        Record(
            record.sequence_number,
            user,
            keys[key],
            record.approximate_arrival_timestamp,
            None if entry is None else hashes[entry],
            place,
            record.source,
        )
        for place, (key, entry, user) in enumerate(parts)
    ]


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
    """Yield each field's tag, and its number, or its start and its end.

    Groups, which protobuf has given up, count as invalid.
    """
    while at < end:
        tag, at = _varint(data, at, min(end, at + 5))
        kind = tag & 7
        if not 8 <= tag < 1 << 32:
            raise ValueError
        if kind == 0:
            value, at = _varint(data, at, end)
            yield tag, value, at
            continue
        if kind == 2:
            size, at = _varint(data, at, min(end, at + 5))
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError
        if size > end - at:
            raise ValueError
        yield tag, at, at + size
        at += size


_FIXED = {1: 8, 5: 4}


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of up to ten bytes and where it ends."""
    value = 0
    for place in range(at, min(end, at + 10)):
        byte = data[place]
        value |= (byte & 127) << 7 * (place - at)
        if byte < 128:
            return value, place + 1
    raise ValueError


def _hash_key(text: bytes) -> str:
    if not (text.isdigit() and len(text) < 40 and int(text) < HASH_KEYS):
        raise ValueError
    return text.decode()


def _outside(parts: list[Record], source: Source) -> int:
    """Count the records of one aggregate whose hash key isn't in the shard's range."""
    first, last = source.first_hash, source.last_hash
    if not parts or (first == 0 and last == HASH_KEYS - 1):
        return 0
    given = [part.explicit_hash_key for part in parts]
    sample = {p.partition_key: p for p in parts[:: -(-len(parts) // KEYS_HASHED)]}
    hashed = [_hash_of(part) for part in sample.values()]
    if given.count(None) < len(given):
        hashed += [int(hash_key) for hash_key in set(given) if hash_key is not None]
    if first <= min(hashed) and max(hashed) <= last:
        return 0
    return sum(not first <= _hash_of(part) <= last for part in parts)


def _hash_of(part: Record) -> int:
    return hash_key_of(part.partition_key or "", part.explicit_hash_key)


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """Return where in the hash space Kinesis puts a record."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    return int.from_bytes(_md5(partition_key.encode()).digest())

"""Read the messages of KPL aggregates in steps of limited work and memory.

There are two readers: a fast one for the layout that producers write, and one for every
valid message. Both require only what a user record needs: its data and its partition
key. Writers other than the KPL fill the remaining fields as they like. A hash key that
isn't a number, or isn't in the table, counts as missing.

A message is valid or not as a whole, so it is read to its end before a user record is
returned. Producers choose how many user records a message has: 10 MiB may hold 1.7
million, whose records would take 70 times as much memory. So only the first ones are
kept meanwhile. If there are more, the message is read again, step by step.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Set
from enum import IntEnum
from functools import cache
from io import SEEK_CUR, BytesIO
from typing import NamedTuple

from kinesumer.model.records import RECORD_OVERHEAD_BYTES, Record
from kinesumer.model.streams import HASH_KEYS

Text = str | None

# The user records of one step, and the fields that are examined in one. Each takes a
# few milliseconds, also if each field is written in an unusual way.
STEP_RECORDS, STEP_FIELDS = 2000, 1000
# The steps of which the user records are kept until the message has been read. They
# take up to 8 MB, RECORD_OVERHEAD_BYTES each, and save a second reading.
KEPT_STEPS = 10
# The fast reader reads no more entries in the tables of a message. It reads them in
# one step, and so many take some milliseconds.
TABLE_ENTRIES = 5000
# So many decoded texts of a table are kept at a time, and so many results of checks of
# partition keys. Chosen: at some 100 B each, they take 10 MB.
KEPT_TEXTS = 100_000
# Groups within groups that are skipped. Protobuf's own readers have the same limit.
MAX_GROUPS = 100


class Kind(IntEnum):
    """The kinds of protobuf's fields: how the value is written."""

    VARINT = 0
    EIGHT_BYTES = 1
    SIZED = 2  # its size comes first
    GROUP = 3
    GROUP_END = 4
    FOUR_BYTES = 5


def _tags(*kinds: Kind) -> Iterator[int]:
    """Yield the tags of the fields of a message, in the order of their numbers."""
    return (number << 3 | kind for number, kind in enumerate(kinds, 1))


# The fields of a message, and of a user record in it. As ``int`` in this module, they
# are found faster than as members of an enumeration.
_KEY, _HASH, _RECORD = _tags(Kind.SIZED, Kind.SIZED, Kind.SIZED)
_KEY_INDEX, _HASH_INDEX, _DATA = _tags(Kind.VARINT, Kind.VARINT, Kind.SIZED)


class Part(NamedTuple):
    """Some successive user records of a message."""

    records: list[Record]
    has_hash_keys: bool  # whether some may have explicit hash keys

    def hash_keys(self) -> Set[str]:
        """Return the explicit hash keys of the records."""
        if not self.has_hash_keys:
            return frozenset()
        keys = (record.explicit_hash_key for record in self.records)
        return {key for key in keys if key is not None}


# --- the layout that producers write --------------------------------------------------


def check_common(
    record: Record, message: bytes
) -> Generator[int, None, Iterator[Part]]:
    """Read a message whose tables come first and whose varints take one or two bytes.

    Its tables are small, and partition keys are UTF-8. After each step but the last,
    yield how many bytes of memory are held. Return the parts of the message. Raise
    ValueError or LookupError for any other message.
    """
    parts = _read_common(record, message)
    kept, count = [next(parts)], 1
    for part in parts:
        yield RECORD_OVERHEAD_BYTES * STEP_RECORDS * len(kept)
        count += 1
        if count <= KEPT_STEPS:
            kept.append(part)
        else:
            kept.clear()
    return iter(kept) if kept else _read_common(record, message)


def _read_common(record: Record, message: bytes) -> Iterator[Part]:
    """Yield the parts of a message, each of ``STEP_RECORDS`` but for the last one.

    Reading from a stream takes half the time of slicing.
    """
    number, arrived = record.sequence_number, record.approximate_arrival_timestamp
    source, heads = record.source, _heads()
    stream = BytesIO(message)
    read = stream.read
    keys, hashes = _read_tables(stream)
    user, length, first, head = b"", 0, 0, b"more"
    while head:
        opened: list[Record] = []
        add = opened.append
        for part in range(first, first + STEP_RECORDS):
            if not (head := read(6)):
                break
            hash_key = None
            known = heads.get(head)
            if known is not None:
                key, length = known
            else:
                at = stream.tell() - len(head)
                key, entry, length = _read_head(stream, message, at)
                hash_key = _entry(hashes, entry)
            user = read(length)
            add(Record(number, user, keys[key], arrived, hash_key, part, source))
        if len(user) != length:  # only the last record can be truncated
            raise ValueError
        yield Part(opened, bool(hashes))
        first += STEP_RECORDS


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


def _read_tables(stream: BytesIO) -> tuple[list[str], list[Text]]:
    """Return the partition keys and hash keys, and seek to the first user record."""
    read = stream.read
    keys: list[str] = []
    hashes: list[Text] = []
    for _ in range(TABLE_ENTRIES):
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
            break
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


def _entry(hashes: list[Text], index: int | None) -> Text:
    """Return a user record's hash key. Some writers set an index without a table."""
    if index is None or index >= len(hashes):
        return None
    return hashes[index]


def _hash_key(text: bytes) -> Text:
    """Return a hash key's text, or None for any other text."""
    # JavaScript writes "undefined" for records without a hash key.
    is_valid = text.isdigit() and len(text) < 40 and int(text) < HASH_KEYS
    return text.decode() if is_valid else None


# --- every valid message --------------------------------------------------------------


def check_any(record: Record, message: bytes) -> Generator[int, None, Iterator[Part]]:
    """Read any valid message: entries in any order, and unknown fields.

    Yield, return and raise as ``check_common()`` does.
    """
    index = _Index(message)
    yield from index.fill()
    return index.parts(record)


class _Index:
    """The places in a message of its user records and of the entries of its tables."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        # Pairs of a start and an end. Four bytes for each place are enough for a
        # record of Kinesis, of which 10 MiB is the limit.
        self._keys, self._hashes = array("I"), array("I")
        # For each user record: the indexes of its keys, and where its data is.
        self._users = array("I")

    def fill(self) -> Iterator[int]:
        """Find all places, and yield the memory that they take after each step."""
        message, rest = self._message, STEP_FIELDS
        tables = {_KEY: self._keys, _HASH: self._hashes}
        for tag, value, stop in _fields(message, 0, len(message)):
            rest -= 1
            if tag == _RECORD:
                key = first = last = -1
                entry = NO_ENTRY
                for inner, at, end in _fields(message, value, stop):
                    rest -= 1
                    if inner == _KEY_INDEX:
                        key = at
                    elif inner == _HASH_INDEX:
                        entry = min(at, NO_ENTRY)
                    elif inner == _DATA:
                        first, last = at, end
                    if rest <= 0:
                        rest = STEP_FIELDS
                        yield self._held_bytes
                if key < 0 or first < 0 or key >= NO_ENTRY:
                    raise ValueError
                self._users.extend((key, entry, first, last))
            elif tag in tables:
                tables[tag].extend((value, stop))
            if rest <= 0:
                rest = STEP_FIELDS
                yield self._held_bytes
        yield from self._check_keys()

    def _check_keys(self) -> Iterator[int]:
        """Raise LookupError if a user record has no partition key."""
        keys = len(self._keys) // 2
        for first in range(0, len(self._users), FIELDS * STEP_RECORDS):
            yield self._held_bytes
            indexes = self._users[first : first + FIELDS * STEP_RECORDS : FIELDS]
            if max(indexes) >= keys:
                raise LookupError

    @property
    def _held_bytes(self) -> int:
        places = len(self._keys) + len(self._hashes) + len(self._users)
        return places * self._users.itemsize

    def parts(self, record: Record) -> Iterator[Part]:
        """Yield the user records of the message, some at a time."""
        number, arrived = record.sequence_number, record.approximate_arrival_timestamp
        source, message, users = record.source, self._message, self._users
        # Two keys that aren't UTF-8 may become equal, as in the KCL.
        keys = _Texts(message, self._keys, lambda text: text.decode(errors="replace"))
        hashes = _Texts(message, self._hashes, _hash_key)
        count = len(users) // FIELDS
        for begin in range(0, max(1, count), STEP_RECORDS):
            opened: list[Record] = []
            for part in range(begin, min(count, begin + STEP_RECORDS)):
                at = FIELDS * part
                key, entry, first, last = users[at : at + FIELDS]
                user, hash_key = message[first:last], hashes[entry]
                opened.append(
                    Record(number, user, keys[key], arrived, hash_key, part, source)
                )
            yield Part(opened, bool(self._hashes))


FIELDS = 4  # the numbers of a user record in an index
# The index of a hash key that no table has.
NO_ENTRY = (1 << 32) - 1


class _Texts(dict[int, "Text"]):
    """The texts of a table by their indexes, decoded when they are needed."""

    def __init__(
        self, message: bytes, places: array[int], decode: Callable[[bytes], Text]
    ) -> None:
        super().__init__()
        self._message, self._places, self._decode = message, places, decode

    def __missing__(self, index: int) -> Text:
        if len(self) >= KEPT_TEXTS:
            self.clear()
        place = self._places[2 * index : 2 * index + 2]
        text = self._decode(self._message[slice(*place)]) if place else None
        self[index] = text
        return text


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field's tag and either its number or its start and end.

    Groups, which protobuf has deprecated, are skipped with all fields in them. What is
    skipped has the tag 0.
    """
    groups: list[int] = []  # the numbers of the groups that have begun
    varint = Kind.VARINT
    while at < end:
        tag, at = _varint(data, at, min(end, at + 5))
        kind = tag & 7
        if not 8 <= tag < 1 << 32:
            raise ValueError
        if kind == varint:
            value, at = _varint(data, at, end)
            yield 0 if groups else tag, value, at
            continue
        if kind in _GROUPS:
            _nest(groups, tag)
            yield 0, at, at
            continue
        size = _SIZES[kind]
        if size is None:
            size, at = _varint(data, at, min(end, at + 5))
        if size > end - at:
            raise ValueError
        yield 0 if groups else tag, at, at + size
        at += size
    if groups:
        raise ValueError


_GROUPS = Kind.GROUP, Kind.GROUP_END
# The size of a value of each other kind; None if the value begins with its size.
_SIZES: dict[int, int | None] = {
    Kind.EIGHT_BYTES: 8,
    Kind.SIZED: None,
    Kind.FOUR_BYTES: 4,
}


def _nest(groups: list[int], tag: int) -> None:
    """Begin a group, or end the last one."""
    number, kind = divmod(tag, 8)
    if kind == Kind.GROUP:
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

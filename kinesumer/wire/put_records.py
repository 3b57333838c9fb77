"""PutRecords: entries, KPL aggregates, and the results of a response."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS, StreamInfo
from kinesumer.model.validation import NOT_UNICODE, is_unicode
from kinesumer.wire.aggregation import MAGIC, md5_digest
from kinesumer.wire.records import Body

KEY_CHARACTERS = 256  # maximum number of characters of a partition key


class Entry(msgspec.Struct, rename="pascal", frozen=True, omit_defaults=True, gc=False):
    """One record of a PutRecords request, or one user record of a KPL aggregate."""

    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None

    @property
    def size(self) -> int:
        """Number of bytes that count towards Kinesis's limits."""
        key = self.partition_key
        if key is None:
            return len(self.data)
        if not key.isascii():
            # ``refusal()`` says that a lone surrogate can't be encoded.
            return len(self.data) + len(key.encode(errors="surrogatepass"))
        return len(self.data) + len(key)


def refusal(entry: Entry, stream: StreamInfo) -> str | None:
    """Return the reason why a stream would reject a record, or None if it is valid."""
    key, hash_key, size = entry.partition_key, entry.explicit_hash_key, entry.size
    if key is None and stream.routes_by_key:
        return (
            "partition_key is null, but the stream distributes records by their keys "
            "(only streams that distribute them by AUTO need none)"
        )
    if key == "":
        return "partition_key is empty"
    if key is not None and not is_unicode(key):
        return f"partition_key {NOT_UNICODE}"
    if key is not None and len(key) > KEY_CHARACTERS:
        return f"partition_key has {len(key):,} characters, more than {KEY_CHARACTERS}"
    if size > stream.max_record_bytes:
        return (
            f"data and partition_key have {size:,} bytes, more than the "
            f"{stream.max_record_bytes:,} that the stream allows a record"
        )
    if hash_key is not None and not is_hash_key(hash_key):
        return (
            f"explicit_hash_key is {hash_key[:50]!r}, not a decimal number below 2^128"
        )
    return None


def is_hash_key(text: str) -> bool:
    """Return whether text is a valid explicit hash key for AWS's API."""
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) < 40
        and (text == "0" or text[0] != "0")
        and int(text) < HASH_KEYS
    )


class EntryResult(msgspec.Struct, rename="pascal", frozen=True, gc=False):
    """A record's shard and sequence number, or the error that rejected it."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[EntryResult]


_decode = msgspec.json.Decoder(_Answer).decode


def decode_results(body: Body, count: int) -> list[EntryResult]:
    """Return the results of ``count`` records, in their order.

    Raise SourceUnavailableError if the body isn't a complete response of Kinesis. In
    this case the records may or may not have been stored.
    """
    fault: Exception | None = None
    results: list[EntryResult] = []
    try:
        results = _decode(body).records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = error
    if fault is not None or len(results) != count:
        raise SourceUnavailableError(
            f"a response to PutRecords of {len(body):,} bytes lacks the results of "
            f"{count} records: {fault or f'it has {len(results)}'}; check which "
            "service responds at the Kinesis endpoint"
        ) from fault
    return results


# More than an aggregate's user record takes beside its data, its keys and the record
# itself: tags, lengths and indexes.
AGGREGATED_RECORD_BYTES = 20
HASH_KEY_DIGITS = len(str(HASH_KEYS))


def aggregate(records: Sequence[Entry]) -> bytes:
    """Return the data of one Kinesis record with all user records, in order.

    The user records should belong to the shard that the Kinesis record's own key
    selects. Each of them has a partition key.
    """
    keys: dict[str | None, int] = {}
    hashes: dict[str, int] = {}
    parts: list[bytes] = []
    for record in records:
        data = record.data
        index = _key_index(keys.setdefault(record.partition_key, len(keys)))
        if record.explicit_hash_key is not None:
            place = hashes.setdefault(record.explicit_hash_key, len(hashes))
            index += _varint(2 << 3) + _varint(place)
        length = _length(3, len(data))
        inner = len(index) + len(length) + len(data)
        parts += (_length(3, inner), index, length, data)
    tables: list[bytes] = []
    for number, table in ((1, keys), (2, hashes)):
        for text in table:
            assert text is not None
            encoded = text.encode()
            tables += (_length(number, len(encoded)), encoded)
    message = b"".join(tables + parts)
    return b"".join((MAGIC, message, md5_digest(message)))


# An aggregate's records mostly have the same few indexes and lengths.


@lru_cache(maxsize=4096)
def _key_index(index: int) -> bytes:
    return _varint(1 << 3) + _varint(index)


@lru_cache(maxsize=4096)
def _length(number: int, size: int) -> bytes:
    """Return what precedes a field's value: the field's tag and the value's size."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    text = bytearray()
    while value > 127:
        text.append(value & 127 | 128)
        value >>= 7
    text.append(value)
    return bytes(text)

"""PutRecords: entries, KPL aggregates, and the results of a response."""

from __future__ import annotations

from functools import partial
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.aggregation import DIGEST_BYTES, MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.wire.records import Body


KEY_CHARACTERS = 256
"""Greatest number of characters of a partition key."""


class Entry(msgspec.Struct, rename="pascal", frozen=True, omit_defaults=True):
    """One record of a PutRecords request."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None

    @property
    def size(self) -> int:
        """Number of bytes that count towards Kinesis's limits."""
        return len(self.data) + len(self.partition_key.encode())


def refusal(
    data: bytes | None, key: str | None, hash_key: str | None, record_bytes: int
) -> str | None:
    """Return why Kinesis would reject a record, or None if it is valid.

    ``record_bytes`` is the stream's limit for data and partition key.
    """
    if not key:
        return "partition_key is null" if key is None else "partition_key is empty"
    if len(key) > KEY_CHARACTERS:
        return f"partition_key has {len(key):,} characters, more than {KEY_CHARACTERS}"
    if data is None:
        return "data is null"
    size = len(data) + len(key.encode())
    if size > record_bytes:
        return (
            f"data and partition_key have {size:,} bytes, more than the "
            f"{record_bytes:,} that the stream allows a record"
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


class PutResult(msgspec.Struct, rename="pascal", frozen=True):
    """A record's shard and sequence number, or the error that rejected it."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[PutResult]


_decode = msgspec.json.Decoder(_Answer).decode


def decode_results(body: Body, count: int) -> list[PutResult]:
    """Return the results of ``count`` records, in their order.

    Raise SourceUnavailableError if the body isn't a complete response of Kinesis. The
    records may or may not have been stored then.
    """
    fault: Exception | None = None
    results: list[PutResult] = []
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


_md5 = partial(md5, usedforsecurity=False)


class UserRecord(NamedTuple):
    """One user record of a KPL aggregate."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class Aggregate:
    """Collects user records for one Kinesis record, in order.

    Their hash keys should lie in the shard of the Kinesis record's own key.
    """

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._hashes: dict[str, int] = {}
        self._records: list[bytes] = []
        self._bytes = len(MAGIC) + DIGEST_BYTES

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """Length of the data that ``encode()`` returns."""
        return self._bytes

    def add(self, record: UserRecord) -> None:
        """Append a record."""
        key, hash_key = record.partition_key, record.explicit_hash_key
        entry = _number(1, self._index(self._keys, key, 1))
        if hash_key is not None:
            entry += _number(2, self._index(self._hashes, hash_key, 2))
        encoded = _field(3, entry + _field(3, record.data))
        self._records.append(encoded)
        self._bytes += len(encoded)

    def _index(self, table: dict[str, int], text: str, number: int) -> int:
        if text not in table:
            table[text] = len(table)
            self._bytes += len(_field(number, text.encode()))
        return table[text]

    def encode(self) -> bytes:
        """Return the Kinesis record's data."""
        message = b"".join(
            [
                *(_field(1, key.encode()) for key in self._keys),
                *(_field(2, hash_key.encode()) for hash_key in self._hashes),
                *self._records,
            ]
        )
        return MAGIC + message + _md5(message).digest()


def aggregate(records: Sequence[UserRecord]) -> bytes:
    """Return the data of one Kinesis record with all user records, in order."""
    whole = Aggregate()
    for record in records:
        whole.add(record)
    return whole.encode()


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    text = bytearray()
    while value > 127:
        text.append(value & 127 | 128)
        value >>= 7
    text.append(value)
    return bytes(text)

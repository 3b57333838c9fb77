"""Writes KPL aggregates: see ``aggregation`` for what they look like."""

from __future__ import annotations

from functools import partial
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.wire.aggregation import DIGEST_BYTES, MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

_md5 = partial(md5, usedforsecurity=False)


class UserRecord(NamedTuple):
    """What a producer hands to the KPL."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class Aggregate:
    """User records for one Kinesis record, in order.

    Their hash keys should lie in one shard: that of the Kinesis record's own key.
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
        """Length of what ``encode`` returns."""
        return self._bytes

    def add(self, record: UserRecord) -> None:
        """Add a record at the end."""
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
    """Return one Kinesis record's data that holds all the user records in order."""
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

"""Writes KPL aggregates, for producers in tests and demonstrations."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.wire.aggregation import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence


class UserRecord(NamedTuple):
    """What a producer hands to the KPL."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


def aggregate(users: Sequence[UserRecord]) -> bytes:
    """Return one Kinesis record's data that holds all the user records in order.

    Their hash keys should lie in one shard: that of the record's own partition key.
    """
    keys = list(dict.fromkeys(user.partition_key for user in users))
    hashes = list(
        dict.fromkeys(
            user.explicit_hash_key
            for user in users
            if user.explicit_hash_key is not None
        )
    )
    message = b"".join(_field(1, key.encode()) for key in keys)
    message += b"".join(_field(2, text.encode()) for text in hashes)
    for user in users:
        record = _number(1, keys.index(user.partition_key))
        if user.explicit_hash_key is not None:
            record += _number(2, hashes.index(user.explicit_hash_key))
        message += _field(3, record + _field(3, user.data))
    return MAGIC + message + md5(message).digest()


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

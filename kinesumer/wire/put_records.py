"""Answers of PutRecords: what became of each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from kinesumer.wire.records import Body

KEY_CHARACTERS = 256
"""A partition key has no more of them."""


class Entry(msgspec.Struct, rename="pascal", frozen=True, omit_defaults=True):
    """A record to be put."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None

    @property
    def size(self) -> int:
        """What counts towards Kinesis's limits."""
        return len(self.data) + len(self.partition_key.encode())


def refusal(
    data: bytes | None, key: str | None, hash_key: str | None, record_bytes: int
) -> str | None:
    """Return why Kinesis can't take a record, or None if it can.

    ``record_bytes`` is the most that the stream allows for data and partition key.
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
            f"explicit_hash_key is {hash_key[:50]!r}, which is no decimal number below "
            "2^128"
        )
    return None


def is_hash_key(text: str) -> bool:
    """Tell whether text is a hash key as AWS's API takes it."""
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) < 40
        and (text == "0" or text[0] != "0")
        and int(text) < HASH_KEYS
    )


class PutResult(msgspec.Struct, rename="pascal", frozen=True):
    """A record's new place, or why it was not taken."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[PutResult]


_decode = msgspec.json.Decoder(_Answer).decode


def decode_results(body: Body, count: int) -> list[PutResult]:
    """Return what became of each of ``count`` records, in their order.

    Raises SourceUnavailableError if the body doesn't say: what answers isn't Kinesis,
    or the answer was cut off. The records may or may not have been taken.
    """
    fault: Exception | None = None
    results: list[PutResult] = []
    try:
        results = _decode(body).records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = error
    if fault is not None or len(results) != count:
        raise SourceUnavailableError(
            f"an answer to PutRecords of {len(body):,} bytes doesn't tell what became "
            f"of {count} records: {fault or f'it has {len(results)}'}; check what "
            "answers at the Kinesis endpoint"
        ) from fault
    return results

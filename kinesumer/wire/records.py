"""Decodes the responses of GetRecords and GetShardIterator into the model."""

from __future__ import annotations

from typing import Annotated, NoReturn

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, ChildShard
from kinesumer.wire.fields import is_sequence_number

HashKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,39}\Z")]

Body = bytes | bytearray
"""The body of a response."""
JSON_PER_RECORD = 112
"""Three quarters of the smallest JSON size of a record without its data."""


class HashKeyRange(msgspec.Struct, rename="pascal"):
    """The hash keys of a shard, including both bounds."""

    starting_hash_key: HashKey
    ending_hash_key: HashKey

    def bounds(self) -> tuple[int, int]:
        """Return both bounds as numbers. Raise ValueError if they are invalid."""
        first, last = int(self.starting_hash_key), int(self.ending_hash_key)
        if not first <= last < HASH_KEYS:
            raise ValueError(f"hash keys from {first} to {last}")
        return first, last


class _Child(msgspec.Struct, rename="pascal"):
    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRange


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[Record]
    next_shard_iterator: str | None = None
    millis_behind_latest: int = 0
    child_shards: list[_Child] | None = None


class _IteratorAnswer(msgspec.Struct, rename="pascal"):
    shard_iterator: str


_decode = msgspec.json.Decoder(_Answer).decode
_decode_iterator = msgspec.json.Decoder(_IteratorAnswer).decode
_UNDECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_page(body: Body) -> Page:
    """Return the page in the body of a GetRecords response.

    Raise SourceUnavailableError if the body isn't a complete response of Kinesis. The
    same read can be retried.
    """
    try:
        answer = _decode(body)
    except _UNDECODED as fault:
        _refuse(body, str(fault), fault)
    # Checking each record would cost as much as decoding. The first and the last show
    # whether Kinesis has sent the page.
    for record in (*answer.records[:1], *answer.records[-1:]):
        if not is_sequence_number(record.sequence_number):
            _refuse(body, "a SequenceNumber isn't a number", None)
    return Page(
        answer.records,
        answer.next_shard_iterator,
        answer.millis_behind_latest,
        tuple(_child(child, body) for child in answer.child_shards or ()),
        len(body),
    )


def decode_iterator(body: Body) -> str:
    """Return the iterator in the body of a GetShardIterator response.

    Raise SourceUnavailableError if it has none.
    """
    try:
        return _decode_iterator(body).shard_iterator
    except _UNDECODED as fault:
        raise SourceUnavailableError(
            f"a response to GetShardIterator of {len(body):,} bytes has no iterator: "
            f"{fault}; check which service responds at the Kinesis endpoint"
        ) from fault


def payload_bytes(page: Page) -> int:
    """Return about how many bytes the page counts towards 2 MB/s per shard.

    The estimate uses the body's length, since adding up the records would cost a tenth
    of the decoding. It is up to a few percent too high, and never much too low.
    """
    return max(0, page.wire_bytes * 3 // 4 - JSON_PER_RECORD * len(page.records))


def _child(child: _Child, body: Body) -> ChildShard:
    try:
        first, last = child.hash_key_range.bounds()
    except ValueError as fault:
        _refuse(body, f"child {child.shard_id[:128]} has {fault}", fault)
    return ChildShard(child.shard_id, first, last, tuple(child.parent_shards))


def _refuse(body: Body, reason: str, cause: Exception | None) -> NoReturn:
    raise SourceUnavailableError(
        f"a response to GetRecords of {len(body):,} bytes isn't a page of records: "
        f"{reason}; check which service responds at the Kinesis endpoint"
    ) from cause

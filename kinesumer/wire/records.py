"""Answers of the calls that read a shard, decoded straight into the model."""

from __future__ import annotations

from typing import Annotated, NoReturn

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, ChildShard
from kinesumer.wire.fields import is_sequence_number

HashKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,39}\Z")]

Body = bytes | bytearray
"""An answer's body."""
JSON_PER_RECORD = 112
"""Three quarters of what the JSON around one record's data takes at least."""


class HashKeyRange(msgspec.Struct, rename="pascal"):
    """The hash keys of a shard, both ends included."""

    starting_hash_key: HashKey
    ending_hash_key: HashKey

    def bounds(self) -> tuple[int, int]:
        """Return both ends as numbers. Raises ValueError if they can't be some."""
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
    """Return the page that the body of a GetRecords answer holds.

    Raises SourceUnavailableError if it holds none: what answers isn't Kinesis, or the
    answer was cut off, and the same read can be tried again.
    """
    try:
        answer = _decode(body)
    except _UNDECODED as fault:
        _refuse(body, str(fault), fault)
    # A look at each would cost as much as decoding. What isn't Kinesis shows here.
    for record in (*answer.records[:1], *answer.records[-1:]):
        if not is_sequence_number(record.sequence_number):
            _refuse(body, "a SequenceNumber is no number", None)
    return Page(
        answer.records,
        answer.next_shard_iterator,
        answer.millis_behind_latest,
        tuple(_child(child, body) for child in answer.child_shards or ()),
        len(body),
    )


def decode_iterator(body: Body) -> str:
    """Return the iterator in the body of a GetShardIterator answer.

    Raises SourceUnavailableError if it holds none.
    """
    try:
        return _decode_iterator(body).shard_iterator
    except _UNDECODED as fault:
        raise SourceUnavailableError(
            f"an answer to GetShardIterator of {len(body):,} bytes holds no iterator: "
            f"{fault}; check what answers at the Kinesis endpoint"
        ) from fault


def payload_bytes(page: Page) -> int:
    """Return about how many bytes the page counts towards 2 MB/s per shard.

    Reckoned from the body's length, since adding up the records would cost a tenth of
    the decoding. A few percent too much, never much too little.
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
        f"an answer to GetRecords of {len(body):,} bytes isn't a page of records: "
        f"{reason}; check what answers at the Kinesis endpoint"
    ) from cause

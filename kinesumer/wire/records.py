"""Decodes the responses of GetRecords and GetShardIterator into the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn, Protocol, TypeVar

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.wire.aggregation import MAGIC
from kinesumer.wire.cbor import Buffer, compiled, is_map
from kinesumer.wire.fields import is_sequence_number
from kinesumer.wire.page_records import PageRecords

A = TypeVar("A", bound="WithRecords")
HashKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,39}\Z")]

Body = bytes | bytearray  # the body of a response
# The bytes that a record has at least in an answer, without its data.
JSON_RECORD_BYTES, CBOR_RECORD_BYTES = 150, 136


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


class ChildShard(msgspec.Struct, rename="pascal"):
    """A child as the last response of a closed shard names it."""

    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRange


class SequenceNumbers(msgspec.Struct, rename="pascal"):
    """Where a listed shard ends; None if it is open."""

    ending_sequence_number: str | None = None


class ListedShard(msgspec.Struct, rename="pascal"):
    """A shard as ListShards describes it."""

    shard_id: str
    hash_key_range: HashKeyRange
    sequence_number_range: SequenceNumbers
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    def read(self) -> Shard:
        """Return the shard. Raise ValueError if its hash keys are invalid."""
        parents = (self.parent_shard_id, self.adjacent_parent_shard_id)
        return Shard(
            self.shard_id,
            *self.hash_key_range.bounds(),
            tuple(parent for parent in parents if parent),
            self.sequence_number_range.ending_sequence_number,
        )


class _Fields(msgspec.Struct, rename="pascal", kw_only=True):
    next_shard_iterator: str | None = None
    millis_behind_latest: int = 0
    child_shards: list[ChildShard] | None = None


class WithRecords(Protocol):
    """An answer or event that has records."""

    records: list[Record]


class _Answer(_Fields, rename="pascal", kw_only=True):
    records: list[Record]


class _IteratorAnswer(msgspec.Struct, rename="pascal"):
    shard_iterator: Annotated[str, msgspec.Meta(min_length=1)]


_CALL = "GetRecords"
_decode_iterator = msgspec.json.Decoder(_IteratorAnswer).decode
# The errors of a body that does not have the expected form. ValueError is that of CBOR.
UNDECODED = (msgspec.DecodeError, ValueError, RecursionError)


def decode_page(body: Body) -> Page:
    """Return the page in the body of a GetRecords response.

    Raise SourceUnavailableError if the body isn't a complete response of Kinesis. The
    same read can be retried.
    """
    records: Sequence[Record]
    try:
        if compiled is not None and is_map(body):
            index, has_aggregate, fields = compiled.read_page(body, MAGIC)
            records = PageRecords(compiled, body, index, has_aggregates=has_aggregate)
            page = _page(records, msgspec.convert(fields, _Fields), body)
        else:
            records, answer = decode_json(body, _Answer)
            page = _page(records, answer, body)
    except UNDECODED as fault:
        _refuse(body, _CALL, str(fault), fault)
    check_records(page.records, body, _CALL)
    return page


def decode_json(body: Buffer, type_: type[A]) -> tuple[Sequence[Record], A]:
    """Return the records of a page in JSON, and its other fields.

    Raise an error that is in UNDECODED if the page is not one of the type.
    """
    if compiled is not None:
        with suppress(ValueError):  # msgspec reads what is unusual
            data, index, has_some, rest = compiled.read_json(body, MAGIC)
            answer = msgspec.json.decode(rest, type=type_)
            packed = PageRecords(compiled, data, index, has_aggregates=has_some)
            return packed, answer
    answer = msgspec.json.decode(body, type=type_)
    return answer.records, answer


def _page(records: Sequence[Record], fields: _Fields, body: Body) -> Page:
    return Page(
        records,
        fields.next_shard_iterator or None,
        fields.millis_behind_latest,
        tuple(read_child(child, body, _CALL) for child in fields.child_shards or ()),
        len(body),
        is_map(body),
    )


def decode_iterator(body: Body) -> str:
    """Return the iterator in the body of a GetShardIterator response.

    Raise SourceUnavailableError if it has none.
    """
    try:
        return _decode_iterator(body).shard_iterator
    except UNDECODED as fault:
        raise SourceUnavailableError(
            f"a response to GetShardIterator of {len(body):,} bytes has no iterator: "
            f"{fault}; check which service responds at the Kinesis endpoint"
        ) from fault


def payload_bytes(page: Page) -> int:
    """Estimate how many bytes the page uses of the limit of 2 MB/s per shard.

    The estimate is up to a few percent too high, and never much too low.
    """
    # Adding up the records' sizes would take a tenth of the time of decoding. Base64
    # turns three bytes into four.
    if page.is_cbor:
        return max(0, page.wire_bytes - CBOR_RECORD_BYTES * len(page.records))
    return max(0, (page.wire_bytes - JSON_RECORD_BYTES * len(page.records)) * 3 // 4)


def check_records(records: Sequence[Record], body: Buffer, call: str) -> None:
    """Raise SourceUnavailableError if the records are not from Kinesis."""
    # Checking each record would take as much time as decoding. The first and the last
    # record suffice to show whether Kinesis has sent the page.
    for record in (*records[:1], *records[-1:]):
        if not is_sequence_number(record.sequence_number):
            _refuse(body, call, "a SequenceNumber isn't a number", None)


def read_child(child: ChildShard, body: Buffer, call: str) -> Shard:
    """Return a child as a Shard. Raise SourceUnavailableError if it is invalid."""
    try:
        first, last = child.hash_key_range.bounds()
    except ValueError as fault:
        _refuse(body, call, f"child {child.shard_id[:128]} has {fault}", fault)
    return Shard(child.shard_id, first, last, tuple(child.parent_shards))


def _refuse(body: Buffer, call: str, reason: str, cause: Exception | None) -> NoReturn:
    raise SourceUnavailableError(
        f"a response to {call} of {len(body):,} bytes isn't a page of records: "
        f"{reason}; check which service responds at the Kinesis endpoint"
    ) from cause

"""Decodes the responses of GetRecords and GetShardIterator into the model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, NoReturn

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.wire.cbor import CborError, CborReader, is_map
from kinesumer.wire.cbor_records import read_records, without_records
from kinesumer.wire.fields import is_sequence_number

HashKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,39}\Z")]

Body = bytes | bytearray  # the body of a response
Buffer = bytes | bytearray | memoryview
# Three quarters of the bytes that a record's JSON has at least, without its data, and
# all of those that its CBOR has. For each record, ``payload_bytes()`` subtracts them.
JSON_PER_RECORD, CBOR_PER_RECORD = 112, 136


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


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[Record]
    next_shard_iterator: str | None = None
    millis_behind_latest: int = 0
    child_shards: list[ChildShard] | None = None


class _IteratorAnswer(msgspec.Struct, rename="pascal"):
    shard_iterator: Annotated[str, msgspec.Meta(min_length=1)]


_CALL = "GetRecords"
_decode = msgspec.json.Decoder(_Answer).decode
_decode_iterator = msgspec.json.Decoder(_IteratorAnswer).decode
# The errors of a body that is not JSON of the expected form.
UNDECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, CborError)


# Returns where the array of records begins and ends, and the records. Each results from
# a call with the fields of a record. Raises ValueError if the page is unusual.
ReadRecords = Callable[[Body, Callable[..., Record]], tuple[int, int, list[Record]]]


def find_compiled_decoder() -> ReadRecords | None:
    """Return the function of kinesumer-native, or None if that is not installed."""
    try:
        read: ReadRecords = import_module("kinesumer_native").to_records
    except (ImportError, AttributeError):  # AttributeError: an older version
        return None
    return read


to_records: ReadRecords | None = find_compiled_decoder()


def decode_page(body: Body) -> Page:
    """Return the page in the body of a GetRecords response.

    Raise SourceUnavailableError if the body isn't a complete response of Kinesis. The
    same read can be retried.
    """
    try:
        answer = _decode_cbor(body) if is_map(body) else _decode(body)
    except UNDECODED as fault:
        _refuse(body, _CALL, str(fault), fault)
    check_records(answer.records, body, _CALL)
    return Page(
        answer.records,
        answer.next_shard_iterator or None,
        answer.millis_behind_latest,
        tuple(read_child(child, body, _CALL) for child in answer.child_shards or ()),
        len(body),
        is_map(body),
    )


def _decode_cbor(body: Body) -> _Answer:
    if to_records is not None:
        try:
            begin, end, records = to_records(body, Record)
            answer = _decode_in_python(without_records(body, begin, end))
        except ValueError:
            pass  # decoding in Python reads an unusual page, or tells what is wrong
        else:
            answer.records = records
            return answer
    return _decode_in_python(body)


def _decode_in_python(body: Body) -> _Answer:
    reader, fields = CborReader(body), dict[str, object]()
    _, number = reader.head()
    seen = 0
    while not reader.is_end(seen, number):
        name = reader.key()
        if name in fields:
            # Of JSON, msgspec also checks the values that a later one replaces.
            _convert({"Records": [], **fields})
        fields[name] = read_records(reader) if name == "Records" else reader.item()
        seen += 1
    if reader.at < len(body):
        raise CborError(f"{len(body) - reader.at:,} bytes after the end")
    return _convert(fields)


def _convert(fields: dict[str, object]) -> _Answer:
    return msgspec.convert(fields, _Answer, builtin_types=(bytes,))


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
        return max(0, page.wire_bytes - CBOR_PER_RECORD * len(page.records))
    return max(0, page.wire_bytes * 3 // 4 - JSON_PER_RECORD * len(page.records))


def check_records(records: list[Record], body: Buffer, call: str) -> None:
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

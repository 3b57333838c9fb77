"""Decodes the responses of DynamoDB Streams into the model."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import UNKNOWN_BEHIND_MILLIS, Page, Record, Seconds
from kinesumer.model.rows import Key
from kinesumer.model.streams import Shard
from kinesumer.wire.fields import SHARD_ID, is_sequence_number
from kinesumer.wire.records import UNDECODED, Body
from kinesumer.wire.rows import is_of_app

# The most records of a page.
PAGE_RECORDS = 1000
# A page of so many bytes may be full. Pages have up to 1 MB, and a record that does not
# fit into the rest ends one. It has up to twice an item's 400 KB.
FULL_PAGE_BYTES = 1_000_000 - 2 * 400_000
# The status of a stream in terms of Kinesis. A disabled one can be read to its end.
_STATUS = {"ENABLING": "CREATING", "ENABLED": "ACTIVE"}
DISABLED = ("DISABLING", "DISABLED")

ShardId = Annotated[str, msgspec.Meta(pattern=rf"\A{SHARD_ID.pattern}\Z")]


class StreamPage(NamedTuple):
    """A page of a stream's description, with some of its shards."""

    arn: str
    table: str
    status: str
    created_at: float
    view_type: str
    shards: list[Shard]
    last: str | None  # the shard after which the next page begins

    @property
    def kinesis_status(self) -> str:
        """The status, as that of a Kinesis stream if there is an equal one."""
        return _STATUS.get(self.status, self.status)


class _SequenceNumbers(msgspec.Struct, rename="pascal"):
    ending_sequence_number: str | None = None


class _Shard(msgspec.Struct, rename="pascal"):
    shard_id: ShardId
    parent_shard_id: ShardId | None = None
    sequence_number_range: _SequenceNumbers | None = None


class _Description(msgspec.Struct, rename="pascal"):
    stream_arn: str
    stream_status: str
    table_name: str = ""
    stream_view_type: str = ""
    creation_request_date_time: Seconds = 0.0
    shards: list[_Shard] = []
    last_evaluated_shard_id: str | None = None


class _DescribeAnswer(msgspec.Struct):
    description: _Description = msgspec.field(name="StreamDescription")


_decode_description = msgspec.json.Decoder(_DescribeAnswer).decode


def shard_place(shard_id: str) -> int:
    """Return the place of a table stream's shard among the hash keys.

    Tables don't tell which keys a shard takes. So the place is a hash of the shard's
    id: all clients know it without asking, and the shards are spread evenly.
    """
    return int.from_bytes(sha256(shard_id.encode()).digest()[:16])


def decode_stream_page(body: Body) -> StreamPage:
    """Return a page of a stream's description.

    Raise msgspec.DecodeError if the body isn't a response of DynamoDB Streams.
    """
    answer = _decode_description(body).description
    return StreamPage(
        answer.stream_arn,
        answer.table_name,
        answer.stream_status,
        answer.creation_request_date_time,
        answer.stream_view_type,
        [_read_shard(shard) for shard in answer.shards],
        answer.last_evaluated_shard_id or None,
    )


def _read_shard(shard: _Shard) -> Shard:
    place, numbers = shard_place(shard.shard_id), shard.sequence_number_range
    parent = shard.parent_shard_id
    return Shard(
        shard.shard_id,
        place,
        place,
        (parent,) if parent else (),
        None if numbers is None else numbers.ending_sequence_number or None,
    )


class _Change(msgspec.Struct, rename="pascal"):
    sequence_number: str
    keys: dict[str, dict[str, str]] = {}
    approximate_creation_date_time: Seconds | None = None


class _Record(msgspec.Struct):
    dynamodb: _Change


class _PageAnswer(msgspec.Struct, rename="pascal"):
    records: list[msgspec.Raw]
    next_shard_iterator: str | None = None


_decode_page = msgspec.json.Decoder(_PageAnswer).decode
_decode_record = msgspec.json.Decoder(_Record).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def decode_change_page(body: Body, now: float) -> Page:
    """Return the page in the body of a GetRecords response.

    ``now`` is the service's time of the response. Raise SourceUnavailableError if the
    body isn't a complete response of DynamoDB Streams.
    """
    try:
        answer = _decode_page(body)
        records = [_read_record(bytes(raw)) for raw in answer.records]
    except UNDECODED as fault:
        raise SourceUnavailableError(
            f"a response to GetRecords of {len(body):,} bytes isn't from DynamoDB "
            f"Streams: {fault}; check which service responds at the endpoint"
        ) from fault
    is_full = len(body) >= FULL_PAGE_BYTES
    return Page(
        records,
        answer.next_shard_iterator or None,
        millis_behind(records, now, is_full=is_full),
        wire_bytes=len(body),
    )


def millis_behind(records: list[Record], now: float, *, is_full: bool) -> int:
    """Return how far a page with records is behind: DynamoDB does not tell.

    It gives the times of changes, and the Date of its response, in whole seconds. After
    a page that ``is_full``, more records may follow.
    """
    last = records[-1].approximate_arrival_timestamp if records else None
    behind = 0 if last is None else max(0, int(1000 * (now - last - 1)))
    return max(behind, UNKNOWN_BEHIND_MILLIS) if is_full else behind


def _read_record(data: bytes) -> Record:
    change = _decode_record(data).dynamodb
    if not is_sequence_number(change.sequence_number) or not change.sequence_number:
        raise ValueError("a record's SequenceNumber is not a number")
    return Record(
        change.sequence_number,
        data,
        partition_key=key_text(change.keys),
        approximate_arrival_timestamp=change.approximate_creation_date_time,
    )


class _RowKey(msgspec.Struct):
    pk: str
    sk: str


_decode_key = msgspec.json.Decoder(_RowKey).decode


def is_own_row(app: str, record: Record) -> bool:
    """Return whether a change of a state store's table is that of one of an app's rows.

    Raise msgspec.DecodeError if the key isn't that of a row.
    """
    key = _decode_key(record.partition_key or "")
    return is_of_app(app, Key(key.pk, key.sk))


def key_text(keys: dict[str, dict[str, str]]) -> str:
    """Return the key of an item as JSON, such as ``{"at":17,"id":"c-1"}``.

    The attributes are sorted by name. Binary values are in base64, as DynamoDB sends
    them. Equal keys have equal texts, since DynamoDB writes each number in one way.
    """
    return _encode(
        {name: _key_value(*of.items()) for name, of in keys.items()}
    ).decode()


def _key_value(*items: tuple[str, str]) -> Any:
    if len(items) != 1:
        raise ValueError("a key attribute isn't one type with its value")
    [(kind, text)] = items
    return msgspec.Raw(text.encode()) if kind == "N" else text

"""Read records as boto3, Lambda and Firehose hand them out.

The shapes are those of AWS's references: GetRecords (Kinesis API), the event of a
Kinesis event source mapping (Lambda), and the event of a data transformation
(Firehose). For example, Lambda hands out a record as::

    {"eventID": "shardId-000000000000:4954…", "eventSourceARN": "arn:aws:kinesis:…",
     "kinesis": {"data": "SGVsbG8=", "partitionKey": "1", "sequenceNumber": "4954…",
                 "approximateArrivalTimestamp": 1545084650.987}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.records import Fence, Record, Seconds, Source
from kinesumer.model.streams import CONSUMER_ARN, HASH_KEYS, YEAR_10000, ShardKey

# Longest part of a refused value in an error.
SHOWN_CHARACTERS = 100


def read_records(records: Iterable[Mapping[str, Any]], app: str = "") -> list[Record]:
    """Return records of GetRecords, of a Lambda event or of a Firehose event.

    Only records of Lambda events have a source, because only these name their stream
    and shard. The source has the whole range of hash keys, epoch 0 and ``app``. Records
    of one shard have the same source. Raise ConfigurationError for anything else.
    """
    if isinstance(records, Mapping):
        raise ConfigurationError(
            f"the records are a mapping with the keys {_shown(sorted(records))}: pass "
            'its list of records, such as event["Records"]'
        )
    return list(_read_each(records, _Sources(app)))


def _read_each(
    records: Iterable[Mapping[str, Any]], sources: _Sources
) -> Iterator[Record]:
    for index, record in enumerate(records):
        try:
            yield msgspec.convert(record, _shape_of(record)).read(sources)
        except (msgspec.ValidationError, ValueError, TypeError) as fault:
            raise ConfigurationError(
                f"records[{index}] cannot be read ({fault}): pass records of "
                "GetRecords, of a Lambda event or of a Firehose event; this is "
                f"{_shown(record)}"
            ) from fault


def _shape_of(record: Mapping[str, Any]) -> type[_Shape]:
    """Return the shape of a record. Raise TypeError if it has none of them."""
    if "Data" in record:
        return _FromGetRecords
    if "kinesis" in record:
        return _FromLambda
    if "recordId" in record:
        return _FromFirehose
    raise TypeError("it has none of the keys Data, kinesis and recordId")


def _shown(value: object) -> str:
    return f"{value!r:.{SHOWN_CHARACTERS}}"


class _Sources(dict[tuple[str, str], Source]):
    """The sources of shards, by the stream's ARN and the shard's id."""

    def __init__(self, app: str) -> None:
        super().__init__()
        self._app = app

    def __missing__(self, shard: tuple[str, str]) -> Source:
        arn, shard_id = shard
        # With enhanced fan-out, Lambda names the stream's consumer.
        if consumer := CONSUMER_ARN.fullmatch(arn):
            arn = consumer[1]
        fence = Fence(ShardKey(arn, shard_id), 0, self._app)
        found = self[shard] = Source(fence, 0, HASH_KEYS - 1)
        return found


class _Shape(Protocol):
    """A record in one of the shapes."""

    def read(self, sources: _Sources) -> Record:
        """Return the record. Raise ValueError for a time that it cannot have."""


# msgspec decodes Base64 where it converts text to bytes.


class _FromGetRecords(msgspec.Struct, rename="pascal"):
    """A record in an answer to GetRecords."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: datetime | Seconds | None = None

    def read(self, sources: _Sources) -> Record:
        arrived = self.approximate_arrival_timestamp
        if isinstance(arrived, datetime):
            arrived = arrived.timestamp()
        return Record(self.sequence_number, self.data, self.partition_key, arrived)


class _LambdaData(msgspec.Struct, rename="camel"):
    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: Seconds | None = None


class _FromLambda(msgspec.Struct):
    """A record in the event of an event source mapping."""

    kinesis: _LambdaData
    event_id: str = msgspec.field(name="eventID", default="")
    arn: str = msgspec.field(name="eventSourceARN", default="")

    def read(self, sources: _Sources) -> Record:
        inner = self.kinesis
        shard_id, colon, _ = self.event_id.partition(":")
        return Record(
            inner.sequence_number,
            inner.data,
            inner.partition_key,
            inner.approximate_arrival_timestamp,
            source=sources[self.arn, shard_id] if self.arn and colon else None,
        )


class _FirehoseOrigin(msgspec.Struct, rename="camel"):
    """The place in a Kinesis stream from which Firehose has read a record."""

    sequence_number: str = ""
    partition_key: str | None = None
    # Its index within an aggregate that Firehose has opened; empty for other records.
    subsequence_number: str | int | None = None


NO_ORIGIN = _FirehoseOrigin()


class _FromFirehose(msgspec.Struct, rename="camel"):
    """A record in the event of a transformation. Not all come from Kinesis streams."""

    data: bytes
    approximate_arrival_timestamp: float | None = None  # milliseconds
    kinesis_record_metadata: _FirehoseOrigin | None = None

    def read(self, sources: _Sources) -> Record:
        origin, arrived = self.kinesis_record_metadata, None
        if self.approximate_arrival_timestamp is not None:
            arrived = self.approximate_arrival_timestamp / 1000
            if not 0 <= arrived < YEAR_10000:
                raise ValueError(f"it arrived {arrived:g} seconds after 1970")
        origin = origin or NO_ORIGIN
        part = origin.subsequence_number
        return Record(
            origin.sequence_number,
            self.data,
            origin.partition_key,
            arrived,
            sub_sequence_number=None if part in (None, "") else int(part),
        )

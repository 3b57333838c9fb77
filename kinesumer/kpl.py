"""Open and pack KPL aggregates without a client: in Lambda, Firehose, and with boto3.

This is how clients and producers do it, without protobuf. A client and a ``Producer``
need none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.records import Record
from kinesumer.model.streams import Shard, StreamInfo
from kinesumer.runtime.failure_log import logger
from kinesumer.wire.aggregation import open_all
from kinesumer.wire.put_records import Entry, refusal
from kinesumer.wire.record_shapes import read_records
from kinesumer.wire.records import ListedShard

__all__ = ["PutEntry", "aggregate", "deaggregate"]


class PutEntry(TypedDict):
    """A record to put, as ``put_records(Records=[...])`` of boto3 takes it."""

    Data: bytes
    PartitionKey: str
    ExplicitHashKey: NotRequired[str]


def deaggregate(records: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Return the user records of Kinesis records, in their order.

    ``records`` are ``answer["Records"]`` of GetRecords (boto3), ``event["Records"]`` of
    a Lambda function's event source mapping, or ``event["records"]`` of a Firehose
    transformation. Each aggregate is replaced by its user records. They have its
    sequence number and arrival time, and their own ``sub_sequence_number``,
    ``partition_key`` and ``explicit_hash_key``. Other records have None as their
    ``sub_sequence_number``. Of a record that Firehose did not read from a Kinesis
    stream, ``sequence_number`` is empty.

    ``stream``, ``shard_id`` and ``fence`` are known for Lambda's events only, with the
    epoch 0. Data that begins like an aggregate but cannot be opened is returned whole,
    as one record, and is logged as a warning. Raises ConfigurationError for records of
    another form.
    """
    opened, unopened = open_all(read_records(records))
    if unopened:
        logger.warning(
            "%d records begin like KPL aggregates, but cannot be opened, and are "
            "returned whole (the first has the sequence number %s)",
            len(unopened),
            unopened[0].sequence_number,
        )
    return opened


def aggregate(
    records: Iterable[PutEntry], shards: Iterable[Mapping[str, Any]]
) -> list[PutEntry]:
    """Return what to put in place of records: aggregates, each for one shard.

    ``records`` are entries of boto3's ``put_records()``, and so is the result.
    ``shards`` is ``answer["Shards"]`` of ListShards, with all pages of the answer. They
    are needed because consumers may skip user records that are in another shard than
    the one that their hash keys select. After a reshard, list the shards again:
    ``Producer`` does this by itself.

    Aggregates have up to 100 KB. A record that would be alone in its aggregate stays as
    it is. Records of one partition key keep their order. Raises ConfigurationError if a
    record cannot be put, or if the shards do not have the form of ListShards.
    """
    # These imports are slow.
    from kinesumer.producer.aggregation import Aggregator
    from kinesumer.producer.pending import PendingRecord, to_entry

    aggregator = Aggregator(_read_shards(shards))
    # By number, in the order in which they began.
    packed: dict[int, PendingRecord] = {}
    for index, record in enumerate(records):
        try:
            data, key = record["Data"], record["PartitionKey"]
        except (KeyError, TypeError) as fault:
            raise _refused(index, f"it has no {fault}") from fault
        try:
            entry = to_entry(data, key, record.get("ExplicitHashKey"))
        except ConfigurationError as fault:
            raise _refused(index, str(fault)) from fault
        if (reason := refusal(entry, ANY_STREAM)) is not None:
            raise _refused(index, reason)
        kinesis_record, _ = aggregator.add(entry, entry.size, 0, index)
        packed[kinesis_record.number] = kinesis_record
    return [_put_entry(record.encode()) for record in packed.values()]


# A stream that accepts records of 10 MiB, which is the most that Kinesis can be set to.
ANY_STREAM = StreamInfo("", "ACTIVE", 0.0, max_record_bytes=10 << 20)


def _read_shards(shards: Iterable[Mapping[str, Any]]) -> list[Shard]:
    try:
        found = [s.read() for s in msgspec.convert(shards, list[ListedShard])]
    except (msgspec.ValidationError, ValueError, TypeError) as fault:
        raise ConfigurationError(
            f"the shards cannot be read ({fault}): pass "
            'kinesis.list_shards(StreamName=...)["Shards"]'
        ) from fault
    if all(shard.closed for shard in found):
        raise ConfigurationError(
            f"none of the {len(found)} shards is open: list the shards again"
        )
    return found


def _refused(index: int, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"records[{index}] cannot be put: {reason}; pass entries as put_records() of "
        "boto3 takes them"
    )


def _put_entry(entry: Entry) -> PutEntry:
    assert entry.partition_key is not None  # refusal() has checked it
    found = PutEntry(Data=entry.data, PartitionKey=entry.partition_key)
    if entry.explicit_hash_key is not None:
        found["ExplicitHashKey"] = entry.explicit_hash_key
    return found

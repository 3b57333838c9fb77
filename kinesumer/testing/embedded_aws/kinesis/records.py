"""Serve the requests that put records, and that read pages of records."""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.embedded_aws.kinesis.shards import AUTO
from kinesumer.testing.embedded_aws.kinesis.tokens import ShardIterator, hash_key
from kinesumer.testing.embedded_aws.request import (
    AwsError,
    invalid_argument,
    invalid_request,
)

if TYPE_CHECKING:
    from kinesumer.testing.embedded_aws.kinesis import requests as rq
    from kinesumer.testing.embedded_aws.kinesis.shards import Shard, Stream


def get_iterator(
    stream: Stream, request: rq.GetShardIterator, now: float
) -> dict[str, Any]:
    """Return the response to GetShardIterator."""
    stream.require_open()
    shard = stream.shard(request.shard_id, now)
    if not shard.iterator_calls.take(1, now):
        raise _rate_exceeded(stream, shard)
    after = counter_before(
        stream,
        shard,
        request.shard_iterator_type,
        request.starting_sequence_number,
        request.timestamp,
        now,
    )
    iterator = ShardIterator(stream.arn, stream.created_ms, shard.shard_id, after, now)
    return {"ShardIterator": iterator.encode()}


def counter_before(
    stream: Stream,
    shard: Shard,
    kind: str,
    sequence_number: str | None,
    timestamp: float | None,
    now: float,
) -> int:
    """Return the counter just before the first record to read."""
    if kind == "TRIM_HORIZON":
        return 0
    if kind == "LATEST":
        return stream.counter
    if kind == "AT_TIMESTAMP":
        timestamp = _required(timestamp, "Timestamp", kind)
        if timestamp > now:
            raise invalid_argument(
                "The timestampInMillis parameter cannot be greater than the "
                f"currentTimestampInMillis. timestampInMillis: {timestamp * 1000:.0f}, "
                f"currentTimestampInMillis: {now * 1000:.0f}"
            )
        index = shard.log.since(timestamp)
        at_tip = index == len(shard.log)
        return stream.counter if at_tip else shard.log.counters[index] - 1
    number = _required(sequence_number, "StartingSequenceNumber", kind)
    counter = stream.counter_of(shard, number)
    return counter - 1 if kind == "AT_SEQUENCE_NUMBER" else counter


def _required(value: Any, name: str, kind: str) -> Any:
    if value is None:
        raise invalid_argument(
            f"Must either specify {name} or a ShardIteratorType other than {kind}."
        )
    return value


def get_records(stream: Stream, request: rq.GetRecords, now: float) -> bytes:
    """Return the response to GetRecords, as bytes."""
    stream.require_open()
    limits = stream.limits
    count = limits.page_records if request.limit is None else request.limit
    if count > limits.page_records:
        raise invalid_argument(f"Limit {count} is greater than {limits.page_records}.")
    iterator = ShardIterator.decode(request.shard_iterator)
    if iterator.created_ms != stream.created_ms or iterator.stream_arn != stream.arn:
        raise invalid_argument("Invalid ShardIterator.")
    iterator.require_fresh(now, limits.iterator_seconds)
    shard = stream.shard(iterator.shard_id, now)
    # A page may have more bytes than the bucket holds: see ``Bucket.spend()``.
    if not shard.read_bytes.holds(0, now) or not shard.read_calls.take(1, now):
        raise _rate_exceeded(stream, shard)
    start = shard.log.after(iterator.after)
    end = shard.log.page_end(start, count, limits.page_bytes)
    shard.read_bytes.spend(shard.log.size(start, end))
    return _page(shard, iterator, start, end, now)


def _page(
    shard: Shard, iterator: ShardIterator, start: int, end: int, now: float
) -> bytes:
    log = shard.log
    at_tip = end == len(log)
    behind = 0 if at_tip else round((now - log.times[max(end - 1, start)]) * 1000)
    tail: dict[str, Any] = {"MillisBehindLatest": max(behind, 0)}
    if at_tip and shard.closed_at is not None:
        tail["NextShardIterator"] = None
        tail["ChildShards"] = [child_description(child) for child in shard.children]
    else:
        after = log.counters[end - 1] if end > start else iterator.after
        following = iterator._replace(after=after, issued_at=now)
        tail["NextShardIterator"] = following.encode()
    # Records are kept as JSON, so that a page of 10,000 records needs no encoding.
    return b'{"Records":[%b],%b' % (log.join(start, end), msgspec.json.encode(tail)[1:])


def without_iterator(body: bytes) -> bytes:
    """Return a response to GetRecords without NextShardIterator and ChildShards."""
    answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    names = ("Records", "MillisBehindLatest")
    return msgspec.json.encode({name: answer[name] for name in names})


def child_description(child: Shard) -> dict[str, Any]:
    """Return a child as the last response of a closed shard names it."""
    return {
        "ShardId": child.shard_id,
        "ParentShards": [parent.shard_id for parent in child.parents],
        "HashKeyRange": child.hash_key_range(),
    }


def _rate_exceeded(stream: Stream, shard: Shard) -> AwsError:
    return AwsError(
        "ProvisionedThroughputExceededException",
        f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} "
        f"under account {stream.account}.",
    )


def put_record(stream: Stream, request: rq.PutRecord, now: float) -> dict[str, Any]:
    """Return the response to PutRecord."""
    stream.require_open()
    if stream.distribution == AUTO and request.sequence_number_for_ordering:
        raise invalid_argument(
            f"SequenceNumberForOrdering is not supported: stream {stream.name} "
            "distributes records by AUTO."
        )
    _check(stream, request)
    return _put(stream, request, now)


def put_records(stream: Stream, request: rq.PutRecords, now: float) -> dict[str, Any]:
    """Return the response to PutRecords, with the errors of records that exceed limits.

    Raise AwsError if the request itself is invalid.
    """
    stream.require_open()
    records, limits = request.records, stream.limits
    if len(records) > limits.request_records:
        raise invalid_request(
            f"{len(records)} records are more than the {limits.request_records} of one "
            "request."
        )
    total = sum(_check(stream, record) for record in records)
    if total > limits.request_bytes:
        raise invalid_argument(
            f"{total} bytes of records exceed the limit of one request."
        )
    results = [_try(stream, record, now) for record in records]
    failed = sum("ErrorCode" in result for result in results)
    return {"FailedRecordCount": failed, "Records": results}


def _try(stream: Stream, record: rq.Entry, now: float) -> dict[str, str]:
    try:
        return _put(stream, record, now)
    except AwsError as error:
        return {"ErrorCode": error.code, "ErrorMessage": error.message}


def _put(stream: Stream, record: rq.Entry | rq.PutRecord, now: float) -> dict[str, str]:
    shard = _place(stream, record.partition_key, record.explicit_hash_key)
    size = _size(record.data, record.partition_key)
    if shard.throttles_write(size, now):
        raise _rate_exceeded(stream, shard)
    number = store(stream, shard, record.data, record.partition_key, now)
    return {"ShardId": shard.shard_id, "SequenceNumber": number}


def store(
    stream: Stream, shard: Shard, data: bytes, key: str | None, now: float
) -> str:
    """Store a record without checking limits, and return its sequence number.

    ``key`` is the partition key, or None for a record without one.
    """
    encoded = b2a_base64(data, newline=False)
    key_json = None if key is None else msgspec.json.encode(key)
    return stream.append(shard, encoded, key_json, _size(data, key), now)


def _size(data: bytes, key: str | None) -> int:
    return len(data) + len((key or "").encode())


def _place(stream: Stream, key: str | None, explicit_hash_key: str | None) -> Shard:
    """Return the shard that takes a record."""
    if stream.distribution == AUTO:
        return stream.next_in_turn()
    if explicit_hash_key is not None:
        return stream.route(int(explicit_hash_key))
    assert key is not None
    return stream.route(hash_key(key))


def _check(stream: Stream, record: rq.Entry | rq.PutRecord) -> int:
    if record.partition_key is None and stream.distribution != AUTO:
        raise invalid_request(
            "1 validation error detected: Value null at 'partitionKey' failed to "
            "satisfy constraint: Member must not be null"
        )
    explicit = record.explicit_hash_key
    if explicit is not None and not (
        explicit.isascii() and explicit.isdecimal() and int(explicit) < HASH_KEYS
    ):
        raise invalid_argument(
            "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: "
            f"[0, 2^128-1]. Specified value was {explicit}"
        )
    size = _size(record.data, record.partition_key)
    if size > stream.max_record_kib * 1024:
        raise invalid_argument(
            f"A record of {size} bytes is larger than the {stream.max_record_kib} KiB "
            f"that stream {stream.name} allows."
        )
    return size

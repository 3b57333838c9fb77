"""Reading a shard: iterators and pages."""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.local.kinesis.listing import hash_key_range
from kinesumer.local.kinesis.tokens import HASH_KEYS, ShardIterator, hash_key
from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from kinesumer.local.kinesis import requests as rq
    from kinesumer.local.kinesis.shards import Shard, Stream


def get_iterator(
    stream: Stream, request: rq.GetShardIterator, now: float
) -> dict[str, Any]:
    """Answer GetShardIterator."""
    _require_readable(stream)
    shard = stream.shard(request.shard_id, now)
    if not shard.iterator_calls.take(1, now):
        raise rate_exceeded(stream, shard)
    after = _behind(stream, shard, request, now)
    place = ShardIterator(stream.arn, stream.created_ms, shard.shard_id, after, now)
    return {"ShardIterator": place.encode()}


def _behind(
    stream: Stream, shard: Shard, request: rq.GetShardIterator, now: float
) -> int:
    kind = request.shard_iterator_type
    if kind == "TRIM_HORIZON":
        return 0
    if kind == "LATEST":
        return stream.counter
    if kind == "AT_TIMESTAMP":
        moment = _required(request.timestamp, "Timestamp", kind)
        if moment > now:
            raise AwsError(
                "InvalidArgumentException",
                "The timestampInMillis parameter cannot be greater than the "
                f"currentTimestampInMillis. timestampInMillis: {moment * 1000:.0f}, "
                f"currentTimestampInMillis: {now * 1000:.0f}",
            )
        index = shard.log.since(moment)
        at_tip = index == len(shard.log)
        return stream.counter if at_tip else shard.log.counters[index] - 1
    number = _required(request.starting_sequence_number, "StartingSequenceNumber", kind)
    counter = stream.counter_of(shard, number)
    return counter - 1 if kind == "AT_SEQUENCE_NUMBER" else counter


def _required(value: Any, name: str, kind: str) -> Any:
    if value is None:
        raise AwsError(
            "InvalidArgumentException",
            f"Must either specify {name} or a ShardIteratorType other than {kind}.",
        )
    return value


def get_records(stream: Stream, request: rq.GetRecords, now: float) -> bytes:
    """Answer GetRecords, as bytes."""
    _require_readable(stream)
    limits = stream.limits
    count = limits.page_records if request.limit is None else request.limit
    if count > limits.page_records:
        raise AwsError(
            "InvalidArgumentException",
            f"Limit {count} is greater than {limits.page_records}.",
        )
    place = ShardIterator.decode(request.shard_iterator)
    if place.created_ms != stream.created_ms or place.stream_arn != stream.arn:
        raise AwsError("InvalidArgumentException", "Invalid ShardIterator.")
    place.require_fresh(now, limits.iterator_seconds)
    shard = stream.shard(place.shard_id, now)
    if not shard.read_bytes.holds(0, now) or not shard.read_calls.take(1, now):
        raise rate_exceeded(stream, shard)
    start = shard.log.after(place.after)
    end = shard.log.page_end(start, count, limits.page_bytes)
    shard.read_bytes.spend(shard.log.size(start, end))
    return _page(shard, place, start, end, now)


def _page(
    shard: Shard, place: ShardIterator, start: int, end: int, now: float
) -> bytes:
    log = shard.log
    at_tip = end == len(log)
    behind = 0 if at_tip else round((now - log.times[max(end - 1, start)]) * 1000)
    tail: dict[str, Any] = {"MillisBehindLatest": max(behind, 0)}
    if at_tip and shard.closed_at is not None:
        tail["NextShardIterator"] = None
        tail["ChildShards"] = [_child(child) for child in shard.children]
    else:
        after = log.counters[end - 1] if end > start else place.after
        tail["NextShardIterator"] = place._replace(after=after, issued_at=now).encode()
    return b'{"Records":[%b],%b' % (log.join(start, end), msgspec.json.encode(tail)[1:])


def _child(child: Shard) -> dict[str, Any]:
    return {
        "ShardId": child.shard_id,
        "ParentShards": [parent.shard_id for parent in child.parents],
        "HashKeyRange": hash_key_range(child),
    }


def _require_readable(stream: Stream) -> None:
    if stream.status not in ("ACTIVE", "UPDATING"):
        raise AwsError(
            "ResourceNotFoundException",
            f"Stream {stream.name} under account {stream.account} not found.",
        )


def rate_exceeded(stream: Stream, shard: Shard) -> AwsError:
    """Return the refusal of a call that is too fast for a shard."""
    return AwsError(
        "ProvisionedThroughputExceededException",
        f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} "
        f"under account {stream.account}.",
    )


def put_record(stream: Stream, request: rq.PutRecord, now: float) -> dict[str, Any]:
    """Answer PutRecord."""
    _require_writable(stream)
    _check(stream, request)
    return _put(stream, request, now)


def put_records(stream: Stream, request: rq.PutRecords, now: float) -> dict[str, Any]:
    """Answer PutRecords: records that a shard has no room for fail one by one."""
    _require_writable(stream)
    records = request.records
    if len(records) > stream.limits.request_records:
        raise AwsError(
            "ValidationException",
            f"{len(records)} records are more than the "
            f"{stream.limits.request_records} of one request.",
        )
    total = sum(_check(stream, record) for record in records)
    if total > stream.limits.request_bytes:
        raise AwsError(
            "InvalidArgumentException",
            f"{total} bytes of records exceed the limit of one request.",
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
    shard = stream.route(_hash(record))
    size = len(record.data) + len(record.partition_key.encode())
    if shard.throttles_write(size, now):
        raise rate_exceeded(stream, shard)
    number = store(stream, shard, record.data, record.partition_key, now)
    return {"ShardId": shard.shard_id, "SequenceNumber": number}


def store(
    stream: Stream, shard: Shard, data: bytes, key: str | None, now: float
) -> str:
    """Store a record beside all limits; None makes one without a partition key."""
    encoded = b2a_base64(data, newline=False)
    if key is None:
        return stream.append(shard, encoded, None, len(data), now)
    size = len(data) + len(key.encode())
    return stream.append(shard, encoded, msgspec.json.encode(key), size, now)


def _hash(record: rq.Entry | rq.PutRecord) -> int:
    explicit = record.explicit_hash_key
    return hash_key(record.partition_key) if explicit is None else int(explicit)


def _check(stream: Stream, record: rq.Entry | rq.PutRecord) -> int:
    explicit = record.explicit_hash_key
    if explicit is not None and not (
        explicit.isascii() and explicit.isdecimal() and int(explicit) < HASH_KEYS
    ):
        raise AwsError(
            "InvalidArgumentException",
            f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: "
            f"[0, 2^128-1]. Specified value was {explicit}",
        )
    size = len(record.data) + len(record.partition_key.encode())
    if size > stream.max_record_kib * 1024:
        raise AwsError(
            "InvalidArgumentException",
            f"A record of {size} bytes is larger than the {stream.max_record_kib} KiB "
            f"that stream {stream.name} allows.",
        )
    return size


def _require_writable(stream: Stream) -> None:
    if stream.status not in ("ACTIVE", "UPDATING"):
        raise AwsError(
            "ResourceNotFoundException",
            f"Stream {stream.name} under account {stream.account} not found.",
        )

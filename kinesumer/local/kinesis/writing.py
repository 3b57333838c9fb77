"""Writing to a stream: routing, limits, one record or many."""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.local.errors import AwsError
from kinesumer.local.kinesis.reading import rate_exceeded
from kinesumer.local.kinesis.sequence import HASH_KEYS, hash_key

if TYPE_CHECKING:
    from kinesumer.local.kinesis import requests as rq
    from kinesumer.local.kinesis.shards import Shard, Stream


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

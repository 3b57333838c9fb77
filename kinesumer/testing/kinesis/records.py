"""Serve the requests that put records, and that read pages of records."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.kinesis import requests as rq
from kinesumer.testing.kinesis.requests import (
    AwsError,
    ShardIterator,
    invalid_argument,
    invalid_request,
)
from kinesumer.testing.kinesis.shards import (
    Shard,
    StoredRecord,
    child_description,
)
from kinesumer.testing.kinesis.streams import AUTO, Stream


def get_iterator(
    stream: Stream, request: rq.GetShardIterator, now: float, skew: float = 0.0
) -> dict[str, Any]:
    """Return the response to GetShardIterator.

    The clock of the server that answers is ``skew`` seconds fast.
    """
    stream.require_open()
    shard = stream.shard(request.shard_id)
    if not shard.iterator_calls.take(1, now):
        raise _rate_exceeded(stream, shard)
    index = index_of(
        stream,
        shard,
        request.shard_iterator_type,
        request.starting_sequence_number,
        request.timestamp,
        now + skew,
    )
    iterator = ShardIterator(stream.arn, stream.created_ms, now, shard.shard_id, index)
    return {"ShardIterator": iterator.encode()}


def index_of(
    stream: Stream,
    shard: Shard,
    kind: str,
    sequence_number: str | None,
    timestamp: float | None,
    now: float,
) -> int:
    """Return the index of the first record to read."""
    if kind == "TRIM_HORIZON":
        return shard.trimmed
    if kind == "LATEST":
        return len(shard.log)
    if kind == "AT_TIMESTAMP":
        timestamp = _required(timestamp, "Timestamp", kind)
        if timestamp > now:
            raise invalid_argument(
                "The timestampInMillis parameter cannot be greater than the "
                f"currentTimestampInMillis. timestampInMillis: {timestamp * 1000:.0f}, "
                f"currentTimestampInMillis: {now * 1000:.0f}"
            )
        return max(shard.trimmed, shard.place_since(timestamp))
    number = _required(sequence_number, "StartingSequenceNumber", kind)
    stream.count_of(shard, number)
    at = shard.place_at(number)
    if at < shard.trimmed:
        raise invalid_argument(
            f"The record at {number} in shard {shard.shard_id} has expired."
        )
    return at if kind == "AT_SEQUENCE_NUMBER" else shard.place_after(number)


def _required(value: Any, name: str, kind: str) -> Any:
    if value is None:
        raise invalid_argument(
            f"Must either specify {name} or a ShardIteratorType other than {kind}."
        )
    return value


class ReadPage(NamedTuple):
    """A page of a shard's records, as GetRecords returns it."""

    records: list[StoredRecord]
    iterator: str | None  # of the next page, or None if the shard has ended
    millis_behind: int
    children: list[Shard]

    def response(self) -> dict[str, Any]:
        """Return the response to GetRecords."""
        answer: dict[str, Any] = {
            "Records": self.records,
            "MillisBehindLatest": self.millis_behind,
            "NextShardIterator": self.iterator,
        }
        if self.iterator is None:
            answer["ChildShards"] = [child_description(c) for c in self.children]
        return answer


def get_records(stream: Stream, request: rq.GetRecords, now: float) -> ReadPage:
    """Return a page of records."""
    stream.require_open()
    limits = stream.limits
    count = limits.page_records if request.limit is None else request.limit
    if count > limits.page_records:
        raise invalid_argument(f"Limit {count} is greater than {limits.page_records}.")
    iterator = ShardIterator.decode(request.shard_iterator)
    if iterator.created_ms != stream.created_ms or iterator.stream_arn != stream.arn:
        raise invalid_argument("Invalid ShardIterator.")
    iterator.require_fresh(now, limits.iterator_seconds)
    shard = stream.shard(iterator.shard_id)
    # A page may have more bytes than the bucket holds: see ``Bucket.spend()``.
    if not shard.read_bytes.holds(0, now) or not shard.read_calls.take(1, now):
        raise _rate_exceeded(stream, shard)
    start = max(iterator.at, shard.trimmed)
    end, size = shard.page(start, count, limits.page_bytes)
    shard.read_bytes.spend(size)
    following = None
    if not shard.closed or end < len(shard.log):
        following = replace(iterator, at=end, issued_at=now).encode()
    behind = shard.millis_behind(start, end, now)
    return ReadPage(shard.log[start:end], following, behind, shard.children)


def _rate_exceeded(stream: Stream, shard: Shard) -> AwsError:
    return AwsError(
        "ProvisionedThroughputExceededException",
        f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} "
        f"under account {stream.account}.",
    )


def put_record(stream: Stream, request: rq.PutRecord, now: float) -> dict[str, Any]:
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
    explicit = record.explicit_hash_key
    hash_key = None if explicit is None else int(explicit)
    shard = stream.choose(record.partition_key, hash_key)
    size = _size(record.data, record.partition_key)
    if shard.throttles_write(size, now):
        raise _rate_exceeded(stream, shard)
    number = stream.append(shard, record.data, record.partition_key, now)
    return {"ShardId": shard.shard_id, "SequenceNumber": number}


def _size(data: bytes, key: str | None) -> int:
    return len(data) + len((key or "").encode())


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

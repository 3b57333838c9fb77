"""Descriptions of streams, and listings of their shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.local.kinesis.tokens import ListingToken
from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from kinesumer.local.kinesis import requests as rq
    from kinesumer.local.kinesis.shards import Shard, Stream


def describe(stream: Stream, request: rq.DescribeStream, now: float) -> dict[str, Any]:
    """Answer DescribeStream."""
    left = [
        shard
        for shard in stream.visible(now)
        if shard.shard_id > request.exclusive_start_shard_id
    ]
    page = left[: request.limit]
    return {
        "StreamDescription": {
            **_description(stream),
            "Shards": [_shard(stream, shard) for shard in page],
            "HasMoreShards": len(page) < len(left),
        }
    }


def describe_summary(
    stream: Stream, _: rq.DescribeStreamSummary, now: float
) -> dict[str, Any]:
    """Answer DescribeStreamSummary."""
    return {
        "StreamDescriptionSummary": {
            **_description(stream),
            "OpenShardCount": len(stream.open),
            "ConsumerCount": 0,
            "MaxRecordSizeInKiB": stream.max_record_kib,
        }
    }


def _description(stream: Stream) -> dict[str, Any]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "RetentionPeriodHours": stream.retention_hours,
        "StreamCreationTimestamp": stream.created_at,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }


def _shard(stream: Stream, shard: Shard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": stream.sequence(shard, shard.first_counter)}
    if shard.last_counter is not None:
        numbers["EndingSequenceNumber"] = stream.sequence(shard, shard.last_counter)
    names = ("ParentShardId", "AdjacentParentShardId")
    parents = {
        name: parent.shard_id
        for name, parent in zip(names, shard.parents, strict=False)
    }
    return {
        "ShardId": shard.shard_id,
        **parents,
        "HashKeyRange": hash_key_range(shard),
        "SequenceNumberRange": numbers,
    }


def hash_key_range(shard: Shard) -> dict[str, str]:
    """Return a shard's hash keys as Kinesis writes them."""
    return {
        "StartingHashKey": str(shard.first_hash),
        "EndingHashKey": str(shard.last_hash),
    }


def list_shards(stream: Stream, request: rq.ListShards, now: float) -> dict[str, Any]:
    """Answer ListShards."""
    if stream.status in ("CREATING", "DELETING"):
        stream.require_active()
    if not stream.listing_calls.take(1, now):
        raise AwsError(
            "LimitExceededException", f"Rate exceeded for stream {stream.name}."
        )
    place = _place(stream, request, now)
    shards = [
        shard
        for shard in stream.visible(now)
        if shard.shard_id > place.after and _passes(stream, shard, place, now)
    ]
    page = shards[: request.max_results]
    answer: dict[str, Any] = {"Shards": [_shard(stream, shard) for shard in page]}
    if len(page) < len(shards):
        token = place._replace(after=page[-1].shard_id, issued_at=now)
        answer["NextToken"] = token.encode()
    return answer


def _place(stream: Stream, request: rq.ListShards, now: float) -> ListingToken:
    created = request.stream_creation_timestamp
    if created is not None and int(created) != int(stream.created_at):
        raise AwsError(
            "ResourceNotFoundException",
            f"Stream {stream.name} created at {created} not found.",
        )
    if request.next_token is None:
        return _first_place(stream, request, now)
    if request.stream_name or request.exclusive_start_shard_id or request.shard_filter:
        raise AwsError(
            "InvalidArgumentException",
            "NextToken can't be given together with StreamName, ShardFilter or "
            "ExclusiveStartShardId.",
        )
    token = ListingToken.decode(request.next_token)
    token.require_fresh(now, stream.limits.token_seconds)
    if token.created_ms != stream.created_ms:
        raise AwsError("InvalidArgumentException", "Invalid NextToken.")
    return token


def _first_place(stream: Stream, request: rq.ListShards, now: float) -> ListingToken:
    kind, moment, after = "FROM_TRIM_HORIZON", 0.0, request.exclusive_start_shard_id
    if request.shard_filter is not None:
        kind = request.shard_filter.type
        if kind.endswith("_TIMESTAMP"):
            moment = _required(request.shard_filter.timestamp, "Timestamp")
        if kind == "AFTER_SHARD_ID":
            after = _required(request.shard_filter.shard_id, "ShardId")
    return ListingToken(stream.arn, stream.created_ms, after or "", now, kind, moment)


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise AwsError(
            "InvalidArgumentException", f"ShardFilter of this type needs a {name}."
        )
    return value


def _passes(stream: Stream, shard: Shard, place: ListingToken, now: float) -> bool:
    oldest = max(stream.horizon(now), stream.created_at)
    match place.filter_type:
        case "AT_LATEST":
            return shard.closed_at is None
        case "AT_TRIM_HORIZON":
            return shard.created_at <= oldest
        case "AT_TIMESTAMP":
            moment = place.filter_moment
            return shard.created_at <= moment and _lives_at(shard, moment)
        case "FROM_TIMESTAMP":
            return _lives_at(shard, place.filter_moment)
        case _:
            return True


def _lives_at(shard: Shard, moment: float) -> bool:
    return shard.closed_at is None or shard.closed_at >= moment

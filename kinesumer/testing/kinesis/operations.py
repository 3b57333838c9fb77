"""Serve the requests that change streams, describe them, and list shards and tags."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from kinesumer.model.streams import CONSUMER_ARN
from kinesumer.testing.kinesis import requests as rq
from kinesumer.testing.kinesis.consumers import current_consumers, find_consumer
from kinesumer.testing.kinesis.requests import (
    ConsumerRequest,
    ListingToken,
    invalid_argument,
    invalid_request,
    limit_exceeded,
    not_found,
)
from kinesumer.testing.kinesis.shards import Shard, hash_key_range
from kinesumer.testing.kinesis.streams import BY_KEY, Stream

Answer = dict[str, Any]


# --- changes, during most of which a stream is UPDATING -------------------------------


def record_kib(kib: int) -> int:
    """Return a maximum record size. Raise AwsError if AWS doesn't allow it."""
    if not 1024 <= kib <= 10_240:
        raise invalid_request("MaxRecordSizeInKiB must be from 1024 to 10240.")
    return kib


def _set_retention(
    stream: Stream, request: rq.RetentionPeriod, now: float, *, longer: bool
) -> Answer:
    hours = request.retention_period_hours
    low, high = 24.0, stream.retention_hours
    if longer:
        low, high = high, 8760
    if not low <= hours <= high:
        raise invalid_argument(
            f"RetentionPeriodHours {hours} must be from {low} to {high} hours."
        )
    stream.change(now, lambda _: setattr(stream, "retention_hours", hours))
    return {}


def set_mode(stream: Stream, request: rq.UpdateStreamMode, now: float) -> Answer:
    mode = request.stream_mode_details.stream_mode

    def apply(_: float) -> None:
        stream.mode = mode
        if mode == "PROVISIONED":
            stream.distribution = BY_KEY

    stream.change(now, apply)
    return {}


def set_distribution(
    stream: Stream, request: rq.UpdateStreamRecordDistributionStrategy, now: float
) -> Answer:
    """Change the distribution strategy, which takes effect immediately."""
    if request.stream_arn is None:
        raise invalid_argument("StreamARN is needed.")
    stream.require_active()
    require_distribution(stream.mode, request.record_distribution_strategy)
    stream.distribution = request.record_distribution_strategy
    return {}


def require_distribution(mode: str, distribution: str) -> None:
    """Raise AwsError if a stream with this capacity mode can't have the strategy."""
    if distribution != BY_KEY and mode != "ON_DEMAND":
        raise invalid_argument(
            f"RecordDistributionStrategy {distribution} is only supported for streams "
            "with on-demand capacity."
        )


def set_record_size(
    stream: Stream, request: rq.UpdateMaxRecordSize, now: float
) -> Answer:
    kib = record_kib(request.max_record_size)
    stream.change(now, lambda _: setattr(stream, "max_record_kib", kib))
    return {}


def start_encryption(
    stream: Stream, request: rq.StreamEncryption, now: float
) -> Answer:
    stream.change(now, lambda _: setattr(stream, "key_id", request.key_id))
    return {}


def stop_encryption(stream: Stream, request: rq.StreamEncryption, now: float) -> Answer:
    if stream.key_id != request.key_id:
        raise invalid_argument(f"The stream isn't encrypted with {request.key_id}.")
    stream.change(now, lambda _: setattr(stream, "key_id", None))
    return {}


def _require_changeable_shards(stream: Stream) -> None:
    if stream.mode != "PROVISIONED":
        raise invalid_request(
            f"Stream {stream.name} under account {stream.account} has on-demand "
            "capacity: its shards can't be changed by hand."
        )
    stream.require_active()


def split(stream: Stream, request: rq.SplitShard, now: float) -> Answer:
    _require_changeable_shards(stream)
    text = request.new_starting_hash_key
    at_hash = int(text) if text.isdecimal() else -1
    parent = stream.require_splittable(request.shard_to_split, at_hash)
    stream.change(now, lambda at: stream.split(*parent, at))
    return {}


def merge(stream: Stream, request: rq.MergeShards, now: float) -> Answer:
    _require_changeable_shards(stream)
    left, right = stream.require_mergeable(
        request.shard_to_merge, request.adjacent_shard_to_merge
    )
    stream.change(now, lambda at: stream.merge(left, right, at))
    return {}


def rescale(stream: Stream, request: rq.UpdateShardCount, now: float) -> Answer:
    """Split and merge shards until the requested number is open."""
    _require_changeable_shards(stream)
    current, target = len(stream.open), request.target_shard_count
    if not current <= 2 * target <= 4 * current:
        raise invalid_argument(
            "UpdateShardCount cannot scale below half or above double your current "
            f"open shard count. Current open shard count: {current} "
            f"Target shard count: {target}"
        )
    stream.change(now, lambda at: stream.rescale(target, at))
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": current,
        "TargetShardCount": target,
    }


lengthen = partial(_set_retention, longer=True)
shorten = partial(_set_retention, longer=False)


# --- descriptions and listings --------------------------------------------------------


def describe(stream: Stream, request: rq.DescribeStream, now: float) -> Answer:
    left = [
        shard
        for shard in stream.shards.values()
        if shard.shard_id > request.exclusive_start_shard_id
    ]
    page = left[: request.limit]
    return {
        "StreamDescription": {
            **_description(stream),
            "Shards": [_shard(shard) for shard in page],
            "HasMoreShards": len(page) < len(left),
        }
    }


def describe_summary(stream: Stream, _: rq.Request, now: float) -> Answer:
    return {
        "StreamDescriptionSummary": {
            **_description(stream),
            "OpenShardCount": len(stream.open),
            "ConsumerCount": len(current_consumers(stream, now)),
            "MaxRecordSizeInKiB": stream.max_record_kib,
            **_distribution(stream),
        }
    }


def _distribution(stream: Stream) -> dict[str, str]:
    """Return the strategy, which only streams in on-demand mode have."""
    if stream.mode != "ON_DEMAND":
        return {}
    return {"RecordDistributionStrategy": stream.distribution}


def _description(stream: Stream) -> Answer:
    return {
        **stream.summary(),
        "RetentionPeriodHours": stream.retention_hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        **_encryption(stream),
    }


def _encryption(stream: Stream) -> dict[str, str]:
    if stream.key_id is None:
        return {"EncryptionType": "NONE"}
    return {"EncryptionType": "KMS", "KeyId": stream.key_id}


def _shard(shard: Shard) -> Answer:
    numbers = {"StartingSequenceNumber": shard.first_number}
    if shard.shard.ending_sequence_number is not None:
        numbers["EndingSequenceNumber"] = shard.shard.ending_sequence_number
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        "ShardId": shard.shard_id,
        **dict(zip(names, shard.shard.parents, strict=False)),
        "HashKeyRange": hash_key_range(shard),
        "SequenceNumberRange": numbers,
    }


def list_shards(stream: Stream, request: rq.ListShards, now: float) -> Answer:
    if stream.status in ("CREATING", "DELETING"):
        stream.require_active()
    if not stream.listing_calls.take(1, now):
        raise limit_exceeded(f"Rate exceeded for stream {stream.name}.")
    token = _token(stream, request, now)
    shards = [
        shard
        for shard in stream.shards.values()
        if shard.shard_id > token.after and _is_listed(stream, shard, token, now)
    ]
    page = shards[: request.max_results]
    answer: dict[str, Any] = {"Shards": [_shard(shard) for shard in page]}
    if len(page) < len(shards):
        after = replace(token, after=page[-1].shard_id, issued_at=now)
        answer["NextToken"] = after.encode()
    return answer


def _token(stream: Stream, request: rq.ListShards, now: float) -> ListingToken:
    created = request.stream_creation_timestamp
    if created is not None and int(created) != int(stream.created_at):
        raise not_found(f"Stream {stream.name} created at {created} not found.")
    if request.next_token is None:
        return _first_token(stream, request, now)
    if request.stream_name or request.exclusive_start_shard_id or request.shard_filter:
        raise invalid_argument(
            "NextToken can't be given together with StreamName, ShardFilter or "
            "ExclusiveStartShardId."
        )
    token = ListingToken.decode(request.next_token)
    token.require_fresh(now, stream.limits.token_seconds)
    if token.created_ms != stream.created_ms:
        raise invalid_argument("Invalid NextToken.")
    return token


def _first_token(stream: Stream, request: rq.ListShards, now: float) -> ListingToken:
    kind, timestamp, after = "FROM_TRIM_HORIZON", 0.0, request.exclusive_start_shard_id
    if request.shard_filter is not None:
        kind = request.shard_filter.type
        if kind.endswith("_TIMESTAMP"):
            timestamp = _required(request.shard_filter.timestamp, "Timestamp")
        if kind == "AFTER_SHARD_ID":
            after = _required(request.shard_filter.shard_id, "ShardId")
    return ListingToken(
        stream.arn, stream.created_ms, now, after or "", kind, timestamp
    )


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise invalid_argument(f"ShardFilter of this type needs a {name}.")
    return value


def _is_listed(stream: Stream, shard: Shard, token: ListingToken, now: float) -> bool:
    timestamp = token.filter_timestamp
    is_open = shard.closed_at is None or shard.closed_at >= timestamp
    match token.filter_type:
        case "AT_LATEST":
            return shard.closed_at is None
        case "AT_TRIM_HORIZON":
            return shard.created_at <= max(stream.horizon(now), stream.created_at)
        case "AT_TIMESTAMP":
            return shard.created_at <= timestamp and is_open
        case "FROM_TIMESTAMP":
            return is_open
        case _:
            return True


def tag_stream(stream: Stream, request: rq.AddTagsToStream, now: float) -> Answer:
    stream.tags |= request.tags
    return {}


def tag_resource(stream: Stream, request: rq.TagResource, now: float) -> Answer:
    _tags_of(stream, request, now).update(request.tags)
    return {}


def list_stream_tags(stream: Stream, request: rq.Request, now: float) -> Answer:
    return {"Tags": _pairs(stream.tags), "HasMoreTags": False}


def list_resource_tags(
    stream: Stream, request: rq.ResourceRequest, now: float
) -> Answer:
    return {"Tags": _pairs(_tags_of(stream, request, now))}


def _tags_of(stream: Stream, request: rq.ResourceRequest, now: float) -> dict[str, str]:
    arn = request.resource_arn
    if CONSUMER_ARN.fullmatch(arn):
        return find_consumer(stream, ConsumerRequest(consumer_arn=arn), now).tags
    return stream.tags


def _pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]

"""Serve the requests that change a stream, during most of which it is UPDATING."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinesumer.testing.kinesis import requests as rq
from kinesumer.testing.kinesis.errors import invalid_argument, invalid_request
from kinesumer.testing.kinesis.streams import BY_KEY, Stream

Answer = dict[str, Any]


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
    shard = stream.require_splittable(request.shard_to_split, at_hash)
    stream.change(now, lambda at: stream.split(shard, at_hash, at))
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

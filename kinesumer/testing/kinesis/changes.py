"""Serve the requests that change a stream, during most of which it is UPDATING."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.testing.kinesis.errors import invalid_argument, invalid_request
from kinesumer.testing.kinesis.streams import BY_KEY

if TYPE_CHECKING:
    from kinesumer.testing.kinesis import requests as rq
    from kinesumer.testing.kinesis.streams import Stream

Answer = dict[str, Any]


def record_kib(kib: int) -> int:
    """Return a maximum record size. Raise AwsError if AWS doesn't allow it."""
    if not 1024 <= kib <= 10_240:
        raise invalid_request("MaxRecordSizeInKiB must be from 1024 to 10240.")
    return kib


def require_distribution(mode: str, distribution: str) -> None:
    """Raise AwsError if a stream with this capacity mode can't have the strategy."""
    if distribution != BY_KEY and mode != "ON_DEMAND":
        raise invalid_argument(
            f"RecordDistributionStrategy {distribution} is only supported for streams "
            "with on-demand capacity."
        )


def _require_changeable_shards(stream: Stream) -> None:
    if stream.mode != "PROVISIONED":
        raise invalid_request(
            f"Stream {stream.name} under account {stream.account} has on-demand "
            "capacity: its shards can't be changed by hand."
        )
    stream.require_active()


def split(stream: Stream, request: rq.SplitShard, now: float) -> Answer:
    """Split a shard."""
    _require_changeable_shards(stream)
    text = request.new_starting_hash_key
    at_hash = int(text) if text.isdecimal() else -1
    shard = stream.require_splittable(request.shard_to_split, at_hash)
    stream.change(now, lambda at: stream.split(shard, at_hash, at))
    return {}


def merge(stream: Stream, request: rq.MergeShards, now: float) -> Answer:
    """Merge two adjacent shards."""
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

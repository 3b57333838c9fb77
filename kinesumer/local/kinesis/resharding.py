"""Changing the shards of a stream: split, merge and uniform scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from kinesumer.local.kinesis import requests as rq
    from kinesumer.local.kinesis.shards import Shard, Stream


def split(stream: Stream, request: rq.SplitShard, now: float) -> dict[str, Any]:
    """Answer SplitShard."""
    _require_provisioned(stream)
    stream.require_active()
    shard = open_shard(stream, request.shard_to_split, now)
    text = request.new_starting_hash_key
    at_hash = int(text) if text.isdecimal() else -1
    require_inside(stream, shard, at_hash)
    stream.change(now, lambda at: stream.split(shard, at_hash, at))
    return {}


def merge(stream: Stream, request: rq.MergeShards, now: float) -> dict[str, Any]:
    """Answer MergeShards."""
    _require_provisioned(stream)
    stream.require_active()
    left = open_shard(stream, request.shard_to_merge, now)
    right = open_shard(stream, request.adjacent_shard_to_merge, now)
    require_adjacent(stream, left, right)
    stream.change(now, lambda at: stream.merge(left, right, at))
    return {}


def rescale(stream: Stream, request: rq.UpdateShardCount, now: float) -> dict[str, Any]:
    """Answer UpdateShardCount."""
    _require_provisioned(stream)
    stream.require_active()
    current, target = len(stream.open), request.target_shard_count
    if not current <= 2 * target <= 4 * current:
        raise AwsError(
            "InvalidArgumentException",
            f"UpdateShardCount cannot scale below half or above double your current "
            f"open shard count. Current open shard count: {current} "
            f"Target shard count: {target}",
        )
    stream.change(now, lambda at: stream.rescale(target, at))
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": current,
        "TargetShardCount": target,
    }


def require_inside(stream: Stream, shard: Shard, at_hash: int) -> None:
    """Raise InvalidArgumentException if a shard can't part at a hash key."""
    if not shard.first_hash < at_hash <= shard.last_hash:
        raise AwsError(
            "InvalidArgumentException",
            f"NewStartingHashKey {at_hash} used in SplitShard() on shard "
            f"{shard.shard_id} in stream {stream.name} under account "
            f"{stream.account} is not both greater than one plus the shard's "
            f"StartingHashKey {shard.first_hash} and less than the shard's "
            f"EndingHashKey {shard.last_hash}.",
        )


def require_adjacent(stream: Stream, left: Shard, right: Shard) -> None:
    """Raise InvalidArgumentException if two shards aren't neighbours."""
    low, high = sorted((left, right), key=lambda shard: shard.first_hash)
    if low.last_hash + 1 != high.first_hash:
        raise AwsError(
            "InvalidArgumentException",
            f"Shards {left.shard_id} and {right.shard_id} in stream {stream.name} "
            f"under account {stream.account} are not an adjacent pair of shards "
            f"eligible for merging",
        )


def open_shard(stream: Stream, shard_id: str, now: float) -> Shard:
    """Return an open shard; raise InvalidArgumentException if it is closed."""
    shard = stream.shard(shard_id, now)
    if shard.closed_at is not None:
        raise AwsError(
            "InvalidArgumentException",
            f"Shard {shard_id} in stream {stream.name} under account "
            f"{stream.account} is closed.",
        )
    return shard


def _require_provisioned(stream: Stream) -> None:
    if stream.mode != "PROVISIONED":
        raise AwsError(
            "ValidationException",
            f"Stream {stream.name} under account {stream.account} has on-demand "
            f"capacity: its shards can't be changed by hand.",
        )

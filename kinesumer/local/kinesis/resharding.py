"""Changing the shards of a stream: split, merge and uniform scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.local.refusal import AwsError

if TYPE_CHECKING:
    from kinesumer.local.kinesis import requests as rq
    from kinesumer.local.kinesis.shards import Shard, Stream


def split(stream: Stream, request: rq.SplitShard, now: float) -> dict[str, Any]:
    """Answer SplitShard."""
    _require_provisioned(stream)
    stream.require_active()
    shard = _open_shard(stream, request.shard_to_split, now)
    text = request.new_starting_hash_key
    at_hash = int(text) if text.isdecimal() else -1
    if not shard.first_hash < at_hash <= shard.last_hash:
        raise AwsError(
            "InvalidArgumentException",
            f"NewStartingHashKey {text} used in SplitShard() on shard "
            f"{shard.shard_id} in stream {stream.name} under account "
            f"{stream.account} is not both greater than one plus the shard's "
            f"StartingHashKey {shard.first_hash} and less than the shard's "
            f"EndingHashKey {shard.last_hash}.",
        )
    stream.change(now, lambda at: stream.split(shard, at_hash, at))
    return {}


def merge(stream: Stream, request: rq.MergeShards, now: float) -> dict[str, Any]:
    """Answer MergeShards."""
    _require_provisioned(stream)
    stream.require_active()
    left = _open_shard(stream, request.shard_to_merge, now)
    right = _open_shard(stream, request.adjacent_shard_to_merge, now)
    if (
        left.last_hash + 1 != right.first_hash
        and right.last_hash + 1 != left.first_hash
    ):
        raise AwsError(
            "InvalidArgumentException",
            f"Shards {left.shard_id} and {right.shard_id} in stream {stream.name} "
            f"under account {stream.account} are not an adjacent pair of shards "
            f"eligible for merging",
        )
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


def _open_shard(stream: Stream, shard_id: str, now: float) -> Shard:
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

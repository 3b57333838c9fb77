"""The values of a client's gauges, read from its engine when they are collected."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kinesumer.telemetry.api import ClientState, StreamState

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.coordination.group import GroupConsumer


def read_gauges(group: GroupConsumer) -> ClientState:
    """Return a client's state. Any thread may call it, so it copies before it reads."""
    session, app = group.session, group.context.app
    used = max(0, group.buffer.used)
    if session is None:
        idle = tuple(StreamState(arn, 0, 0, None, None, 0) for arn in [*group.streams])
        return ClientState(app, used, None, idle)
    held: dict[str, list[OwnedShard]] = defaultdict(list)
    for owned in group.owned_shards():
        held[owned.key.stream_arn].append(owned)
    pending = [row.key.stream_arn for row in session.coordinator.pending]
    leader = session.leader
    counts = leader.shard_counts if leader.is_leading else {}
    streams = tuple(
        StreamState(
            arn,
            current_leases=len(held[arn]),
            leases_to_take=pending.count(arn),
            total_leases=counts.get(arn),
            millis_behind=_max_lag(held[arn]),
            uncommitted=sum(owned.progress.uncommitted for owned in held[arn]),
        )
        for arn in [*group.streams]
    )
    workers = len(leader.watcher.members) if leader.is_leading else None
    return ClientState(app, used, workers, streams)


def _max_lag(shards: list[OwnedShard]) -> int | None:
    lags = (s.millis_behind for s in shards if s.millis_behind is not None)
    return max(lags, default=None)

"""The longest pauses of a shard that the protocol allows, by their causes."""

from __future__ import annotations

from kinesumer.config import Config

HAND_OVER_SECONDS = 1.0
STEADY_SECONDS = 2.0  # without a hand-over, and of the children of a shard
REQUESTS_SECONDS = 0.5  # for the requests of a takeover, and to find records


def crash_bound(config: Config, *, led: bool) -> float:
    """Return how long a shard may pause if its owner, or the leader, is killed."""
    return (
        config.leader_interval_seconds
        + config.lease_duration_seconds
        + (1 + led) * config.heartbeat_interval_seconds
        + REQUESTS_SECONDS
    )

"""Report the assignment, the positions and the lag of owned shards, from memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from kinesumer.consuming.owned_shard import OwnedShard, State
from kinesumer.model.owned import ShardAssignment, ShardLag, ShardPositions
from kinesumer.model.streams import ShardKey


def report_assignment(shards: Iterable[OwnedShard]) -> dict[ShardKey, ShardAssignment]:
    """Return the epoch and the state of each shard."""
    return {o.key: ShardAssignment(o.row.epoch, _state(o)) for o in shards}


def _state(owned: OwnedShard) -> Literal["delivering", "releasing", "stopped"]:
    if owned.state is not State.DELIVERING:
        return "releasing"
    return "delivering" if owned.stopped_by is None else "stopped"


def report_positions(shards: Iterable[OwnedShard]) -> dict[ShardKey, ShardPositions]:
    """Return the stored position and the done position of each shard."""
    return {owned.key: _positions(owned) for owned in shards}


def _positions(owned: OwnedShard) -> ShardPositions:
    progress, start = owned.progress, owned.row.position
    stored = progress.committed_position or start
    return ShardPositions(stored, progress.done_position or start)


def report_lag(
    shards: Iterable[OwnedShard],
    queued_arrivals: Mapping[OwnedShard, float | None],
    now: float,
) -> dict[ShardKey, ShardLag]:
    """Return the lag of each shard.

    ``queued_arrivals`` tells when the first record arrived that is queued for user
    code. Times are in seconds since 1970.
    """
    return {o.key: _lag(o, queued_arrivals.get(o), now) for o in shards}


def _lag(owned: OwnedShard, queued_arrival: float | None, now: float) -> ShardLag:
    progress = owned.progress
    arrival = progress.first_undone_arrival
    arrival = queued_arrival if arrival is None else arrival
    read = None if owned.millis_behind is None else owned.millis_behind / 1000
    if arrival is not None:
        read = max(0.0, now - arrival)
    commit, uncommitted = read, progress.first_uncommitted_arrival
    if uncommitted is not None:
        commit = max(0.0, now - uncommitted)
    in_hand = progress.undone(owned.handed_out)
    return ShardLag(read, commit, in_hand, progress.uncommitted)

"""Hold the public facts about the shards that a client owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.records import Fence
from kinesumer.model.streams import ShardKey

RevokeReason = Literal["moved", "ended", "paused", "seeked", "lost", "closed"]
"""The reason for which a client delivers no more records of a shard."""


class AssignedShard(NamedTuple):
    """A shard in one epoch, as ``on_assigned`` and ``on_revoked`` get it."""

    stream: str
    """The stream's name."""
    fence: Fence
    """App, shard and epoch. Its position is the last one before the first record, and
    None if the shard has no position yet."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.fence.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.fence.shard_id

    @property
    def key(self) -> ShardKey:
        """The stream's ARN and the shard's id, as in ``record.fence.shard``."""
        return self.fence.shard


OnAssigned = Callable[[AssignedShard], object]
OnRevoked = Callable[[AssignedShard, RevokeReason], object]


class ShardAssignment(NamedTuple):
    """A shard that a client owns."""

    epoch: int
    """The shard's epoch: it grows with each claim, and is part of each fence."""
    state: Literal["delivering", "releasing", "stopped"]
    """``releasing`` if the client gives the shard up and waits for user code.
    ``stopped`` if a record kills the processes that receive it, or if a handler with
    ``on_failure="stop-shard"`` failed."""


class ShardPositions(NamedTuple):
    """The progress of a client in a shard that it owns."""

    stored: Position | None
    """The last position in the state store. None if the shard has no position yet."""
    done: Position | None
    """The position before the first record that is not done. None if no record was done
    yet. It is stored with the next commit."""


class ShardLag(NamedTuple):
    """The lag of a client in a shard that it owns.

    Arrival times are those of Kinesis, and the present time is that of this machine.
    """

    read_seconds: float | None
    """Time since the arrival of the first record that is not done. If all records that
    were read are done, this is the distance of the last read from the tip. None before
    the first read."""
    commit_seconds: float | None
    """Time since the arrival of the first record whose position is not stored, or of an
    earlier record of its batch. Without such a record, it is ``read_seconds``."""
    records_in_hand: int
    """Number of records that user code has and that are not done."""
    records_uncommitted: int
    """Number of records that the next owner would repeat after a crash now."""

"""Records, and what identifies their shard and owner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from kinesumer.model.positions import Position
from kinesumer.model.streams import YEAR_10000, ChildShard, ShardKey, stream_name


class Fence(NamedTuple):
    """The owner and position of a delivery, for a sink to store with its output.

    A larger epoch belongs to a later owner of the shard. A position that isn't after
    the stored position was stored already.
    """

    shard: ShardKey
    epoch: int
    app: str = ""
    """Name of the group; empty for records that no group delivered."""
    position: Position | None = None
    """Position of the record, or of a batch's last record. None: the batch is empty."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.shard.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    def at(self, position: Position | None) -> Fence:
        """Return the same fence at another position."""
        return Fence(self.shard, self.epoch, self.app, position)


class Source:
    """The fields that all records of one shard and epoch share."""

    __slots__ = ("fence", "first_hash", "last_hash", "shard_id", "stream", "stream_arn")

    def __init__(self, fence: Fence, first_hash: int, last_hash: int) -> None:
        self.fence = fence
        self.stream_arn, self.shard_id = fence.shard
        self.stream = stream_name(self.stream_arn)
        self.first_hash, self.last_hash = first_hash, last_hash


NotInJson = Annotated[int, msgspec.Meta(gt=0, lt=0)]
"""A number that JSON can't set, since no number satisfies the constraint. The library
sets it."""


TextNotInJson = Annotated[str, msgspec.Meta(min_length=1, max_length=0)]
"""Text that JSON can't set."""


Seconds = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]
"""Seconds since 1970. A page with an invalid time is rejected."""


class Record(msgspec.Struct, gc=False, rename="pascal"):
    """One user record. Its shard's fields are looked up on access."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: Seconds | None = None
    explicit_hash_key: TextNotInJson | None = msgspec.field(name="-hash", default=None)
    """The producer's explicit hash key, in decimal digits as in AWS's API. Only records
    of aggregates have it, since Kinesis doesn't return it for other records."""
    sub_sequence_number: NotInJson | None = msgspec.field(name="-sub", default=None)
    """Index within a KPL aggregate, from 0. None: the record wasn't aggregated."""
    source: Source | None = msgspec.field(name="-source", default=None)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._source.stream

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self._source.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._source.shard_id

    @property
    def fence(self) -> Fence:
        """The app, the shard, the owner's epoch, and the position."""
        return self._source.fence.at(self.position)

    @property
    def arrived_at(self) -> datetime | None:
        """Time at which Kinesis accepted the record (UTC, to about a millisecond)."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def position(self) -> Position:
        """The position in the shard, up to and including this record."""
        return Position(self.sequence_number, self.sub_sequence_number)

    @property
    def _source(self) -> Source:
        if self.source is None:
            raise AttributeError(
                "this record has no shard: it wasn't delivered by a client"
            )
        return self.source


class Page(NamedTuple):
    """One GetRecords response, with its aggregates still unopened."""

    records: list[Record]
    next_iterator: str | None
    """None: the shard is closed, and this is its last page."""
    millis_behind: int
    children: tuple[ChildShard, ...] = ()
    wire_bytes: int = 0
    """Length of the response's body."""

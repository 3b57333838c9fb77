"""The values that everything else speaks of: shards, positions, records, starts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from kinesumer.model.positions import Position
from kinesumer.model.streams import YEAR_10000, ChildShard, ShardKey, stream_name


class Fence(NamedTuple):
    """Who delivers, and how far: what a sink stores with its output.

    Within one app and shard a larger epoch is a later owner, and a position that isn't
    after the stored one was stored before.
    """

    shard: ShardKey
    epoch: int
    app: str = ""
    """The group; empty for records that none delivered."""
    position: Position | None = None
    """Of the record, or of the batch's last one. None only for an empty batch."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.shard.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    def at(self, position: Position | None) -> Fence:
        """Return the fence of what ends at this position."""
        return Fence(self.shard, self.epoch, self.app, position)


class Source:
    """What all records of one shard and epoch have in common."""

    __slots__ = ("fence", "first_hash", "last_hash", "shard_id", "stream", "stream_arn")

    def __init__(self, fence: Fence, first_hash: int, last_hash: int) -> None:
        self.fence = fence
        self.stream_arn, self.shard_id = fence.shard
        self.stream = stream_name(self.stream_arn)
        self.first_hash, self.last_hash = first_hash, last_hash


NotInJson = Annotated[int, msgspec.Meta(gt=0, lt=0)]
"""A number that we set ourselves: no JSON can, since no number meets this."""


TextNotInJson = Annotated[str, msgspec.Meta(min_length=1, max_length=0)]
"""The same for text."""


Seconds = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]
"""A time since 1970: what isn't one is refused with its page."""


class Record(msgspec.Struct, gc=False, rename="pascal"):
    """One user record. What its shard tells of it is looked up only when asked for."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: Seconds | None = None
    explicit_hash_key: TextNotInJson | None = msgspec.field(name="-hash", default=None)
    """What the producer gave a record of an aggregate: decimal digits, as in AWS's API.
    Kinesis doesn't return it for other records."""
    sub_sequence_number: NotInJson | None = msgspec.field(name="-sub", default=None)
    """Place within a KPL aggregate, from 0; None if the record wasn't aggregated."""
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
        """App, shard, the epoch in which this client owns it, and the position."""
        return self._source.fence.at(self.position)

    @property
    def arrived_at(self) -> datetime | None:
        """When Kinesis took the record (UTC, about a millisecond's precision)."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def position(self) -> Position:
        """The place in its shard up to and including this record."""
        return Position(self.sequence_number, self.sub_sequence_number)

    @property
    def _source(self) -> Source:
        if self.source is None:
            raise AttributeError("this record was made by hand: it has no shard")
        return self.source


class Page(NamedTuple):
    """One GetRecords answer, aggregates not opened yet."""

    records: list[Record]
    next_iterator: str | None
    """None: the shard is closed and this was its last page."""
    millis_behind: int
    children: tuple[ChildShard, ...] = ()
    wire_bytes: int = 0
    """Length of the answer's body."""

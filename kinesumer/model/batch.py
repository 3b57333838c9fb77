"""Records of one shard that user code gets together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.model.records import Fence, Record, Source


class Batch:
    """Records of one shard, in order.

    ``millis_behind`` is the shard's lag in milliseconds when the batch was read: how
    far its last record is behind the newest one.
    """

    __slots__ = ("_source", "millis_behind", "records")

    def __init__(
        self, records: list[Record], millis_behind: int, source: Source
    ) -> None:
        self.records = records
        self.millis_behind = millis_behind
        self._source = source

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
        """The app, the shard, the epoch of its owner, and the last record's position.

        A sink that stores the fence can tell a record that it already has, and output
        of a former owner.
        """
        last = self.records[-1].position if self.records else None
        return self._source.fence.at(last)

    def __len__(self) -> int:
        return len(self.records)

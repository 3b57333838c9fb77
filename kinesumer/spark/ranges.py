"""What a batch reads: exactly (a, b] of some shards, packed into Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from kinesumer.model import Stream
    from kinesumer.spark.offsets import Place


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The records of one shard after ``first`` up to and including ``last``."""

    stream_arn: str
    shard_id: str
    first: Place
    """Exclusive if it is an After; never an End."""
    last: Place
    """Inclusive: an After, or END to read a closed shard to its end."""
    retention_seconds: float
    """The stream's retention when the batch was planned."""
    estimated_bytes: int = 0


class Task(InputPartition):
    """Contiguous ranges of shards that one Spark task reads concurrently."""

    def __init__(
        self, streams: tuple[Stream, ...], ranges: tuple[ShardRange, ...]
    ) -> None:
        super().__init__(None)
        self.streams = streams
        """How to reach the streams of the ranges; their names are ARNs here."""
        self.ranges = ranges

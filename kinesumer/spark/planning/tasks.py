"""Spark's tasks: the exact ranges of a batch, distributed by size."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kinesumer.core.assignment import Member, assign_range
from kinesumer.errors import CorruptOffsetError
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, After, End

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.model.streams import Stream
    from kinesumer.spark.offsets.model import Offset, ShardPosition, StreamOffset


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The records of one shard after ``first`` up to and including ``last``."""

    stream_arn: str
    shard_id: str
    first: ShardPosition
    """Exclusive if it is an After; never an End."""
    last: ShardPosition
    """Inclusive: an After, or END to read a closed shard to its end."""
    retention_seconds: float
    """The stream's retention when the batch was planned."""
    estimated_bytes: int = 0
    expiring_until: float = 0.0
    """Until this time of Kinesis's clock, records that are older than the retention
    may be missing at the beginning: the query has just begun with the oldest ones."""


class Task(InputPartition):
    """Contiguous ranges of shards that one Spark task reads concurrently."""

    def __init__(
        self, streams: tuple[Stream, ...], ranges: tuple[ShardRange, ...]
    ) -> None:
        super().__init__(None)
        self.streams = streams
        """The streams of the ranges, with roles. Their names are ARNs."""
        self.ranges = ranges


def between(
    start: Offset, end: Offset
) -> dict[str, dict[str, tuple[ShardPosition, ShardPosition]]]:
    """Return the range (exclusive, inclusive) of each stream and shard in a batch.

    The result depends on the two offsets only, since Spark calls again after a restart.
    A stream that isn't in ``start``, or was recreated, begins at its origin in ``end``.
    """
    return {
        arn: _between(_firsts(start, arn, stream.created_at, stream.origin), stream)
        for arn, stream in sorted(end.items())
    }


def _firsts(
    start: Offset, arn: str, created_at: float, origin: Mapping[str, ShardPosition]
) -> Mapping[str, ShardPosition]:
    before = start.get(arn)
    if before is None or before.created_at != created_at:
        return origin
    return {**before.shards, **origin}


def _between(
    firsts: Mapping[str, ShardPosition], end: StreamOffset
) -> dict[str, tuple[ShardPosition, ShardPosition]]:
    pairs = {
        shard_id: (firsts.get(shard_id, BEGINNING), last)
        for shard_id, last in sorted(end.shards.items())
    }
    return {shard_id: pair for shard_id, pair in pairs.items() if _holds_any(*pair)}


def _holds_any(first: ShardPosition, last: ShardPosition) -> bool:
    """Tell whether there may be a record after one position up to another."""
    if isinstance(first, End) or isinstance(last, Start):
        return False
    if isinstance(first, After) and isinstance(last, After):
        if last.position < first.position:
            raise CorruptOffsetError(
                f"a batch would go back from {first.position} to {last.position}: the "
                "query's checkpoint was changed, or belongs to another query"
            )
        return first.position != last.position
    return True


TASK_BYTES = 4_000_000
"""A task costs about as much as reading so many bytes."""
SLOTS_PER_TASK = 64
BATCH = "batch"


def pack(ranges: Sequence[ShardRange], most: int) -> list[tuple[ShardRange, ...]]:
    """Return the ranges of each task, in order, for ``most`` tasks at most.

    The assignor distributes slots; a range has slots in proportion to its bytes.
    """
    if not ranges:
        return []
    total = sum(item.estimated_bytes for item in ranges)
    count = max(1, min(most, len(ranges), -(-total // TASK_BYTES)))
    unit = max(1, total // (count * SLOTS_PER_TASK))
    ends = list(accumulate(1 + item.estimated_bytes // unit for item in ranges))
    members = [Member(f"{i:06}", 1, frozenset([BATCH])) for i in range(count)]
    plan = assign_range(members, {BATCH: range(ends[-1])})
    # Range i has the slots from ends[i-1] up to ends[i]. The middle one decides.
    firsts = sorted(part.first for parts in plan.values() for part in parts)
    tasks: list[list[ShardRange]] = [[] for _ in firsts]
    for item, begin, end in zip(ranges, [0, *ends], ends, strict=False):
        tasks[bisect_right(firsts, (begin + end - 1) // 2) - 1].append(item)
    return [tuple(task) for task in tasks if task]

"""Computes the ranges of a batch, and distributes them to Spark's tasks by size."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kinesumer.core.assignment import Member, assign_range
from kinesumer.errors import CorruptOffsetError
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, After, End, ShardPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import Stream
    from kinesumer.spark.offsets.model import Offset

TASK_BYTES = 4_000_000  # starting a task costs about as much as reading these bytes
SLOTS_PER_TASK = 64
BATCH = "batch"

# ``first`` and ``last`` of a ShardRange.
Pair = tuple[ShardPosition, ShardPosition]


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The records of one shard from ``first`` to ``last``, which a batch reads."""

    stream_arn: str
    shard_id: str
    first: ShardPosition  # excluded if it is an After; never an End
    last: ShardPosition  # inclusive: an After, or END to read a closed shard to its end
    retention_seconds: float  # the stream's retention when the batch was planned
    estimated_bytes: int = 0
    # If a query begins with the oldest records, some may expire before they are read.
    # Until this time (by Kinesis's clock), that isn't a loss.
    expiring_until: float = 0.0
    # Whether to read by a subscription of the stream's consumer first, not by polling.
    subscribes: bool = False


class Task(InputPartition):
    """The ranges that one Spark task reads concurrently."""

    def __init__(
        self, streams: tuple[Stream, ...], ranges: tuple[ShardRange, ...]
    ) -> None:
        super().__init__(None)
        # The streams of the ranges, each with the role to assume. Their names are ARNs,
        # and so is ``fan_out``.
        self.streams = streams
        self.ranges = ranges


def between(start: Offset, end: Offset) -> dict[str, dict[str, Pair]]:
    """Return the range that a batch reads in each shard, by stream ARN and shard id.

    The result depends only on the offsets: if Spark repeats a batch after a restart, it
    must have the same records. A stream that isn't in ``start``, or was recreated,
    begins at the ``origin`` in ``end``.
    """
    ranges: dict[str, dict[str, Pair]] = {}
    for arn, stream in sorted(end.items()):
        firsts, before = dict(stream.origin), start.get(arn)
        if before is not None and before.created_at == stream.created_at:
            firsts = {**before.shards, **firsts}
        pairs = ranges[arn] = {}
        for shard_id, last in sorted(stream.shards.items()):
            first = firsts.get(shard_id, BEGINNING)
            if _has_records(first, last):
                pairs[shard_id] = first, last
    return ranges


def _has_records(first: ShardPosition, last: ShardPosition) -> bool:
    """Return whether a record may lie after ``first`` and up to ``last``."""
    if isinstance(first, After) and isinstance(last, After):
        if last.position < first.position:
            raise CorruptOffsetError(
                f"a batch would go back from {first.position} to {last.position}: use "
                "the query's own checkpoint, and don't change it"
            )
        return first.position != last.position
    return not isinstance(first, End) and not isinstance(last, Start)


def pack(ranges: Sequence[ShardRange], max_tasks: int) -> list[tuple[ShardRange, ...]]:
    """Return the ranges of each task.

    Each range takes up slots in proportion to its bytes. ``assign_range`` divides the
    slots evenly among the tasks.
    """
    if not ranges:
        return []
    total = sum(item.estimated_bytes for item in ranges)
    count = max(1, min(max_tasks, len(ranges), -(-total // TASK_BYTES)))
    unit = max(1, total // (count * SLOTS_PER_TASK))
    # Each range has at least one slot, so that even an empty range belongs to a task.
    ends = list(accumulate(1 + item.estimated_bytes // unit for item in ranges))
    members = [Member(f"{i:06}", 1, frozenset([BATCH])) for i in range(count)]
    plan = assign_range(members, {BATCH: range(ends[-1])})
    # Range i has the slots from ends[i-1] to ends[i]. The task with the middle slot of
    # a range reads the whole range.
    firsts = sorted(part.first for parts in plan.values() for part in parts)
    tasks: list[list[ShardRange]] = [[] for _ in firsts]
    for item, begin, end in zip(ranges, [0, *ends], ends, strict=False):
        tasks[bisect_right(firsts, (begin + end - 1) // 2) - 1].append(item)
    return [tuple(task) for task in tasks if task]

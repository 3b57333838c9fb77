"""Computes the ranges of a batch, and distributes them to Spark's tasks by size."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kinesumer.core.assignment import Member, assign_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.query_offsets import ShardPosition
    from kinesumer.model.streams import Stream

TASK_BYTES = 4_000_000  # starting a task costs about as much as reading these bytes
SLOTS_PER_TASK = 64
BATCH = "batch"


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
    apps: int = 1  # how many apps poll the stream, including the query


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

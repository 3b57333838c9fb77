"""Computes the ranges of a batch, and distributes them to Spark's tasks by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql.datasource import InputPartition

from kinesumer.model.positions import ShardPosition
from kinesumer.model.streams import Stream

TASK_BYTES = 4_000_000  # starting a task costs about as much as reading these bytes


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

    The ranges stand in a row, each as long as its bytes. The row is cut into equal
    parts, one for each task. The task with the middle of a range reads the whole range.
    """
    # Each range has at least one byte, so that even an empty range belongs to a task.
    sizes = [1 + item.estimated_bytes for item in ranges]
    total = sum(sizes)
    wanted = (total - len(ranges) - 1) // TASK_BYTES + 1
    count = max(1, min(max_tasks, len(ranges), wanted))
    tasks: list[list[ShardRange]] = [[] for _ in range(count)]
    for item, size, end in zip(ranges, sizes, accumulate(sizes), strict=True):
        tasks[(end - size // 2 - 1) * count // total].append(item)
    return [tuple(task) for task in tasks if task]

"""A batch's ranges packed into tasks: contiguous, even by what they hold."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from kinesumer.core.assignment import Member, assign_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.spark.planning.tasks import ShardRange

TASK_BYTES = 4_000_000
"""A task costs about as much as reading so much: less isn't worth another one."""
SLOTS_PER_TASK = 64
BATCH = "batch"


def pack(ranges: Sequence[ShardRange], most: int) -> list[tuple[ShardRange, ...]]:
    """Return the ranges of each task, in order, no more tasks than asked for.

    The library's assignor gives away slots: a range has as many as it holds bytes.
    """
    if not ranges:
        return []
    total = sum(item.estimated_bytes for item in ranges)
    count = max(1, min(most, len(ranges), -(-total // TASK_BYTES)))
    unit = max(1, total // (count * SLOTS_PER_TASK))
    ends = list(accumulate(1 + item.estimated_bytes // unit for item in ranges))
    members = [Member(f"{i:06}", 1, frozenset([BATCH])) for i in range(count)]
    plan = assign_range(members, {BATCH: range(ends[-1])})
    # Range i's slots are those from ends[i-1] up to ends[i]; its middle one decides.
    firsts = sorted(part.first for parts in plan.values() for part in parts)
    tasks: list[list[ShardRange]] = [[] for _ in firsts]
    for item, begin, end in zip(ranges, [0, *ends], ends, strict=False):
        tasks[bisect_right(firsts, (begin + end - 1) // 2) - 1].append(item)
    return [tuple(task) for task in tasks if task]

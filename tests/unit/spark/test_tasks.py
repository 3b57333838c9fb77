"""Test that the ranges of a batch are divided among tasks by their size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.positions import BEGINNING, END
from kinesumer.spark.planning.tasks import ShardRange, pack

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def part(number: int, size: int) -> ShardRange:
    return ShardRange(ARN, f"shardId-{number:012}", BEGINNING, END, 86_400.0, size)


@given(
    st.lists(st.integers(0, 50_000_000), min_size=1, max_size=60), st.integers(1, 20)
)
def test_tasks_hold_all_ranges_in_order(sizes: list[int], most: int) -> None:
    ranges = [part(number, size) for number, size in enumerate(sizes)]
    tasks = pack(ranges, most)
    assert [item for task in tasks for item in task] == ranges
    assert 1 <= len(tasks) <= most
    share = sum(sizes) / len(tasks)
    assert all(
        sum(item.estimated_bytes for item in task) <= 3 * share + max(sizes) + 1
        for task in tasks
    )


def test_tasks_are_even_by_bytes_and_few_for_little() -> None:
    even = pack([part(i, 10_000_000) for i in range(8)], 4)
    assert [len(task) for task in even] == [2, 2, 2, 2]
    skewed = pack([part(0, 90_000_000), *(part(i, 1_000_000) for i in range(1, 31))], 4)
    assert len(skewed[0]) == 1
    assert len(pack([part(i, 1_000) for i in range(100)], 4)) == 1
    assert pack([], 4) == []

"""Test that a task reads its shards at once, within its memory, in large batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kinesumer.model.records import Page
from kinesumer.ports import Reservation
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.task_reader import max_waiting_bytes
from tests.support.spark_reading import Bench, RecordedSource

ONE, OTHER = "shardId-000000000000", "shardId-000000000001"


def test_batches_have_a_thousand_to_ten_thousand_rows(bench: Bench) -> None:
    bench.put(30_000)
    task = bench.whole(ONE, OTHER)
    *full, last = [batch.num_rows for batch in bench.batches(task)]
    assert min(full) >= 1000
    assert max([*full, last]) <= 10_000
    assert sum(full) + last == 30_000


def test_a_query_with_a_limit_stops_fetching(bench: Bench) -> None:
    bench.put(60_000)
    task = bench.whole(ONE, OTHER)
    batches = bench.batches(task)
    next(batches)
    made = len(bench.source.calls)
    batches.close()
    assert len(bench.source.calls) == made


@pytest.mark.slow
def test_waiting_batches_are_bounded_in_bytes() -> None:
    bench = Bench(shards=40, reads_per_second=0)
    data = bytes(100_000)
    bench.put(4_000, lambda place: data)
    batches = bench.batches(bench.whole(*sorted(bench.numbers)), min_fetch_period=0.0)
    next(batches)
    # The stream holds 400 MB. Each page of unknown size is assumed to have 4 MB.
    assert bench.source.count("records") <= 18
    batches.close()
    bench.loop.close()


class SlowSource(RecordedSource):
    """A slow source that remembers its largest number of concurrent requests."""

    asked_now = asked_at_most = 0

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        self.asked_now += 1
        self.asked_at_most = max(self.asked_at_most, self.asked_now)
        await asyncio.sleep(0.4)
        self.asked_now -= 1
        return await super().get_records(iterator, limit, room)


def test_a_task_of_many_shards_reads_them_all_at_once() -> None:
    bench = Bench(32)
    bench.put(1_000)
    source = bench.source = SlowSource(bench.kinesis.source("orders"))
    task = bench.whole(*bench.numbers)
    large = (replace(given, estimated_bytes=2_000_000) for given in task.ranges)
    assert len(bench.rows(Task(task.streams, tuple(large)))) == 1_000
    assert source.asked_at_most == 32
    bench.loop.close()


@pytest.mark.parametrize(
    ("shards", "memory_bytes", "waiting"),
    [
        (1, None, 16_000_000),
        (20, None, 40_000_000),
        (1_000, None, 64_000_000),
        (32, 1 << 30, 64_000_000),
        (32, 1 << 28, 1 << 25),
        (32, 1 << 20, 16_000_000),
    ],
)
def test_the_byte_budget_depends_on_shards_and_memory(
    shards: int, memory_bytes: int | None, waiting: int
) -> None:
    assert max_waiting_bytes(shards, memory_bytes) == waiting

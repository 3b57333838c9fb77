"""Simulate what the plans of Spark's batches cost, and how far rows fall behind.

    python -m benchmarks.spark_plans

Queries run on Kinesis in memory, in virtual time. "no jump" probes the records after
each position, as the simplest rule does. "no common end" lets each shard advance alone.
"""

from __future__ import annotations

from unittest.mock import patch

from benchmarks.report import Report
from kinesumer.core.batch_ranges import Limits, Readable
from kinesumer.model.streams import Start
from kinesumer.spark.planning.stream_plan import StreamPlan
from tests.support.spark_query import World, late_seconds, simulated

TRIGGERS = 20
# A skew that is longer than the retention, which turns the common end off.
FOR_EVER_SECONDS = 1e9


def main() -> None:
    """Print both tables."""
    report = Report("reads of a shard by the driver in a trigger, each second")
    for per_second in (5, 50, 800):
        report.note(f"{per_second} records/s", f"{reads(per_second):.2f}")
    with patch.object(StreamPlan, "observe", _without_jump):
        for per_second in (5, 50, 800):
            report.note(f"{per_second} records/s, no jump", f"{reads(per_second):.2f}")
    report.print()
    report = Report("a backlog of six hours with two splits")
    for name, skew in (("rule", 60.0), ("no common end", FOR_EVER_SECONDS)):
        batches, late = backlog(skew)
        report.note(f"{name}: batches", f"{batches}")
        report.note(f"{name}: a row is behind newer rows by", f"{late:,.0f} s")
    report.print()


OBSERVE = StreamPlan.observe


async def _without_jump(
    plan: StreamPlan, shard: Readable, limits: Limits, _: float
) -> None:
    await OBSERVE(plan, shard, limits, max_jump_seconds=0.0)


def reads(per_second: int) -> float:
    """Return how often the driver reads a shard in a trigger."""
    found = [0]

    @simulated(1)
    async def run(world: World) -> None:
        query = world.query(starting=Start.LATEST)
        await query.trigger()
        await world.stream_in(per_second, seconds=1)
        await query.trigger()
        world.source().reads.clear()
        for _ in range(TRIGGERS):
            await world.stream_in(per_second, seconds=1)
            await query.trigger()
        found[0] = len(world.source().reads)

    run()
    return found[0] / TRIGGERS


def backlog(skew_seconds: float) -> tuple[int, float]:
    """Return the number of batches, and the longest delay behind earlier batches."""
    found = [(0, 0.0)]

    @simulated(4)
    async def run(world: World) -> None:
        shard_id = "shardId-000000000000"
        for _ in range(3):
            await world.stream_in(7_200, seconds=7_200)
            [shard_id, _] = world.kinesis.split("orders", shard_id)
        query = world.query(
            starting=Start.TRIM_HORIZON, max_skew_per_batch=skew_seconds
        )
        await query.drain()
        found[0] = len(query.batches), max(late_seconds(world, query))

    run()
    return found[0]


if __name__ == "__main__":
    main()

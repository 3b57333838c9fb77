"""Count the calls of a handler of batches in which some records always fail.

    python -m benchmarks.failing_batch

A batch has 1,000 records. The handler raises when it gets to a failing one. It is
called once more after a failure, and records that still fail become dead letters. This
prints the calls, and how often an innocent record is handled on average and at most.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from benchmarks.report import Report
from kinesumer.handlers import RetryPolicy
from kinesumer.testing.simulation.run import reduce_logging
from tests.support.handler_client import Runner
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer import Batch

RECORDS = 1_000
TWICE = RetryPolicy(max_attempts=2)


def main() -> None:
    """Print a line for each number of failing records."""
    reduce_logging()
    report = Report(f"a batch of {RECORDS:,} records, by how many of them fail")
    for failing in (0, 1, 2, 5, 10, 100, RECORDS):
        in_virtual_time(_measure)(report, failing)
    report.print()


async def _measure(world: World, report: Report, failing: int) -> None:
    bad = set(Random(1).sample(range(RECORDS), failing))
    world.put(*map(str, range(RECORDS)))
    handled, calls = Counter[int](), 0

    async def handle(batch: Batch) -> None:
        nonlocal calls
        calls += 1
        for record in batch.records:
            number = int(record.data)
            if number in bad:
                raise ValueError("a failing record")
            handled[number] += 1

    runner = Runner(
        world,
        handle,
        batch=True,
        retries=TWICE,
        dead_letters="file:unused",
        dead_letter_limit=math.inf,
    )
    innocent = RECORDS - failing
    await world.until(
        lambda: len(handled) == innocent and len(runner.letters.stored) == failing, 3600
    )
    often = [handled[number] for number in set(range(RECORDS)) - bad] or [0]
    mean = sum(often) / len(often)
    report.note(
        f"{failing:,}",
        f"{calls:,} calls, {mean:.1f} times, at most {max(often)}",
    )
    runner.kill()


if __name__ == "__main__":
    main()

"""Simulate how apps share the reads of one shard.

    python -m benchmarks.fair_shares [--seeds 10]

Each line shows the median and the worst of all seeds: after how long 99 of 100 records
are read, how many reads a second the slowest app gets, and which part of the reads is
refused. The limits are a token bucket, as in the embedded AWS, any period of a second,
and each second of the clock.
"""

from __future__ import annotations

from argparse import ArgumentParser
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from tests.support.neighbours import (
    App,
    FixedSecond,
    Foreign,
    RollingSecond,
    Shard,
    TokenBucket,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLED, OVER = 120.0, 300.0


def main() -> None:
    """Print a table for each limit."""
    parser = ArgumentParser(prog="python -m benchmarks.fair_shares")
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    for limit in (TokenBucket, RollingSecond, FixedSecond):
        print(f"\n{limit.__doc__}")
        for count in (1, 2, 3, 5, 7):
            _measure(limit, seeds, f"{count} apps of a table", count)
        for count in (2, 3, 5):
            _measure(
                limit, seeds, f"{count} apps of {count} tables", count, known=False
            )
        for pace in (0.2, 0.1, 0.02):
            text = f"1 app beside {1 / pace:.0f} reads a second"
            _measure(limit, seeds, text, 1, foreign_pace=pace)


def _measure(
    limit: Callable[[], TokenBucket | RollingSecond | FixedSecond],
    seeds: range,
    text: str,
    count: int,
    *,
    known: bool = True,
    foreign_pace: float = 0.0,
) -> None:
    waits, rates, parts = [], [], []
    for seed in seeds:
        random = Random(seed)
        apps = [App(begins=15 * random.random(), is_known=known) for _ in range(count)]
        foreign = [App(Foreign(foreign_pace, foreign_pace))] if foreign_pace else []
        Shard(limit, seed).run([*apps, *foreign], OVER)
        waits.append(max(app.p99(SETTLED, OVER) for app in apps))
        rates.append(min(app.rate(SETTLED, OVER) for app in apps))
        parts.append(100 * refused(apps, SETTLED, OVER))
    print(
        f"  {text:<32}{median(waits):6.2f} s ({max(waits):5.2f})"
        f"{median(rates):6.2f} /s ({min(rates):4.2f})"
        f"{median(parts):6.1f} % ({max(parts):4.1f})"
    )


if __name__ == "__main__":
    main()

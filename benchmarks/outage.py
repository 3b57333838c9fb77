"""Simulate the reads of many shards during an outage of Kinesis.

    python -m benchmarks.outage [--seconds 60]

The readers of 1,000 shards fail together. A failed read takes 20 ms. For each rule,
this prints the reads in a second on average and at most, after the first ten seconds.
The second line is the mean and the longest time from the outage's end to a shard's next
read, for ends in 5 s. "fixed" waits for the shortest or the longest wait, and "in step"
has no jitter.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from random import Random
from statistics import mean
from typing import TYPE_CHECKING

from benchmarks.report import Report
from kinesumer.core.pacing import BACKOFF, Pacing

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[Pacing, float, float], float]

READERS, LATENCY_SECONDS, FIRST_SECONDS = 1_000, 0.02, 10
ENDS_SECONDS = [0.25 * step for step in range(20)]
RULES: dict[str, Rule] = {
    "the rule": Pacing.after_failure,
    f"fixed {BACKOFF.first_seconds:g} s": lambda _, now, __: now + BACKOFF[0],
    f"fixed {BACKOFF.longest_seconds:g} s": lambda _, now, __: now + BACKOFF[1],
    "in step": lambda pacing, now, _: pacing.after_failure(now, 1.0),
}


def main() -> None:
    """Print the figures."""
    parser = ArgumentParser(prog="python -m benchmarks.outage")
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    report = Report(f"{READERS:,} shards, an outage of {seconds:g} s")
    for name, rule in RULES.items():
        runs = [measure(rule, seconds + later) for later in ENDS_SECONDS]
        reads = [count for counts, _ in runs for count in counts]
        waits = [wait for _, each in runs for wait in each]
        report.note(
            f"{name}: reads a second",
            f"{mean(reads):,.0f}, at most {max(reads):,}",
        )
        report.note(
            "  the next read after the outage",
            f"{mean(waits):.1f} s, at most {max(waits):.1f} s",
        )
    report.print()


def measure(rule: Rule, outage_seconds: float) -> tuple[list[int], list[float]]:
    """Return the failed reads of each second, and each shard's wait after the end."""
    random, reads, waits = Random(1), Counter[int](), []
    for _ in range(READERS):
        pacing, now = Pacing(0.0), 0.1 * random.random()
        while now < outage_seconds:
            reads[int(now)] += 1
            now = rule(pacing, now + LATENCY_SECONDS, random.random())
        waits.append(now - outage_seconds)
    return [reads[at] for at in range(FIRST_SECONDS, int(outage_seconds))], waits


if __name__ == "__main__":
    main()

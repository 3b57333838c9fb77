"""Measure a shard's pause in a planned move, and the delay of records otherwise.

    python -m benchmarks.handover

Over HTTP against the embedded AWS, each client a process of its own. A second client
joins and leaves again some times while records are put into eight shards. The gap of a
move is from a shard's last record at one client to its first one at the other: of that,
a caught-up shard is read four times a second anyway.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import NamedTuple

from benchmarks.fleet import fleet, producing
from benchmarks.report import Report, percentile

MOVES = 3
PER_SECOND = 160.0
CALM_SECONDS = 8.0


class Seen(NamedTuple):
    """A record as one client saw it."""

    at: float
    shard: str
    put_at: float
    client: str


def main() -> None:
    """Print gaps, duplicates and latencies."""
    with fleet() as made:
        made.aws.create_stream("orders", shards=8)
        one = made.start("app", "orders", "each")
        seen: list[Seen] = []
        with producing(made.aws, ["orders"], PER_SECOND):
            one_began = time.time()
            for number in range(MOVES):
                time.sleep(CALM_SECONDS)
                two = made.start("app", "orders", "each")
                time.sleep(CALM_SECONDS)
                seen += parsed(two.leave(), f"two-{number}")
            time.sleep(2)
        seen += parsed(one.leave(), "one")
    report_on(seen, calm_until=one_began + CALM_SECONDS)


def parsed(lines: list[str], client: str) -> list[Seen]:
    """Return the output of a client."""
    found = []
    for line in lines:
        at, _, shard, put_at = line.split()
        found.append(Seen(float(at), shard, float(put_at), client))
    return found


def report_on(seen: list[Seen], calm_until: float) -> None:
    """Print the table."""
    gaps = []
    for shard in {record.shard for record in seen}:
        ordered = sorted(record for record in seen if record.shard == shard)
        gaps += [
            after.at - before.at
            for before, after in pairwise(ordered)
            if before.client != after.client
        ]
    calm = [r.at - r.put_at for r in seen if calm_until - 5 < r.at < calm_until]
    report = Report(f"{len(gaps)} planned moves of a shard, {len(seen):,} records")
    report.at_most("gap, median", percentile(gaps, 0.5), 0.5, " s")
    report.note("gap, longest", f"{max(gaps):.3g} s")
    twice = len(seen) - len({(record.shard, record.put_at) for record in seen})
    report.at_most("records delivered twice", twice, 0)
    report.at_most("latency, caught up, median", percentile(calm, 0.5), 0.25, " s")
    report.at_most("latency, caught up, 99th", percentile(calm, 0.99), 0.6, " s")
    report.print()


if __name__ == "__main__":
    main()

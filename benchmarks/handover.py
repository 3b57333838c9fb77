"""Measure how long a planned move interrupts a shard, and the usual delay of records.

    python -m benchmarks.handover [--tls] [--fan-out] [--calm-seconds 8]

Each client is a process, and uses the embedded AWS over HTTP, or through TLS. A second
client joins and leaves several times while records are put into eight shards. The gap
of a move is the time from a shard's last record at one client to its first record at
the other. A part of it is the usual wait for the next read, since a caught-up shard is
read four times a second. With ``--fan-out``, Kinesis permits a new owner's subscription
only five seconds after the last one began. ``--calm-seconds`` is the time between a
join and a leave, in which the second client also starts.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from typing import NamedTuple

from benchmarks.fleet import fleet, producing
from benchmarks.report import Report, percentile

MOVES = 3
PER_SECOND = 160.0


class Seen(NamedTuple):
    """The delivery of a record to a client."""

    at: float
    shard: str
    put_at: float
    client: str


def main() -> None:
    """Print gaps, duplicates and latencies."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--fan-out", action="store_true")
    parser.add_argument("--calm-seconds", type=float, default=8.0)
    options = parser.parse_args()
    calm_seconds: float = options.calm_seconds
    with fleet(tls=options.tls) as made:
        made.aws.create_stream("orders", shards=8)
        stream = "orders@app" if options.fan_out else "orders"
        one = made.start("app", stream, "each")
        seen: list[Seen] = []
        with producing(made.aws, ["orders"], PER_SECOND):
            one_began = time.time()
            for number in range(MOVES):
                time.sleep(calm_seconds)
                two = made.start("app", stream, "each")
                time.sleep(calm_seconds)
                seen += parsed(two.leave(), f"two-{number}")
            time.sleep(2)
        seen += parsed(one.leave(), "one")
    report_on(seen, calm_until=one_began + calm_seconds)


def parsed(lines: list[str], client: str) -> list[Seen]:
    """Parse the lines that a client printed."""
    found = []
    for line in lines:
        at, _, shard, put_at = line.split()
        found.append(Seen(float(at), shard, float(put_at), client))
    return found


def gaps_of_moves(seen: list[Seen]) -> list[float]:
    """Return the seconds between a shard's records at two different clients."""
    gaps = []
    for shard in {record.shard for record in seen}:
        ordered = sorted(record for record in seen if record.shard == shard)
        gaps += [
            after.at - before.at
            for before, after in pairwise(ordered)
            if before.client != after.client
        ]
    return gaps


def repeated(seen: list[Seen]) -> int:
    """Return the number of records that were delivered twice."""
    return len(seen) - len({(record.shard, record.put_at) for record in seen})


def report_on(seen: list[Seen], calm_until: float) -> None:
    """Print a table of the gaps, duplicates and latencies."""
    gaps = gaps_of_moves(seen)
    calm = [r.at - r.put_at for r in seen if calm_until - 5 < r.at < calm_until]
    report = Report(f"{len(gaps)} planned moves of a shard, {len(seen):,} records")
    report.at_most("gap, median", percentile(gaps, 0.5), 0.5, " s")
    report.note("gap, longest", f"{max(gaps):.3g} s")
    twice = repeated(seen)
    report.at_most("records delivered twice", twice, 0)
    report.at_most("latency, caught up, median", percentile(calm, 0.5), 0.25, " s")
    report.at_most("latency, caught up, 99th", percentile(calm, 0.99), 0.6, " s")
    report.print()


if __name__ == "__main__":
    main()

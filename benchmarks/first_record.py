"""Measure the time to the first record on an empty table: 16 shards, two streams.

    python -m benchmarks.first_record

Each client is a process, and uses the embedded AWS over HTTP. The clock starts when the
client starts, and not with the interpreter.
"""

from __future__ import annotations

from statistics import median

from benchmarks.fleet import Fleet, fleet, producing
from benchmarks.report import Report

AIM_SECONDS = 3.0
RUNS = 5
STREAMS = ("orders", "payments")


def main() -> None:
    """Print the time of one client, and of three that start together."""
    with fleet() as made:
        for name in STREAMS:
            made.aws.create_stream(name, shards=8)
        with producing(made.aws, STREAMS, per_second=100):
            alone = [first_records(made, f"alone-{run}", 1)[0] for run in range(RUNS)]
            three = [first_records(made, f"three-{run}", 3) for run in range(RUNS)]
    report = Report("seconds from a client's start to its first record, empty table")
    report.at_most("one client, median", median(alone), AIM_SECONDS, " s")
    report.at_most("one client, slowest", max(alone), AIM_SECONDS, " s")
    report.at_most("three at once, the first", max(map(min, three)), AIM_SECONDS, " s")
    report.at_most(
        "three at once, all, median", median(map(max, three)), AIM_SECONDS, " s"
    )
    report.note("three at once, all, slowest", f"{max(map(max, three)):.3g} s")
    report.print()


def first_records(made: Fleet, app: str, clients: int) -> list[float]:
    """Start clients together. Return the seconds to each client's first record."""
    workers = [made.start(app, ",".join(STREAMS), "first") for _ in range(clients)]
    found = [float(worker.line()) for worker in workers]
    for worker in workers:
        worker.end()
    return found


if __name__ == "__main__":
    main()

"""Measure the delay of records for several apps that read one stream.

    python -m benchmarks.neighbours [--apps 1 2 3 5] [--seconds 60] [--shards 5]

Each app has one client process, and uses the embedded AWS over HTTP, with AWS's limits.
The apps use one state store. In the last runs, one app runs beside a consumer
that reads every shard five or ten times a second, and never slows down.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.fixed_pace_consumer import USER_AGENT
from benchmarks.fleet import fleet, producing
from benchmarks.report import Report, percentile

if TYPE_CHECKING:
    from kinesumer.testing import EmbeddedAws

APPS = (1, 2, 3, 5)
MOST_SECONDS = {1: 0.4, 2: 0.8, 3: 1.3, 5: 2.0}
MOST_REFUSED = 2.0
SETTLE_SECONDS = 30.0
# The time in which an app slows down beside a consumer that does not.
FOREIGN_SETTLE_SECONDS = 90.0
PER_SECOND = 50.0
FOREIGN_INTERVALS_SECONDS = 0.2, 0.1
THROTTLED = "ProvisionedThroughputExceededException"


class Run(NamedTuple):
    """Measurements of apps that run side by side."""

    waits: list[list[float]]  # for each app, the seconds from put to user code
    refused: float  # the percentage of rejected reads


def main() -> None:
    """Print a table for each number of apps, and two with a foreign consumer."""
    parser = ArgumentParser(prog="python -m benchmarks.neighbours")
    parser.add_argument("--apps", type=int, nargs="*", default=APPS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shards", type=int, default=5)
    given = parser.parse_args()
    for count in given.apps:
        run = measure(count, given.shards, given.seconds)
        report = Report(f"{count} apps on one stream of {given.shards} shards")
        for number, waits in enumerate(run.waits, 1):
            report.note(f"app {number}, median", f"{percentile(waits, 0.5):.3g} s")
            slow, what = percentile(waits, 0.99), f"app {number}, 99th percentile"
            report.at_most(what, slow, MOST_SECONDS.get(count), " s")
        report.at_most("reads refused", run.refused, MOST_REFUSED, " %")
        report.print()
    for interval in FOREIGN_INTERVALS_SECONDS:
        run = measure(1, given.shards, given.seconds, interval)
        report = Report(f"one app beside a consumer that reads every {interval} s")
        report.note("median", f"{percentile(run.waits[0], 0.5):.3g} s")
        report.note("99th percentile", f"{percentile(run.waits[0], 0.99):.3g} s")
        report.note("the app's reads refused", f"{run.refused:.3g} %")
        report.print()


def measure(count: int, shards: int, seconds: float, foreign: float = 0.0) -> Run:
    """Run this number of apps side by side; measure them when they are settled."""
    with fleet() as made:
        made.aws.create_stream("orders", shards=shards)
        if foreign:
            made.run("benchmarks.fixed_pace_consumer", "orders", str(foreign))
        with producing(made.aws, ["orders"], PER_SECOND):
            workers = [
                made.start(f"app-{number}", "orders", "each") for number in range(count)
            ]
            time.sleep(FOREIGN_SETTLE_SECONDS if foreign else SETTLE_SECONDS)
            made.aws.journal.clear()
            began = time.time()
            time.sleep(seconds)
            ended, refused = time.time(), refused_percent(made.aws)
            time.sleep(5)
        waits = []
        for worker in workers:
            words = [line.split() for line in worker.leave()]
            waits.append(
                [
                    float(at) - float(put_at)
                    for at, _, _, put_at in words
                    if began <= float(put_at) < ended
                ]
            )
        return Run(waits, refused)


def refused_percent(aws: EmbeddedAws) -> float:
    """Return the percentage of the apps' reads that were rejected."""
    reads = [
        entry.error == THROTTLED
        for entry in list(aws.journal.latest)
        if entry.operation == "GetRecords" and USER_AGENT not in entry.user_agent
    ]
    return 100 * sum(reads) / max(1, len(reads))


if __name__ == "__main__":
    main()

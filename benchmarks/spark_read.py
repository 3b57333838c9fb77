"""Measure rows per CPU second into Spark, and the maximum of its API.

    python -m benchmarks.spark_read [LAYOUT…]

The ceiling is a Python data source that yields ready-made Arrow batches of the same
rows. Each side has a Spark of its own (``local[2]``, Unix domain sockets), is warmed by
one run, and then reads the backlog of eight shards three times; the best run counts.
CPU time and peak memory are those of the whole process tree: driver, JVM, Python
workers. The server of canned pages is outside of it; it knows no limits, so that the
source is told to keep to none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Report
from benchmarks.serving import served

SHARDS = 8
TASKS = 2
ROUNDS = 3


class Layout(NamedTuple):
    """A backlog, and its target of rows per CPU second."""

    records: int
    """Number per shard."""
    size: int
    noop: float
    parquet: float

    @property
    def rows(self) -> int:
        """Return the number of all rows."""
        return SHARDS * self.records


LAYOUTS = {
    "100B": Layout(250_000, 100, 450e3, 330e3),
    "1KB": Layout(150_000, 1_000, 230e3, 120e3),
}


def main() -> None:
    """Print one table per layout."""
    for name in sys.argv[1:] or LAYOUTS:
        layout = LAYOUTS[name]
        title = f"{SHARDS} × {layout.records:,} × {layout.size:,} B"
        report = Report(f"{title}: rows per CPU second")
        with served("benchmarks.backlog", layout.records, layout.size) as url:
            ceiling, ours = measure("ceiling", name, url), measure("ours", name, url)
        for sink, aim in (("noop", layout.noop), ("parquet", layout.parquet)):
            most, rate = ceiling[sink]["rate"], ours[sink]["rate"]
            report.note(f"{sink}: ready-made batches", f"{most:,.0f}")
            report.at_least(f"{sink}: kinesumer", rate, aim)
            share = 100 * rate / most
            if sink == "noop":
                report.at_least(f"{sink}: of the ceiling", share, 70, " %")
                report.at_most("wall clock", ours[sink]["seconds"], 5, " s")
            else:
                report.note(f"{sink}: of the ceiling", f"{share:.0f} %")
            more = ours[sink]["peak"] - ceiling[sink]["peak"]
            report.note("peak memory", f"{ours[sink]['peak'] / 1e6:,.0f} MB")
            report.at_most("  more than the ceiling's", more / 1e6, 250, " MB")
        report.print()


def measure(side: str, layout: str, url: str) -> dict[str, dict[str, float]]:
    """Run one side in its own process."""
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL_KINESIS": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path.cwd()),
    }
    found: dict[str, dict[str, float]] = json.loads(
        subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_side", side, layout],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    )
    print(side, layout, found, file=sys.stderr)
    return found


if __name__ == "__main__":
    main()

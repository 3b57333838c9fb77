"""Measure kinesumer's rows per CPU second in Spark, and the maximum of Spark's API.

    python -m benchmarks.spark_read [--tls] [LAYOUT…]

The maximum, called ceiling, is measured with a Python data source that yields
ready-made Arrow batches of the same rows. Each of the two sources has its own Spark
(``local[2]``, Unix domain sockets). After a run to warm up, it reads the backlog of
eight shards three times, and the best run counts. CPU time and peak memory are those of
the driver, the JVM and the Python workers together, without the server of prepared
pages. The server has no limits, so kinesumer's read limits are switched off. With
``--tls``, the server speaks TLS 1.3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.http_server import served_kinesis
from benchmarks.report import Report

SHARDS = 8
TASKS = 2
ROUNDS = 3


class Layout(NamedTuple):
    """A backlog, and its target of rows per CPU second."""

    records: int  # Number per shard
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read")
    parser.add_argument("layouts", nargs="*", choices=[[], *LAYOUTS])
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    for name in given.layouts or LAYOUTS:
        layout = LAYOUTS[name]
        title = f"{SHARDS} × {layout.records:,} × {layout.size:,} B"
        report = Report(f"{title}: rows per CPU second")
        with served_kinesis(
            "benchmarks.backlog_server", layout.records, layout.size, tls=given.tls
        ) as reach:
            ceiling = measure("ceiling", name, reach)
            ours = measure("ours", name, reach)
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


def measure(
    side: str, layout: str, reach: dict[str, str]
) -> dict[str, dict[str, float]]:
    """Measure one source, "ceiling" or "ours", in its own process.

    ``reach`` is the environment that leads to the server.
    """
    environment = {
        **os.environ,
        **reach,
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

"""Measure kinesumer in Spark: wall clock, rows per CPU second and memory of a backlog.

    python -m benchmarks.spark_read [--tls] [--sink SINK]… [--rounds 3]
        [--beside DIRECTORY] [LAYOUT…]

A streaming query with ``Trigger.AvailableNow`` reads the backlog of eight shards from
its oldest record, end to end: the driver has to find where the batches end. The records
differ in length and in their times of arrival. With ``--beside``, the kinesumer of
another checkout is measured, too.

The maximum of Spark's API, called ready-made, is measured with a Python data source
that yields the same Arrow batch again and again. Each source has its own Spark
(``local[2]``, Unix domain sockets). After a query to warm up, the sources take turns,
and the figures are medians. CPU time and peak memory are those of Spark's process tree,
without the server's. The server has no limits, so kinesumer's read limits are switched
off. With ``--tls``, the server speaks TLS 1.3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.http_server import served_kinesis
from benchmarks.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARDS = 8
TASKS = 2
SINKS = ("noop", "parquet")
READY_MADE = "ready-made"
SIDE = Path(__file__).resolve().with_name("spark_side.py")


class Layout(NamedTuple):
    """A backlog, and its target of rows per CPU second."""

    records: int  # Number per shard
    size: int  # in bytes, the mean of all records
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
    """Print one table per layout and sink."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read")
    parser.add_argument("layouts", nargs="*", choices=[[], *LAYOUTS])
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--sink", action="append", dest="sinks", choices=SINKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path)
    given = parser.parse_args()
    for name in given.layouts or LAYOUTS:
        layout = LAYOUTS[name]
        with ExitStack() as stack:
            reach = stack.enter_context(
                served_kinesis(
                    "benchmarks.backlog_server",
                    layout.records,
                    layout.size,
                    tls=given.tls,
                )
            )
            sides = [stack.enter_context(Side(READY_MADE, name, reach))]
            if given.beside is not None:
                beside = Side("beside", name, reach, directory=given.beside)
                sides.append(stack.enter_context(beside))
            sides.append(stack.enter_context(Side("kinesumer", name, reach)))
            for sink in given.sinks or SINKS:
                print_report(name, sink, measure(sides, sink, given.rounds))


def measure(
    sides: Sequence[Side], sink: str, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Return each side's figures of all rounds."""
    for side in sides:
        side.run(sink)
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            figures = side.run(sink)
            print(side.name, figures, file=sys.stderr, flush=True)
            found[side.name].append(figures)
    return found


def print_report(name: str, sink: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the figures of one layout and sink."""
    layout = LAYOUTS[name]
    title = f"{SHARDS} × {layout.records:,} × {layout.size:,} B, {sink}"
    report = Report(f"{title}: medians of {len(found[READY_MADE])} rounds")
    ceiling = layout.rows / _median(found[READY_MADE], "cpu")
    report.note("ready-made batches: rows per CPU second", f"{ceiling:,.0f}")
    for side, rounds in found.items():
        if side == READY_MADE:
            continue
        rate = layout.rows / _median(rounds, "cpu")
        aim = layout.noop if sink == "noop" else layout.parquet
        report.at_least(f"{side}: rows per CPU second", rate, aim)
        report.note("  of ready-made batches", f"{100 * rate / ceiling:.0f} %")
        for part in ("jvm", "workers", "planning"):
            micros = 1e6 * _median(rounds, part) / layout.rows
            report.note(f"  CPU a row: {part}", f"{micros:.2f} µs")
        report.note("  wall clock", f"{_median(rounds, 'seconds'):.1f} s")
        report.note("    start-up", f"{_median(rounds, 'startup'):.1f} s")
        batches = sorted(rounds, key=lambda one: one["seconds"])[len(rounds) // 2]
        for rows, seconds in batches["batches"]:
            report.note("    a batch", f"{rows:,} rows in {seconds:.1f} s")
        report.note("  peak memory", f"{_median(rounds, 'peak') / 1e6:,.0f} MB")
    report.print()


def _median(rounds: list[dict[str, Any]], figure: str) -> float:
    return float(median(one[figure] for one in rounds))


class Side:
    """One source in its own Spark. ``reach`` is the environment of the server."""

    def __init__(
        self,
        source: str,
        layout: str,
        reach: dict[str, str],
        *,
        directory: Path | None = None,
    ) -> None:
        self.name = source
        directory = (directory or Path.cwd()).resolve()
        environment = {
            **os.environ,
            **reach,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(directory),
        }
        # Installed packages have compiled modules, so let Python store those, too.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        source = READY_MADE if source == READY_MADE else "kinesumer"
        arguments = [source, layout, str(LAYOUTS[layout].rows)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SIDE), *arguments],
            cwd=directory,  # Spark's Python processes import from there first
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, sink: str) -> dict[str, Any]:
        """Read the backlog once into a sink, and return the figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(sink, file=self._process.stdin, flush=True)
        figures: dict[str, Any] = json.loads(self._process.stdout.readline())
        return figures

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")


if __name__ == "__main__":
    main()

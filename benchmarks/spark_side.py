"""Measure one of the sources of ``benchmarks.spark_read`` in its own Spark.

python -m benchmarks.spark_side ceiling|ours LAYOUT
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from benchmarks.spark_formats import Ceiling, Ours
from benchmarks.spark_read import LAYOUTS, ROUNDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Watch:
    """Measures the CPU time and peak memory of this process and its descendants."""

    def __init__(self) -> None:
        self.peak = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = (time.monotonic(), cpu_seconds())
        self._thread.start()

    def stop(self) -> tuple[float, float]:
        """End the measurement. Return the elapsed seconds and the CPU seconds."""
        seconds, cpu = time.monotonic() - self._began[0], cpu_seconds() - self._began[1]
        self._stopped.set()
        self._thread.join()
        return seconds, cpu

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            self.peak = max(self.peak, resident_bytes())


def tree() -> list[int]:
    """Return the ids of this process and all its descendants."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.name)] = int(stat[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def cpu_seconds() -> float:
    """Return the CPU time of the process tree, including children that have ended."""
    ticks = 0
    for process in tree():
        try:
            stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in stat[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Return the memory of the process tree."""
    pages = 0
    for process in tree():
        try:
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * 4096


def run(frame: DataFrame, sink: str) -> None:
    """Write a frame to a sink."""
    if sink == "noop":
        frame.write.format("noop").mode("overwrite").save()
        return
    with tempfile.TemporaryDirectory() as directory:
        frame.write.mode("overwrite").parquet(f"{directory}/rows")


def main() -> None:
    """Measure one source, and print the figures as JSON."""
    side, layout = sys.argv[1:3]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.python.unix.domain.socket.enabled", True)
    for setting in sys.argv[3:]:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Ceiling if side == "ceiling" else Ours)
    frame = spark.read.format(side).option("layout", layout).load()
    figures = {}
    for sink in ("noop", "parquet"):
        run(frame, sink)
        best = {"rate": 0.0, "seconds": 0.0, "peak": 0.0}
        for _ in range(ROUNDS):
            watch = Watch()
            run(frame, sink)
            seconds, cpu = watch.stop()
            rate = LAYOUTS[layout].rows / cpu
            peak = max(best["peak"], watch.peak)
            if rate > best["rate"]:
                best = {"rate": rate, "seconds": seconds}
            best["peak"] = peak
        figures[sink] = best
    assert frame.count() == LAYOUTS[layout].rows
    spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Run one of the sources of ``benchmarks.spark_read`` in its own Spark.

    python -P benchmarks/spark_side.py ready-made|kinesumer LAYOUT ROWS

For each line of standard input, which names a sink, read the backlog once, and print
the figures as JSON. The module imports nothing of kinesumer, so that Spark finds the
kinesumer of ``PYTHONPATH``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PARTS = JVM, WORKERS, PLANNING, OTHER = "jvm", "workers", "planning", "other"


class Watch:
    """Measures the CPU time and peak memory of this process and its descendants."""

    def __init__(self) -> None:
        self.peak = 0
        self._spent: dict[int, tuple[str, float]] = {}
        self._watch()
        self._before = self._by_part()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """End the measurement. Return the elapsed seconds and the CPU seconds."""
        seconds = time.monotonic() - self._began
        self._stopped.set()
        self._thread.join()
        self._watch()
        after = self._by_part()
        parts = {part: after[part] - self._before[part] for part in PARTS}
        return {**parts, "cpu": sum(parts.values()), "seconds": seconds}

    def _by_part(self) -> dict[str, float]:
        spent = dict.fromkeys(PARTS, 0.0)
        for part, cpu in self._spent.values():
            spent[part] += cpu
        return spent

    def _repeat(self) -> None:
        while not self._stopped.wait(0.2):
            self._watch()

    def _watch(self) -> None:
        """Update the CPU time of each process, also of those that end later."""
        resident = 0
        for process in tree():
            try:
                cpu, bytes_ = usage(process)
                part = self._part(process)
            except OSError:
                continue
            self._spent[process] = part, cpu
            resident += bytes_
        self.peak = max(self.peak, resident)

    def _part(self, process: int) -> str:
        if process == os.getpid():
            return OTHER
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        if not command and process in self._spent:  # it has ended
            return self._spent[process][0]
        if b"java" in command.split(b"\0")[0]:
            return JVM
        return PLANNING if b"streaming_source_runner" in command else WORKERS


def usage(process: int) -> tuple[float, int]:
    """Return the CPU seconds and the resident bytes of a process. Raises OSError."""
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, 4096 * int(stat[21])


def tree() -> list[int]:
    """Return the ids of this process and all its descendants."""
    found = [os.getpid()]
    for process in found:
        try:
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        except OSError:  # a process or thread has ended
            continue
    return found


def read_ready_made(spark: SparkSession, layout: str, sink: str) -> dict[str, Any]:
    """Read ready-made batches into a sink."""
    rows = spark.read.format("ready-made").option("layout", layout).load()
    with tempfile.TemporaryDirectory() as directory:
        writer = rows.write.format(sink).mode("overwrite")
        writer.save(None if sink == "noop" else f"{directory}/rows")
    return {"startup": 0.0, "batches": []}


def read_backlog(spark: SparkSession, rows: int, sink: str) -> dict[str, Any]:
    """Run a query until it has read the backlog. Return its batches."""
    options = {
        "streams": "orders-8",
        "startingPosition": "TRIM_HORIZON",
        "minFetchPeriod": "1ms",
        "maxFetchRate": "1000000",
    }
    with tempfile.TemporaryDirectory() as directory:
        began = time.time()
        source = spark.readStream.format("kinesumer").options(**options).load()
        writer = source.writeStream.format(sink).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
        if sink != "noop":
            writer = writer.option("path", f"{directory}/rows")
        query = writer.start()
        query.awaitTermination()
        return _progress(query, began, rows)


def _progress(query: StreamingQuery, began: float, rows: int) -> dict[str, Any]:
    """Return a query's start-up time, and the rows and seconds of its batches."""
    batches, startup = [], None
    for progress in query.recentProgress:
        durations = progress["durationMs"]
        # What Spark does before it runs the batch: it plans the batch and logs its end.
        total, adding = durations["triggerExecution"], durations.get("addBatch", 0)
        if startup is None:
            trigger = datetime.fromisoformat(progress["timestamp"]).timestamp()
            startup = trigger - began + (total - adding) / 1000
        batches.append((progress["numInputRows"], total / 1000))
    found = sum(count for count, _ in batches)
    assert found == rows, (found, rows)
    return {"startup": startup, "batches": batches}


def main() -> None:
    """Read the backlog once for each line of standard input."""
    source, layout, rows = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    builder = builder.config("spark.python.unix.domain.socket.enabled", True)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if source == "ready-made":
        from benchmarks.spark_formats import ReadyMade

        spark.dataSource.register(ReadyMade)
    for line in sys.stdin:
        watch = Watch()
        if source == "ready-made":
            found = read_ready_made(spark, layout, line.strip())
        else:
            found = read_backlog(spark, int(rows), line.strip())
        print(json.dumps({**watch.stop(), "peak": watch.peak, **found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

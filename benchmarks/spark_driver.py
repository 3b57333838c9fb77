"""Measure the cost of a Spark query's driver.

    python -m benchmarks.spark_driver [fleet] [memory] [idle] [latency]

- ``fleet``: the time in which the driver plans a trigger over 1,000 shards. Planning
  consists of Spark's calls in a trigger: latestOffset and partitions. The driver uses
  the real HTTP client; a server in another process answers each call after 50 ms.
- ``memory``: the growth of the memory over 500 triggers.
- ``idle``: the CPU time of all processes of a real query (``local[2]``, a trigger each
  second) that finds nothing new in 16 shards.
- ``latency``: how soon rows are in the output of a real query, with AWS's limits.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, StructType

from benchmarks.http_server import served
from benchmarks.report import Report
from benchmarks.spark_side import tree, usage
from kinesumer.model.streams import Start, Stream
from kinesumer.spark.options.parser import Connection, ReadOptions
from kinesumer.spark.readers import NO_LIMIT, StreamReader
from kinesumer.testing import EmbeddedAws, background

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHARDS, LATENCY = 1_000, 0.05
CPU_SECONDS, WALL_SECONDS = 1.0, 5.0
TRIGGERS, SETTLED = 500, 100
GROWTH_MIB = 5.0
IDLE_SHARDS, IDLE_TRIGGERS = 16, 30
IDLE_CPU_MS = 50.0
TRICKLE_SECONDS = 20
HOUR = 3600


def main() -> None:
    """Print the requested tables, or all."""
    for name in sys.argv[1:] or WHAT:
        WHAT[name]()


def reader(url: str, shards: int, start: Start) -> StreamReader:
    """Return the stream reader that a query's driver uses."""
    options = ReadOptions(
        streams=(Stream(f"planned-{shards}"),),
        connection=Connection(region="us-east-1", kinesis_endpoint=url),
        starting=start,
        max_rows_per_batch=None,
    )
    return StreamReader(options, StructType().add("data", BinaryType()))


def trigger(query: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Make the calls of one Spark trigger."""
    end = query.latestOffset(start, NO_LIMIT)
    query.reportLatestOffset()
    if end != start:
        query.partitions(start, end)
        query.commit(end)
    return end


def fleet() -> None:
    """Measure the planning of triggers over many shards."""
    report = Report(f"planning over {SHARDS:,} shards, {LATENCY * 1e3:.0f} ms a call")
    for what, rate, start in (
        ("nothing new", 0.0, Start.LATEST),
        ("20 records/s in each", 20.0, Start.LATEST),
        ("an hour's backlog of 20 records/s in each", 20.0, Start.TRIM_HORIZON),
    ):
        with served("benchmarks.rate_server", LATENCY, rate, 100, HOUR) as url:
            query, end = reader(url, SHARDS, start), dict[str, Any]()
            for number in range(4):
                cpu, wall = time.process_time(), time.perf_counter()
                end = trigger(query, end)
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                which = "first trigger" if number == 0 else f"trigger {number + 1}"
                report.at_most(f"{what}, {which}: CPU", cpu, CPU_SECONDS, " s")
                report.at_most(f"{what}, {which}: wall", wall, WALL_SECONDS, " s")
                time.sleep(1)
    report.print()


def memory() -> None:
    """Measure how much the memory grows over many triggers."""
    report = Report(f"memory over {TRIGGERS} triggers of {IDLE_SHARDS} busy shards")
    with served("benchmarks.rate_server", 0.0, 50.0, 100, HOUR) as url:
        query, end = reader(url, IDLE_SHARDS, Start.TRIM_HORIZON), dict[str, Any]()
        settled = 0
        for number in range(TRIGGERS):
            end = trigger(query, end)
            assert query._driver is not None
            query._driver._pause_seconds = 0.05
            if number == SETTLED:
                settled = _resident()
    grown = (_resident() - settled) / (1 << 20)
    report.at_most(f"growth after trigger {SETTLED}", grown, GROWTH_MIB, " MiB")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.note("peak", f"{peak:.0f} MiB")
    report.print()


def _resident() -> int:
    gc.collect()
    return usage(os.getpid())[1]


def idle() -> None:
    """Measure the CPU time of a real query without new records."""
    report = Report(f"a trigger without new data, {IDLE_SHARDS} shards, real Spark")
    with (
        served("benchmarks.rate_server", 0.0, 0.0, 100, HOUR) as url,
        tempfile.TemporaryDirectory() as where,
    ):
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path.cwd()),
        }
        spark = _session()
        source = spark.readStream.format("kinesumer").options(
            streams=f"planned-{IDLE_SHARDS}", endpointUrl=url, region="us-east-1"
        )
        sink = source.load().writeStream.format("noop")
        query = (
            sink.option("checkpointLocation", where)
            .trigger(processingTime="1 second")
            .start()
        )
        time.sleep(20)  # until the JVM has compiled frequent code
        before, since = _cpu(), time.monotonic()
        time.sleep(IDLE_TRIGGERS)
        parts = {name: cpu - before.get(name, 0.0) for name, cpu in _cpu().items()}
        triggers = time.monotonic() - since
        progress = query.lastProgress
        query.stop()
        spark.stop()
    python = 1e3 * sum(v for k, v in parts.items() if "python" in k) / triggers
    jvm = 1e3 * sum(v for k, v in parts.items() if "java" in k) / triggers
    report.at_most("CPU of driver and JVM", python + jvm, IDLE_CPU_MS, " ms")
    report.note("  thereof the driver's Python processes", f"{python:.1f} ms")
    report.note("  thereof the JVM", f"{jvm:.1f} ms")
    report.note("last progress", str(progress and dict(progress["durationMs"])))
    report.print()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def latency() -> None:
    """Measure the delay of a real query's rows."""
    report = Report("latency of a real query, 8 shards, AWS's limits")
    with background(EmbeddedAws()) as aws, tempfile.TemporaryDirectory() as where:
        os.environ |= aws.environment()
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path.cwd())}
        spark = _session()
        for name in ("warm", "first-1", "first-2", "trickle"):
            aws.create_stream(name, shards=8)
        _first_row(spark, aws, "warm", where)
        firsts = [_first_row(spark, aws, f"first-{i}", where) for i in (1, 2)]
        first, cpu = min(firsts)
        report.at_most("first row, trigger of 0.5 s", first, 2, " s")
        report.note("  CPU of the whole process tree until then", f"{cpu:.2f} s")
        report.note("  load average", f"{os.getloadavg()[0]:.1f}")
        ages = _trickle(spark, aws, where)
        report.at_most("20 records/s on one shard: slowest", ages[-1], 2, " s")
        report.note("  median", f"{ages[len(ages) // 2]:.2f} s")
        spark.stop()
    report.print()


def _first_row(
    spark: SparkSession, aws: EmbeddedAws, name: str, where: str
) -> tuple[float, float]:
    """Return the seconds until a query's first row, and the CPU seconds until then."""
    for i in range(100):
        aws.put(name, b"x", f"key-{i}")
    time.sleep(5)  # so that the records are an old backlog
    came = threading.Event()

    def take(frame: DataFrame, _number: int) -> None:
        if frame.collect():
            came.set()

    began, cpu = time.monotonic(), sum(_cpu().values()) + time.process_time()
    query = _start(spark, name, take, "500 milliseconds", where, "TRIM_HORIZON")
    assert came.wait(60)
    taken = time.monotonic() - began
    cpu = sum(_cpu().values()) + time.process_time() - cpu
    query.stop()
    return taken, cpu


def _trickle(spark: SparkSession, aws: EmbeddedAws, where: str) -> list[float]:
    ages: list[float] = []

    def take(frame: DataFrame, _number: int) -> None:
        arrivals = [row.arrived_at.timestamp() for row in frame.collect()]
        ages.extend(time.time() - arrived for arrived in arrivals)

    query = _start(spark, "trickle", take, "1 second", where, "LATEST")
    while not query.recentProgress:  # after this, its start is fixed
        time.sleep(0.1)
    time.sleep(2)
    for number in range(20 * TRICKLE_SECONDS):
        aws.put("trickle", b"%d" % number, "one")
        time.sleep(0.05)
    time.sleep(3)
    query.stop()
    assert len(ages) == 20 * TRICKLE_SECONDS, len(ages)
    return sorted(ages[20 * 5 :])  # without the first five seconds


def _start(
    spark: SparkSession,
    stream: str,
    take: Callable[[DataFrame, int], None],
    every: str,
    where: str,
    start: str,
) -> StreamingQuery:
    source = spark.readStream.format("kinesumer").options(
        streams=stream, startingPosition=start
    )
    sink = source.load().writeStream.foreachBatch(take)
    sink = sink.option("checkpointLocation", f"{where}/{stream}")
    return sink.trigger(processingTime=every).start()


def _cpu() -> dict[str, float]:
    """Return the CPU seconds of this process's descendants, by pid and command."""
    found = {}
    for pid in tree()[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()[:200]
            found[f"{pid} {command.decode(errors='replace')}"] = usage(pid)[0]
        except OSError:
            continue
    return {k: v for k, v in found.items() if "benchmarks.rate_server" not in k}


WHAT = {"fleet": fleet, "memory": memory, "idle": idle, "latency": latency}

if __name__ == "__main__":
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    main()

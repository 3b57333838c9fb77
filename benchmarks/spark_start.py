"""Measure the CPU time with which a Spark query starts.

    python -m benchmarks.spark_start

Spark starts five Python processes for a query: they find the format, create the source
and its reader, plan batches, and run a task. The benchmark makes their calls without
Spark, each in a process of its own, which has imported PySpark's modules before. The
query has one record in one shard. All modules are compiled, as in an installed package.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report

if TYPE_CHECKING:
    from kinesumer.spark.source import KinesumerDataSource

RUNS = 7
AIM_SECONDS = 0.8
# The module that Spark starts for each of the steps.
PROCESSES = {
    "find": "pyspark.sql.worker.lookup_data_sources",
    "create": "pyspark.sql.worker.create_data_source",
    "open": "pyspark.sql.worker.plan_data_source_read",
    "plan": "pyspark.sql.streaming.python_streaming_source_runner",
    "task": "pyspark.worker",
}
# With a variable that Kinesumer doesn't know, aiobotocore finds keys and endpoint.
UNKNOWN = {"AWS_USE_FIPS_ENDPOINT": "false"}
OPTIONS = {"streams": "orders", "startingPosition": "TRIM_HORIZON"}


def main() -> None:
    """Print the CPU time of each process, and the sum."""
    # Imported here, because the processes must not have imported this before.
    from kinesumer.testing import EmbeddedAws, background

    report = Report(f"start of a query beyond PySpark's imports: CPU, best of {RUNS}")
    with background(EmbeddedAws()) as aws, tempfile.TemporaryDirectory() as directory:
        aws.create_stream("orders", 1)
        aws.put("orders", b"x", "key")
        environment = _environment(directory) | aws.environment()
        steps = _measure(environment, directory)
        for step, seconds in steps.items():
            report.note(f"process that does the step {step!r}", f"{seconds:.2f} s")
        report.at_most("all processes", sum(steps.values()), AIM_SECONDS, " s")
        steps = _measure(environment | UNKNOWN, directory)
        note = f"{sum(steps.values()):.2f} s"
        report.note("all processes, where aiobotocore finds the keys", note)
    report.print()


def _environment(directory: str) -> dict[str, str]:
    """Return the environment without AWS's settings, with a place for bytecode."""
    usual = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return usual | {"HOME": directory, "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}


def _measure(environment: dict[str, str], directory: str) -> dict[str, float]:
    """Return the CPU seconds of each step."""
    steps = {}
    for step in PROCESSES:
        command = [sys.executable, "-m", __spec__.name, step, f"{directory}/tasks"]
        steps[step] = min(_seconds(command, environment) for _ in range(RUNS))
    return steps


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    return float(subprocess.check_output(command, env=environment, text=True))


def run(step: str, tasks: Path) -> None:
    """Do what Spark lets one process do, and print its CPU time."""
    import_module(PROCESSES[step])
    import pyarrow as pa  # noqa: F401  PySpark imports it, too

    began = time.process_time()
    source = import_module("pyspark_kinesumer").DefaultSource
    if step != "find":
        _use(source(OPTIONS), step, tasks)
    print(time.process_time() - began, flush=True)
    os._exit(0)  # as Spark's workers end


def _use(source: KinesumerDataSource, step: str, tasks: Path) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    if step == "create":
        source.schema()
        return
    reader = source.streamReader(StructType([StructField("data", BinaryType())]))
    if step == "plan":
        end = reader.latestOffset({}, reader.getDefaultReadLimit())
        tasks.write_bytes(pickle.dumps(reader.partitions({}, end)))
    elif step == "task":
        [task] = pickle.loads(tasks.read_bytes())
        assert len([*reader.read(task)]) == 1  # one batch


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        run(sys.argv[1], Path(sys.argv[2]))

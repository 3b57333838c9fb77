"""Run a Spark query beside the clients, and judge its output."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from kinesumer.errors import KinesumerError
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.child import STARTED
from kinesumer.testing.trial.journal import Produced, RecordCounts, now
from kinesumer.testing.trial.oracle import Parents
from kinesumer.testing.trial.processes import Child, Processes, TrialStream
from kinesumer.testing.trial.verdict import Event, Line, Verdict, nothing

# A query starts or catches up within this time. Its JVM runs at low priority.
SPARK_SECONDS = 300.0
SINK_LOG = "_spark_metadata"
COMPACT_SUFFIX = ".compact"


def missing_spark() -> str | None:
    """Return what is missing to run Spark, or None."""
    try:
        with warnings.catch_warnings(action="error", category=RuntimeWarning):
            importlib.import_module("kinesumer.spark")
    except (ImportError, RuntimeWarning) as error:
        return str(error)
    return None


def delete_unfinished_start(checkpoint: Path) -> None:
    """Delete the first offset of a query if Spark was killed while it was writing it.

    Spark starts no query whose checkpoint has a part of its first offset (SPARK-53103).
    Without a whole one no batch has begun, so nothing is lost.
    """
    offsets = checkpoint / "offsets"
    if offsets.exists() and not any(offsets.glob("[0-9]*")):
        shutil.rmtree(offsets)


class CommittedFile(NamedTuple):
    """A file in the committed output of a Spark file sink."""

    # The batch that wrote the file. If only a compacted log lists the file, this is the
    # batch that wrote the log.
    batch: int
    path: str


def committed_files(output: Path) -> list[CommittedFile]:
    """Return the committed files of a Spark file sink, in the order of their batches.

    These are the files in the sink's log. The directory may also contain files of
    batches that failed. For each batch, Spark writes a log file ``_spark_metadata/N``.
    For every tenth batch, it is named ``N.compact`` and also contains the entries of
    all earlier log files, which Spark may then delete.
    """
    batches: dict[str, int] = {}
    for batch, log in sorted(_sink_logs(output)):
        for path in _added_files(log):
            batches.setdefault(path, batch)
    return [CommittedFile(batch, path) for path, batch in batches.items()]


def _sink_logs(output: Path) -> Iterator[tuple[int, Path]]:
    # Ignore temporary files of unfinished writes: their names begin with a dot.
    for path in (output / SINK_LOG).glob("[0-9]*"):
        yield int(path.name.removesuffix(COMPACT_SUFFIX)), path


def _added_files(log: Path) -> Iterator[str]:
    version, *lines = log.read_text().splitlines()
    if version != "v1":
        raise ValueError(f"{log} has version {version}; expected v1")
    for line in lines:
        entry = json.loads(line)
        if entry["action"] != "add":
            raise ValueError(f"{log} has the action {entry['action']}; expected add")
        yield unquote(urlparse(entry["path"]).path)


class OutputRow(NamedTuple):
    """A row of the query's output."""

    batch: int
    shard: ShardKey
    number: int


class SparkProcess:
    """Starts the query's driver, kills it once, and reads the committed rows."""

    def __init__(
        self, processes: Processes, streams: list[TrialStream], counts: RecordCounts
    ) -> None:
        self._processes, self._streams, self._counts = processes, streams, counts
        self._driver: Child
        self._restart: asyncio.Task[None] | None = None
        # The rows of each file. A file is read once, since it doesn't change any more.
        self._rows: dict[str, list[OutputRow]] = {}

    async def try_start(self) -> str | None:
        """Start the driver, and wait until its query runs.

        If it does not run, end the driver and return the reason.
        """
        try:
            await self._start()
        except KinesumerError as error:
            await self.end()
            return str(error)
        return None

    async def _start(self) -> None:
        self._driver = self._processes.start_spark(self._streams)
        line = await self._driver.read_line(SPARK_SECONDS)
        if line is None:
            raise KinesumerError(
                f"the Spark query didn't start within {SPARK_SECONDS:.0f} s "
                f"({self._driver.last_log_line()}); try again on a less busy machine"
            )
        if line.decode().strip() != STARTED:
            raise KinesumerError(
                f"the Spark query didn't start: {self._driver.last_log_line()}; check "
                "the installation of Java and PySpark"
            )

    async def crash(self) -> Event:
        """Kill the driver and its JVM, and restart the driver in the background."""
        at = now()
        self._driver.end()
        delete_unfinished_start(self._processes.directory / "spark/checkpoint")
        rows = await self._count_rows()
        self._restart = asyncio.create_task(self._start())
        text = f"kill Spark's driver (SIGKILL, {rows:,} rows committed)"
        return Event(kind="spark", at=at, text=text)

    def unexpected_end(self) -> str | None:
        """Return a sentence if the driver has ended by itself, or else None."""
        if self._driver.is_running:
            return None
        return f"Spark's driver ended by itself: {self._driver.error_line()}"

    async def has_all_rows(self) -> bool:
        """Return whether the output has at least as many rows as there are records."""
        return await self._count_rows() >= self._counts.total

    async def end(self) -> str | None:
        """Kill the driver. If it is restarting, wait for that first.

        Return the reason if the query did not start again.
        """
        problem = None
        if self._restart is not None:
            try:
                await self._restart
            except KinesumerError as error:
                problem = str(error)
        self._driver.end()
        return problem

    async def judge(self, parents: Parents) -> Verdict:
        """Compare the rows of the query's output with the produced records."""
        await self._count_rows()
        rows = [row for file_rows in self._rows.values() for row in file_rows]
        return judge(rows, self._counts.produced, self._counts.uncertain, parents)

    async def _count_rows(self) -> int:
        await asyncio.to_thread(self._read_new_files)
        return sum(map(len, self._rows.values()))

    def _read_new_files(self) -> None:
        for batch, path in committed_files(self._processes.directory / "spark/rows"):
            if path not in self._rows:
                self._rows[path] = list(self._read_rows(batch, path))

    def _read_rows(self, batch: int, path: str) -> Iterable[OutputRow]:
        import pyarrow.parquet as pq

        table: Any = pq.ParquetFile(path).read()
        columns = (table[name].to_pylist() for name in table.column_names)
        for arn, shard_id, number in zip(*columns, strict=True):
            yield OutputRow(batch, ShardKey(arn, shard_id), number)


def judge(
    rows: list[OutputRow],
    produced: list[Produced],
    uncertain: Container[int],
    parents: Parents,
) -> Verdict:
    """Return the verdict on the query's output. ``rows`` are in the output's order."""
    positions = {(p.shard, p.number): p.position for p in produced}
    seen = Counter((row.shard, row.number) for row in rows)
    by_shard: dict[ShardKey, list[OutputRow]] = {}
    for row in rows:
        by_shard.setdefault(row.shard, []).append(row)
    disordered = [
        f"{shard} began before {parent}"
        for shard, part in by_shard.items()
        for parent in parents.get(shard, ())
        if parent in by_shard and part[0].batch < by_shard[parent][-1].batch
    ]
    for shard_rows in by_shard.values():
        known = [row for row in shard_rows if (row.shard, row.number) in positions]
        disordered += [
            f"{after} came after {before}"
            for before, after in pairwise(known)
            if positions[after.shard, after.number]
            < positions[before.shard, before.number]
        ]
    batches = len({row.batch for row in rows})
    found = {
        "lost": positions.keys() - seen.keys(),
        "written twice": [key for key, times in seen.items() if times > 1],
        "out of order": disordered,
        "never produced": [
            key for key in seen.keys() - positions.keys() if key[1] not in uncertain
        ],
    }
    return Verdict(
        [
            Line("Spark's rows", f"{len(rows)} in {batches} batches"),
            *(nothing(f"Spark: {what}", [*map(str, x)]) for what, x in found.items()),
        ]
    )

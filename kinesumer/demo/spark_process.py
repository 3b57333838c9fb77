"""The demo's Spark query as the parent sees it: its driver, and its rows in Parquet."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.demo.record_log import shard_number
from kinesumer.demo.scenario import Event
from kinesumer.demo.sink_log import committed
from kinesumer.demo.spark_query import STARTED
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesumer.demo.counts import Ledger, Produced
    from kinesumer.demo.pauses import Lineage, Place
    from kinesumer.demo.processes import Child, Processes
    from kinesumer.demo.settings import DemoStream

START_SECONDS = 120.0


class Row(NamedTuple):
    """A row of the query's output, in the order of batches and of rows in files."""

    batch: int
    stream: int
    shard: int
    number: int


class Verdict(NamedTuple):
    """What became of the records in the query's output."""

    rows: int
    batches: int
    lost: int
    twice: int
    out_of_order: int
    strangers: int

    def lines(self, killed: str) -> list[str]:
        """Return the verdict's row, and why it isn't a good one."""
        return [
            f"rows in Spark's output {self.rows:>9,}   in {self.batches:,} batches; "
            f"{killed}",
            f"  lost                 {self.lost:>9,}   must be 0",
            f"  twice                {self.twice:>9,}   must be 0",
            f"  out of order         {self.out_of_order:>9,}   must be 0",
            f"  never produced       {self.strangers:>9,}   must be 0",
        ]

    def broken(self) -> list[str]:
        """Return what must not be, in words."""
        found = {
            "aren't in Spark's output": self.lost,
            "are in Spark's output twice": self.twice,
            "are in Spark's output out of order": self.out_of_order,
            "are in Spark's output, but were never produced there": self.strangers,
        }
        return [f"{count:,} records {what}" for what, count in found.items() if count]


class SparkSide:
    """Starts the query's driver, kills it once, and reads what the query committed."""

    def __init__(
        self, processes: Processes, streams: list[DemoStream], ledger: Ledger
    ) -> None:
        self._processes, self._streams, self._ledger = processes, streams, ledger
        self._places = {stream.arn: n for n, stream in enumerate(streams)}
        self._driver: Child
        self._restart: asyncio.Task[None] | None = None
        self._rows: dict[str, list[Row]] = {}
        """The rows of each file, which never changes once it is committed."""
        self.killed = "its driver was never killed"

    @property
    def _output(self) -> Path:
        return self._processes.directory / "spark" / "rows"

    async def start(self) -> None:
        """Start the driver and wait until its query runs."""
        self._driver = await self._processes.start_spark(self._streams)
        output = self._driver.process.stdout
        assert output is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await output.readline()
        except TimeoutError:
            raise KinesumerError(
                f"the Spark query didn't start within {START_SECONDS:.0f} s, as it "
                f"doesn't on a busy machine: {self._driver.last_words()}"
            ) from None
        if line.decode().strip() != STARTED:
            raise KinesumerError(
                f"the Spark query didn't start: {self._driver.last_words()}"
            )

    async def crash(self) -> Event:
        """Kill the driver with its JVM; it starts again while the story goes on."""
        at = time.monotonic()
        self._driver.kill_group()
        await self._driver.process.wait()
        rows = await self._count()
        self.killed = f"its driver was killed once, with {rows:,} rows committed"
        self._restart = asyncio.create_task(self.start())
        text = f"kill Spark's driver (SIGKILL, {rows:,} rows committed)"
        return Event(kind="spark", at=at, text=text)

    def ended_by_itself(self) -> str | None:
        """Tell why the driver ended, if it did."""
        if self._driver.is_running:
            return None
        return f"Spark's driver ended by itself: {_cause(self._driver)}"

    async def is_level(self) -> bool:
        """Tell whether the output has as many rows as were produced."""
        return await self._count() >= len(self._ledger.produced)

    async def end(self) -> None:
        """Kill the driver: everything is in its checkpoint."""
        if self._restart is not None:
            await self._restart
        self._driver.told_to_end = True
        self._driver.kill_group()
        await self._driver.process.wait()

    async def judge(self, parents: Lineage) -> Verdict:
        """Hold the rows against what was produced."""
        await self._count()
        rows = [row for found in self._rows.values() for row in found]
        return judge(rows, self._ledger.produced, self._ledger.uncertain, parents)

    async def _count(self) -> int:
        await asyncio.to_thread(self._read)
        return sum(map(len, self._rows.values()))

    def _read(self) -> None:
        for batch, path in committed(self._output):
            if path not in self._rows:
                self._rows[path] = list(self._in_file(batch, path))

    def _in_file(self, batch: int, path: str) -> Iterable[Row]:
        import pyarrow.parquet as pq

        table: Any = pq.ParquetFile(path).read()
        columns = (table[name].to_pylist() for name in table.column_names)
        for arn, shard_id, number in zip(*columns, strict=True):
            yield Row(batch, self._places[arn], shard_number(shard_id), number)


def _cause(driver: Child) -> str:
    """Return the latest line of the log that speaks of an error: plans come last."""
    lines = driver.log.read_text(errors="replace").splitlines()
    found = [line.strip() for line in lines if "Error" in line or "Exception" in line]
    return found[-1] if found else driver.last_words()


def judge(
    rows: list[Row], produced: list[Produced], uncertain: set[int], parents: Lineage
) -> Verdict:
    """Return the verdict on an output, whose rows come in their order."""
    log = {(p.stream, p.shard, p.number): p.place for p in produced}
    seen = Counter((row.stream, row.shard, row.number) for row in rows)
    strangers = [key for key in seen if key not in log and key[2] not in uncertain]
    by_shard: dict[Place, list[Row]] = {}
    for row in rows:
        by_shard.setdefault((row.stream, row.shard), []).append(row)
    disorder = 0
    for place, found in by_shard.items():
        places = [log[key] for r in found if (key := (*place, r.number)) in log]
        disorder += sum(after < before for before, after in pairwise(places))
    return Verdict(
        rows=len(rows),
        batches=len({row.batch for row in rows}),
        lost=len(log.keys() - seen.keys()),
        twice=sum(times - 1 for times in seen.values()),
        out_of_order=disorder + _before_parents(by_shard, parents),
        strangers=len(strangers),
    )


def _before_parents(seen: dict[Place, list[Row]], parents: Lineage) -> int:
    return sum(
        rows[0].batch < seen[parent][-1].batch
        for place, rows in seen.items()
        for parent in parents.get(place, ())
        if parent in seen
    )

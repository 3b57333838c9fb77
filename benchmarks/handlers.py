"""How many records a CPU second brings to a handler, beside a plain ``async for``.

    python -m benchmarks.handlers [LAYOUT…]

Canned GetRecords answers through the whole path: decoding, buffer, handler, marks,
commits to a store in memory, telemetry. Each way runs three times, in turns; the best
counts.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.canned import Engine, Spent, consume, set_up_telemetry
from benchmarks.consume import RECORDS
from benchmarks.pages import LAYOUTS, Layout
from benchmarks.report import Report
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.handlers.options import read_run_options
from kinesumer.handlers.runner import HandlerRunner
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Batch, Record

    Way = Callable[[Layout, int], Any]

TIMES = 3


class Count:
    """Counts what handlers get, and ends the run when that is enough."""

    def __init__(self, records: int) -> None:
        self.records = 0
        self.began: float | None = None
        self.spent: Spent | None = None
        self._enough = records
        self._handling: HandlerRunner

    async def run(self, layout: Layout, handler: Any, **options: Any) -> Spent:
        """Let the engine bring records to a handler of this."""
        self._handling = HandlerRunner(
            read_run_options(handler, **options),
            app="benchmark",
            clock=SystemClock(),
            random=random.Random(),
            drain=30.0,
        )
        engine = Engine(layout, self._handling)
        loop = asyncio.get_running_loop()
        self._close = lambda: loop.call_soon_threadsafe(self._handling.close)
        await self._handling.run(engine.begin)
        await engine.stop()
        assert self.spent is not None
        return self.spent

    def add(self, records: int) -> None:
        """Count records; the clock starts with the first ones."""
        if self.began is None:
            self.began = time.process_time()
            return
        self.records += records
        if self.records >= self._enough and self.spent is None:
            self.spent = Spent(self.records, time.process_time() - self.began)
            self._close()

    # --- handlers ---

    async def each(self, record: Record) -> None:
        """Take a record."""
        self.add(1)

    async def batch(self, batch: Batch) -> None:
        """Take a batch."""
        self.add(len(batch))

    def each_in_thread(self, record: Record) -> None:
        """Take a record, in a thread."""
        self.add(1)

    def batch_in_thread(self, batch: Batch) -> None:
        """Take a batch, in a thread."""
        self.add(len(batch))


async def batches(layout: Layout, records: int) -> Spent:
    """Consume by the plain iterator over batches."""
    delivery = RecordDelivery(SystemClock(), acks_by_asking=True)
    engine, count, began = Engine(layout, delivery), 0, 0.0
    async for batch in Records(delivery, engine.begin).batches():
        if not began:
            began = time.process_time()
        else:
            count += len(batch)
        if count >= records:
            break
    spent = Spent(count, time.process_time() - began)
    await engine.stop()
    return spent


async def calling(layout: Layout, records: int) -> Spent:
    """Consume by the plain iterator, and await a function with each record."""
    delivery = RecordDelivery(SystemClock(), acks_by_asking=True)
    engine, count = Engine(layout, delivery), Count(records)
    count._close = lambda: None
    async for record in Records(delivery, engine.begin):
        await count.each(record)
        if count.spent is not None:
            break
    await engine.stop()
    assert count.spent is not None
    return count.spent


def by(handler: str, **options: Any) -> Way:
    """Return the way through ``run()`` with one of the handlers above."""

    def way(layout: Layout, records: int) -> Any:
        count = Count(records)
        return count.run(layout, getattr(count, handler), **options)

    return way


PLAIN: dict[str, Way] = {
    "async for record": consume,
    "async for record: await handler(record)": calling,
    "async for batch": batches,
}
WAYS: dict[str, tuple[Way, str, float]] = {
    "run(async, record)": (by("each"), "async for record: await handler(record)", 0.9),
    "run(async, batch)": (by("batch"), "async for batch", 0.9),
    "run(plain, record)": (
        by("each_in_thread"),
        "async for record: await handler(record)",
        0.8,
    ),
    "run(plain, batch)": (by("batch_in_thread"), "async for batch", 0.8),
    "run(async, record, concurrency=10)": (
        by("each", concurrency=10),
        "async for record: await handler(record)",
        0.3,
    ),
    "run(async, batch, concurrency=10)": (
        by("batch", concurrency=10),
        "async for batch",
        0.3,
    ),
}
"""Each with what it is compared to, and the share of it that is the aim."""


def main() -> None:
    """Print one table per layout."""
    set_up_telemetry()
    for name in sys.argv[1:] or ("100B", "1KB"):
        layout, records = LAYOUTS[name], RECORDS[name]
        ways = PLAIN | {title: way for title, (way, _, _) in WAYS.items()}
        best = dict.fromkeys(ways, 0.0)
        for _ in range(TIMES):
            for title, way in ways.items():
                spent = asyncio.run(way(layout, records))
                best[title] = max(best[title], spent.per_cpu_second)
        report = Report(f"{layout.name}: records per CPU second")
        for title in PLAIN:
            report.note(title, f"{best[title]:,.0f}")
        for title, (_, peer, aim) in WAYS.items():
            report.note(title, f"{best[title]:,.0f}")
            report.at_least(f"  ratio to {peer}", best[title] / best[peer], aim, " ×")
        report.print()


if __name__ == "__main__":
    main()

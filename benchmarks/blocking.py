"""Measure ``for`` in a thread, without asyncio, and compare it with ``async for``.

    python -m benchmarks.blocking [LAYOUT…]

Prints records per CPU second. Prepared GetRecords responses take the whole path:
decoding, buffer, transfer to the thread, acks, commits to a store in memory, and
telemetry. Each way to consume runs three times, and its best run counts. The last
figure shows the rate that would remain if each record needed a call to the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.canned_source import Engine, Spent, consume, set_up_telemetry
from benchmarks.consume import RECORDS
from benchmarks.handlers import TIMES, batches
from benchmarks.pages import LAYOUTS, Layout
from benchmarks.report import Report
from kinesumer.blocking.delivery import Records, ThreadDelivery
from kinesumer.blocking.portal import LoopThread
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

CROSSINGS = 5_000


class Desk:
    """Runs the engine for a thread, as a client without asyncio does."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.loop_thread = LoopThread(self, lambda: None)
        self._delivery = ThreadDelivery(
            self.loop_thread, SystemClock(), acks_by_asking=True, ack=lambda _: None
        )
        self.records = Records(self._delivery, self._start)

    async def __aenter__(self) -> None:
        self._engine = Engine(self._layout, self._delivery)

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()

    async def _start(self) -> None:
        await self._engine.begin()


def by_record(layout: Layout, records: int) -> Spent:
    """Iterate over records. The clock starts after the first record."""
    desk = Desk(layout)
    with desk.loop_thread:
        next(desk.records)
        began = time.process_time()
        for _ in itertools.islice(desk.records, records):
            pass
        return Spent(records, time.process_time() - began)


def by_batch(layout: Layout, records: int) -> Spent:
    """Iterate over batches. The clock starts after the first batch."""
    desk, count = Desk(layout), 0
    with desk.loop_thread:
        taken = desk.records.batches()
        next(taken)
        began = time.process_time()
        for batch in taken:
            count += len(batch)
            if count >= records:
                break
        return Spent(count, time.process_time() - began)


def by_crossing(layout: Layout, _: int) -> Spent:
    """Call the event loop from the thread, as if for each record."""
    desk = Desk(layout)
    with desk.loop_thread:
        began = time.process_time()
        for _ in range(CROSSINGS):
            desk.loop_thread.call(asyncio.sleep, 0)
        return Spent(CROSSINGS, time.process_time() - began)


WAYS: dict[str, Callable[[Layout, int], Spent]] = {
    "async for record": lambda layout, records: asyncio.run(consume(layout, records)),
    "for record": by_record,
    "async for batch": lambda layout, records: asyncio.run(batches(layout, records)),
    "for batch": by_batch,
    "one way to the loop per record": by_crossing,
}


def main() -> None:
    """Print one table per layout."""
    set_up_telemetry()
    for name in sys.argv[1:] or ("100B", "1KB"):
        layout = LAYOUTS[name]
        best = dict.fromkeys(WAYS, 0.0)
        for _ in range(TIMES):
            for title, way in WAYS.items():
                spent = way(layout, RECORDS[name])
                best[title] = max(best[title], spent.per_cpu_second)
        report = Report(f"{layout.name}: records per CPU second")
        for title, figure in best.items():
            report.note(title, f"{figure:,.0f}")
        for what in ("record", "batch"):
            ratio = best[f"for {what}"] / best[f"async for {what}"]
            report.at_least(f"  for {what}: ratio to async for", ratio, 0.8, " ×")
        report.print()


if __name__ == "__main__":
    main()

"""How many records a CPU second brings to a thread, beside a plain ``async for``.

    python -m benchmarks.blocking [LAYOUT…]

Canned GetRecords answers through the whole path: decoding, buffer, the way to the
thread, marks, commits to a store in memory, telemetry. Each way runs three times, in
turns; the best counts. Last, what it would cost to ask the event loop for each record.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.canned import Engine, Spent, consume, set_up_telemetry
from benchmarks.consume import RECORDS
from benchmarks.handlers import TIMES, batches
from benchmarks.pages import LAYOUTS, Layout
from benchmarks.report import Report
from kinesumer.blocking.delivery import Records, ThreadDelivery, ThreadIterator
from kinesumer.blocking.portal import LoopThread
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

CROSSINGS = 5_000


class Desk:
    """What a client does for a thread: the engine, with the block's begin and end."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._delivery = ThreadDelivery(
            SystemClock(), acks_by_asking=True, ack=lambda _: None
        )
        self.loop_thread = LoopThread(self)
        self.records = Records(
            ThreadIterator(self.loop_thread, self._delivery, self._start)
        )

    async def __aenter__(self) -> None:
        self._engine = Engine(self._layout, self._delivery)

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()

    async def _start(self) -> None:
        await self._engine.begin()


def by_record(layout: Layout, records: int) -> Spent:
    """Take one record after the other; the clock starts after the first one."""
    desk = Desk(layout)
    with desk.loop_thread:
        next(desk.records)
        began = time.process_time()
        for _ in itertools.islice(desk.records, records):
            pass
        return Spent(records, time.process_time() - began)


def by_batch(layout: Layout, records: int) -> Spent:
    """Take one batch after the other; the clock starts after the first one."""
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
    """Go to the loop and back as if for each record."""
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

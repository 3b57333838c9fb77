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
from contextlib import nullcontext
from typing import TYPE_CHECKING

from benchmarks.canned_source import (
    STREAMS,
    Spent,
    canned_ports,
    consume,
    set_up_telemetry,
)
from benchmarks.consume import RECORDS
from benchmarks.handlers import TIMES, batches
from benchmarks.pages import LAYOUTS, Layout
from benchmarks.report import Report
from kinesumer import Start
from kinesumer.blocking import Kinesumer
from kinesumer.blocking.portal import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable

CROSSINGS = 5_000


def new_client(layout: Layout) -> Kinesumer:
    """Return a client that reads prepared pages."""
    return Kinesumer("benchmark", _ports=canned_ports(layout))


def by_record(layout: Layout, records: int) -> Spent:
    """Iterate over records. The clock starts after the first record."""
    with new_client(layout) as client:
        taken = client.consume(STREAMS, start=Start.TRIM_HORIZON)
        next(taken)
        began = time.process_time()
        for _ in itertools.islice(taken, records):
            pass
        return Spent(records, time.process_time() - began)


def by_batch(layout: Layout, records: int) -> Spent:
    """Iterate over batches. The clock starts after the first batch."""
    count = 0
    with new_client(layout) as client:
        taken = client.consume(STREAMS, start=Start.TRIM_HORIZON).batches()
        next(taken)
        began = time.process_time()
        for batch in taken:
            count += len(batch)
            if count >= records:
                break
        return Spent(count, time.process_time() - began)


def by_crossing(_layout: Layout, _records: int) -> Spent:
    """Call an event loop in a thread, as if for each record."""
    with LoopThread(nullcontext(), lambda: None) as loop_thread:
        began = time.process_time()
        for _ in range(CROSSINGS):
            loop_thread.call(asyncio.sleep, 0)
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

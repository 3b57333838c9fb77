"""Measure ``run()`` with a handler, and compare it with ``async for``.

    python -m benchmarks.handlers [LAYOUT…]

Prints records per CPU second. Prepared GetRecords responses take the whole path:
decoding, buffer, handler, acks, commits to a store in memory, and telemetry. Each way
to consume runs three times, and its best run counts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.canned_source import (
    STREAMS,
    Spent,
    canned_ports,
    consume,
    set_up_telemetry,
)
from benchmarks.consume import RECORDS
from benchmarks.pages import LAYOUTS, Layout
from benchmarks.report import Report
from kinesumer import Kinesumer, Start

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from kinesumer import Batch, Record
    from kinesumer.handlers.handler import HandlerDefaults

    Way = Callable[[Layout, int], Any]

TIMES = 3


class Count:
    """Counts the records of handlers, and ends the run when there were enough."""

    def __init__(self, records: int) -> None:
        self.records = 0
        self.began: float | None = None
        self.spent: Spent | None = None
        self._enough = records
        self._close: Callable[[], object] = lambda: None

    async def run(
        self, layout: Layout, handler: Any, options: HandlerDefaults
    ) -> Spent:
        """Let a client call one of this object's handlers."""
        loop, ports = asyncio.get_running_loop(), canned_ports(layout)
        async with Kinesumer("benchmark", _ports=ports) as client:

            def leave() -> None:
                self._leaving = loop.create_task(client.leave())

            self._close = partial(loop.call_soon_threadsafe, leave)
            await client.run(STREAMS, handler, start=Start.TRIM_HORIZON, **options)
        assert self.spent is not None
        return self.spent

    def add(self, records: int) -> None:
        """Count records. The first call only starts the clock."""
        if self.began is None:
            self.began = time.process_time()
            return
        self.records += records
        if self.records >= self._enough and self.spent is None:
            self.spent = Spent(self.records, time.process_time() - self.began)
            self._close()

    # --- handlers ---

    async def each(self, record: Record) -> None:
        """Count a record on the event loop."""
        self.add(1)

    async def batch(self, batch: Batch) -> None:
        """Count a batch on the event loop."""
        self.add(len(batch))

    def each_in_thread(self, record: Record) -> None:
        """Count a record in a thread."""
        self.add(1)

    def batch_in_thread(self, batch: Batch) -> None:
        """Count a batch in a thread."""
        self.add(len(batch))


async def batches(layout: Layout, records: int) -> Spent:
    """Consume batches by ``async for``."""
    count, began = 0, 0.0
    async with Kinesumer("benchmark", _ports=canned_ports(layout)) as client:
        taken = client.consume(STREAMS, start=Start.TRIM_HORIZON)
        async for batch in taken.batches():
            if not began:
                began = time.process_time()
            else:
                count += len(batch)
            if count >= records:
                break
        return Spent(count, time.process_time() - began)


async def calling(layout: Layout, records: int) -> Spent:
    """Consume records by ``async for``, and await a function for each of them."""
    count = Count(records)
    async with Kinesumer("benchmark", _ports=canned_ports(layout)) as client:
        async for record in client.consume(STREAMS, start=Start.TRIM_HORIZON):
            await count.each(record)
            if count.spent is not None:
                break
    assert count.spent is not None
    return count.spent


def by(handler: str, **options: Unpack[HandlerDefaults]) -> Way:
    """Return a function that measures ``run()`` with a handler of Count."""

    def way(layout: Layout, records: int) -> Any:
        count = Count(records)
        return count.run(layout, getattr(count, handler), options)

    return way


PLAIN: dict[str, Way] = {
    "async for record": consume,
    "async for record: await handler(record)": calling,
    "async for batch": batches,
}
# For each way: the plain way that it is compared to, and the least share of that way's
# speed that it should reach.
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

"""Simulate how long a backlog takes over links of several speeds.

    python -m benchmarks.slow_links

A client reads 14 shards with 10 MB each. Kinesis answers with up to 10 MB, and a
request times out after 30 s. "window" is the library's rule. "all" and "one" request as
many bytes as memory permits, or one page at a time.
"""

from __future__ import annotations

from benchmarks.report import Report
from kinesumer.core.congestion import FULL_PAGE_BYTES, CongestionWindow
from tests.support.links import Crowd
from tests.support.world import World, in_virtual_time

MEGABYTE = 1_000_000
RATES = (0.2, 1.0, 4.0, 1000.0)
SHARDS, RECORDS, RECORD_BYTES = 14, 100, 100_000
PATIENCE_SECONDS = 3600.0
BUDGET_BYTES = 1 << 30


class FixedWindow(CongestionWindow):
    """A window that never changes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size

    def answered(self, answer_bytes: int, seconds: float, in_flight: int) -> None:
        """Keep the size."""

    def timed_out(self, began: float, now: float, in_flight: int) -> None:
        """Keep the size."""

    def restart(self) -> None:
        """Keep the size."""


RULES = {"window": 0, "all": BUDGET_BYTES, "one": FULL_PAGE_BYTES}


def main() -> None:
    """Print a table for each speed."""
    for rate in RATES:
        report = Report(f"{SHARDS} shards of 10 MB over {rate} MB a second")
        for rule, size in RULES.items():
            in_virtual_time(_read)(report, rule, size, rate)
        report.print()


async def _read(
    world: World, report: Report, rule: str, size: int, rate: float
) -> None:
    crowd = Crowd(world, SHARDS, rate * MEGABYTE, BUDGET_BYTES)
    if size:
        crowd.buffer.window = FixedWindow(size)
    crowd.put(RECORD_BYTES, RECORDS)
    began = world.clock.now()
    try:
        await crowd.until(RECORDS, PATIENCE_SECONDS)
        took = f"{world.clock.now() - began:.1f} s"
    except TimeoutError:
        took = f"not in {PATIENCE_SECONDS:.0f} s"
    report.note(rule, f"{took}, {crowd.source.late} answers timed out")
    await crowd.end()


if __name__ == "__main__":
    main()

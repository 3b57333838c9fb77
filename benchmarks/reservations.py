"""Simulate the memory and the speed of a client that reads many shards.

    python -m benchmarks.reservations

In the first part each of 2,000 shards has one small record, and the link is fast. In
the second part each of 50 shards has 10 MB. "budget" is the library's default limit,
and "no limit" lets each reader request a page at once. This prints how long it takes
until all records are received, and the most memory for pages, reserved or used.
``benchmarks.with_constants`` with ``consuming.read_place.PARTIAL_PAGE_BYTES`` shows
other sizes of a first reservation.
"""

from __future__ import annotations

from benchmarks.report import Report
from kinesumer.config import Config
from kinesumer.core.congestion import CongestionWindow
from tests.support.links import Crowd
from tests.support.world import World, in_virtual_time

MIB = 1 << 20
RULES = {"budget": Config().buffer_bytes, "no limit": 1 << 40}
LINK_BYTES_PER_SECOND = 100_000_000.0
PATIENCE_SECONDS = 600.0


class NoWindow(CongestionWindow):
    """A window that is never full."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def main() -> None:
    """Print a table for each part."""
    for shards, record_bytes, records in ((2_000, 100, 1), (50, 100_000, 100)):
        report = Report(f"{shards:,} shards with {records * record_bytes:,} bytes each")
        for rule, budget in RULES.items():
            in_virtual_time(_read)(report, rule, budget, shards, record_bytes, records)
        report.print()


async def _read(
    world: World,
    report: Report,
    rule: str,
    budget: int,
    shards: int,
    record_bytes: int,
    records: int,
) -> None:
    crowd = Crowd(world, shards, LINK_BYTES_PER_SECOND, budget)
    if rule == "no limit":
        crowd.buffer.window = NoWindow(budget)
    crowd.put(record_bytes, records)
    began = world.clock.now()
    await crowd.until(records, PATIENCE_SECONDS)
    took, most = world.clock.now() - began, crowd.most_used / MIB
    report.note(rule, f"{took:.1f} s, at most {most:,.0f} MiB")
    await crowd.end()


if __name__ == "__main__":
    main()

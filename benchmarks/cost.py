"""Compare the DynamoDB units that a fleet consumes with the documented formula.

    python -m benchmarks.cost

A fleet of 3 clients and 16 shards runs in processes over HTTP, and the embedded AWS
counts the units. A fleet of 100 clients and 1,000 shards runs in memory and in virtual
time. N clients with a heartbeat each H seconds consume 60 N / H write units a minute.
If all S shards are active, commits (one each 5 s) add 12 S, but at most 48,000 for one
stream. A heartbeat consumes a unit for each started KB of the client's row, which
contains the streams' ARNs. So a client of some to fifty streams, with ARNs of 66
letters, runs in memory with two assignors.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks.fleet import fleet, producing
from benchmarks.report import Report
from kinesumer import Config, Stream
from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support import world

if TYPE_CHECKING:
    from kinesumer.testing import EmbeddedAws

SLACK = 1.05
READS = {(100, 1000): 814}  # expected read units a minute, by clients and shards
HEARTBEAT = Config().heartbeat_interval_seconds
SETTLE_SECONDS = 15.0
# Both windows are multiples of the intervals of heartbeats and commits.
WINDOW_SECONDS = 40.0
VIRTUAL_SECONDS = 120.0
STREAM_COUNTS = (1, 5, 8, 10, 20, 50)
ARN_LETTERS = 66


class Bill(NamedTuple):
    """The units of DynamoDB that were consumed, and the number of requests."""

    write_units: float
    read_units: float
    requests: float

    def a_minute(self, before: Bill, seconds: float) -> Bill:
        """Return the use since an earlier bill, per minute."""
        pairs = zip(self, before, strict=True)
        return Bill(*(60 * (now - then) / seconds for now, then in pairs))


class HeartbeatCost(NamedTuple):
    """The units that a client's heartbeats consume, with or without a load."""

    units: float
    has_load: bool


def main() -> None:
    """Print a table for each fleet."""
    report_on(3, 16, *over_http(3, 16))
    report_on(100, 1000, *in_memory(100, 1000))
    report_on_streams()


def report_on(clients: int, shards: int, active: Bill, idle: Bill) -> None:
    """Print the measured units of a fleet, and those of the formula."""
    report = Report(f"{clients} clients × {shards:,} shards: DynamoDB a minute")
    beats = 60 * clients / HEARTBEAT
    for name, bill, formula in (
        ("all active", active, beats + 12 * shards),
        ("idle", idle, beats),
    ):
        report.at_most(f"{name}, write units", bill.write_units, SLACK * formula)
        report.note(f"{name}, formula", f"{formula:,.4g}")
        reads = READS.get((clients, shards)) if bill is active else None
        aim = None if reads is None else SLACK * reads
        report.at_most(f"{name}, read units", bill.read_units, aim)
        report.note(f"{name}, requests", f"{bill.requests:,.4g}")
    report.print()


def report_on_streams() -> None:
    """Print what one client's heartbeats cost, by its number of streams."""
    report = Report("one client, 2 shards a stream: write units of a heartbeat")
    for streams in STREAM_COUNTS:
        for assignor in ("range", "load"):
            loop = VirtualLoop(random.Random(1))
            cost = loop.run(World(loop, 2, streams).measure_heartbeats(assignor))
            text = f"{cost.units:.2f}" + ("" if cost.has_load else ", without a load")
            report.note(f"{streams} streams, {assignor}", text)
    report.print()


# --- over HTTP, in real time ----------------------------------------------------


def over_http(clients: int, shards: int) -> tuple[Bill, Bill]:
    """Return the use per minute while all shards are active, and while none is."""
    found = []
    with fleet() as made:
        streams = ["orders", "payments"]
        for stream in streams:
            made.aws.create_stream(stream, shards=shards // 2)
        for _ in range(clients):
            made.start("app", ",".join(streams), "each")
        for active in (True, False):
            with producing(made.aws, streams, 10 * shards) if active else nullcontext():
                time.sleep(SETTLE_SECONDS)
                before = billed(made.aws)
                time.sleep(WINDOW_SECONDS)
                found.append(billed(made.aws).a_minute(before, WINDOW_SECONDS))
    return found[0], found[1]


def billed(aws: EmbeddedAws) -> Bill:
    """Return what all clients have used of DynamoDB so far."""
    counts = [c for c in aws.journal.counts() if c.service == "dynamodb"]
    return Bill(
        sum(c.write_units for c in counts),
        sum(c.read_units for c in counts),
        sum(c.requests for c in counts),
    )


# --- in memory, in virtual time -------------------------------------------------


def in_memory(clients: int, shards: int) -> tuple[Bill, Bill]:
    """Return the use per minute while all shards are active, and while none is."""
    loop = VirtualLoop(random.Random(1))
    return loop.run(World(loop, shards).measure(clients))


class World(world.World):
    """A store, some streams, and clients that consume them."""

    def __init__(self, loop: VirtualLoop, shards: int, streams: int = 1) -> None:
        super().__init__(loop)
        first = self.kinesis.create_stream("orders", shards)
        letters = ARN_LETTERS - len(first.arn) + len("orders")
        names = [f"orders-{n:02}".ljust(letters, "x") for n in range(1, streams)]
        others = [self.kinesis.create_stream(name, shards) for name in names]
        self.streams = {"orders": first, **dict(zip(names, others, strict=True))}

    async def measure(self: Self, clients: int) -> tuple[Bill, Bill]:
        """Return the use per minute while all shards are active, then while none is."""
        for number in range(clients):
            self._start(f"client-{number:03}")
        producer = asyncio.ensure_future(self._produce())
        active = await self._window()
        producer.cancel()
        return active, await self._window()

    async def measure_heartbeats(self, assignor: Any) -> HeartbeatCost:
        """Return the units of one client's heartbeats once it has measured its load."""
        self._start("client-000", assignor)
        producer = asyncio.ensure_future(self._produce())
        await asyncio.sleep(2 * SETTLE_SECONDS)
        producer.cancel()
        bill = await self._window()
        [row] = self.table.rows(f"member#{world.APP}")
        return HeartbeatCost(bill.write_units * HEARTBEAT / 60, "load" in row)

    async def _window(self) -> Bill:
        await asyncio.sleep(2 * SETTLE_SECONDS)
        before = self._billed()
        await asyncio.sleep(VIRTUAL_SECONDS)
        return self._billed().a_minute(before, VIRTUAL_SECONDS)

    def _billed(self) -> Bill:
        usage = self.table.usage
        return Bill(usage.write_units, usage.read_units, usage.requests.total())

    async def _produce(self) -> None:
        while True:
            for name, stream in self.streams.items():
                for shard in stream.open:
                    self.put("x", stream=name, hash_key=shard.shard.first_hash)
            await asyncio.sleep(2.5)

    def _start(self, client_id: str, assignor: Any = "range") -> None:
        # Read rarely to save time: reads don't use the state store.
        streams = [Stream(n, min_read_interval_seconds=2.5) for n in self.streams]
        self.client(client_id, *streams, assignor=assignor)


if __name__ == "__main__":
    main()

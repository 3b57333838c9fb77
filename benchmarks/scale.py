"""Simulate a large fleet through starts, restarts and a doubling of its stream.

    python -m benchmarks.scale [--shards 10000] [--clients 200] [EVENT…]

The library's clients run in virtual time, with a state store and a Kinesis in memory
that answer after 10 ms. Both have AWS's limits: 1,000 write units and 3,000 read units
a second for each partition key, five reads a second for each shard, and 20 calls of
DescribeStreamSummary a second. All shards receive records. The clients read each shard
only every five seconds, to save CPU time. The events are:

- ``start``: all clients start at once, on an empty table. It comes before all others.
- ``restart``: all clients leave at once, and their successors start five seconds later.
- ``crash``: the same, but all clients are killed.
- ``roll``: a rolling restart of a quarter of the clients at a time, new clients first.
- ``double``: all shards are split at once.

This prints the calls and units of each event, until every shard is read again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from benchmarks.report import Report
from kinesumer import Kinesumer
from kinesumer.errors import SourceThrottledError, StoreThrottledError
from kinesumer.model.streams import Start, Stream
from kinesumer.testing.kinesis.requests import ShardIterator
from kinesumer.testing.memory import (
    MemoryKinesis,
    MemorySource,
    MemoryStore,
    memory_ports,
)
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.run import reduce_logging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.rows import Key, Row
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import Reservation, Write, WriteResult
    from kinesumer.testing.simulation.machine import Machine

T = TypeVar("T")

STREAM = "orders"
LATENCY_SECONDS = 0.01
# AWS's limits for each second.
PARTITION_WRITE_UNITS, PARTITION_READ_UNITS = 1_000, 3_000
DESCRIPTIONS = 20
LISTING_SHARDS = 1_000  # shards of one page of ListShards
RECORD_SECONDS = 20.0  # time between two records of a shard
READ_SECONDS = 5.0  # time between two reads of a shard, to save CPU time
SETTLE_SECONDS = 60.0
# The share of the clients that a rolling restart replaces at a time, and the time until
# the next ones.
ROLLED_SHARE, ROLLING_SECONDS = 0.25, 40.0
BOOT_SECONDS = 5.0  # from a process's end to its successor's start
PATIENCE_SECONDS = 1_200.0


class Usage:
    """The calls and units since the last ``clear()``, in total and for each second."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.clear()

    def clear(self) -> None:
        """Begin to count again."""
        self.total: Counter[str] = Counter()
        self.by_second: defaultdict[int, Counter[str]] = defaultdict(Counter)

    @property
    def now(self) -> Counter[str]:
        """The counts of the present second."""
        return self.by_second[int(self._loop.real)]

    def count(self, what: str, amount: float = 1) -> None:
        """Count something."""
        self.total[what] += amount  # type: ignore[assignment]
        self.now[what] += amount  # type: ignore[assignment]

    def most(self, what: str) -> float:
        """Return the greatest sum of a second."""
        return max(second[what] for second in self.by_second.values())


class LimitedStore:
    """The state store that one client uses."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._store, self._usage = fleet.store, fleet.usage

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row."""
        return await self._read(
            key.pk, lambda: self._store.get_now(key, consistent=consistent)
        )

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return the rows of a partition key."""
        query = self._store.query_now
        return await self._read(
            pk, lambda: query(pk, first=first, last=last, consistent=consistent)
        )

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return keys from the index."""
        return await self._read(
            pk, lambda: self._store.not_updated_since_now(pk, moment)
        )

    async def verify(self) -> str:
        """Return the table's id."""
        await asyncio.sleep(LATENCY_SECONDS)
        return self._store.verify_now()

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write. Raises StoreThrottledError."""
        return await self._call(
            write.key.pk,
            lambda: self._store.write_now(write),
            "write units",
            PARTITION_WRITE_UNITS,
        )

    async def _read(self, pk: str, read: Callable[[], T]) -> T:
        return await self._call(pk, read, "read units", PARTITION_READ_UNITS)

    async def _call(self, pk: str, call: Callable[[], T], what: str, limit: int) -> T:
        """Make a call after half of the latency, unless its partition is too busy."""
        await asyncio.sleep(LATENCY_SECONDS / 2)
        # Each kind of rows has one partition key, since there is one app and stream.
        units = f"{what}, {pk.partition('#')[0]} rows"
        if self._usage.now[units] >= limit:
            self._usage.count(f"throttled: {units}")
            raise StoreThrottledError("the partition allows no more for now")
        billed = self._store.usage
        before = billed.write_units + billed.read_units
        answer = call()
        used = billed.write_units + billed.read_units - before
        self._usage.count(units, used)
        self._usage.count(what, used)
        await asyncio.sleep(LATENCY_SECONDS / 2)
        return answer


class LimitedSource(MemorySource):
    """The stream that one client reads."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.kinesis, STREAM)
        self._fleet = fleet

    async def describe(self) -> StreamInfo:
        """Return the stream. Raises SourceThrottledError."""
        await asyncio.sleep(LATENCY_SECONDS)
        usage = self._fleet.usage
        if usage.now["DescribeStreamSummary"] >= DESCRIPTIONS:
            usage.count("throttled: DescribeStreamSummary")
            raise SourceThrottledError("DescribeStreamSummary is throttled")
        self._count("DescribeStreamSummary")
        return self.describe_now()

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shards, for the price of all pages."""
        shards = self.list_shards_now()
        pages = -(-len(shards) // LISTING_SHARDS)
        self._count("ListShards", pages)
        await asyncio.sleep(LATENCY_SECONDS * pages)
        return shards

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator."""
        await asyncio.sleep(LATENCY_SECONDS)
        self._count("GetShardIterator")
        return self.get_iterator_now(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return a page, and note that its shard was read."""
        await asyncio.sleep(LATENCY_SECONDS)
        self._count("GetRecords")
        page = self.get_records_now(iterator, limit)
        self._fleet.unread.discard(ShardIterator.decode(iterator).shard_id)
        return page

    def _count(self, operation: str, calls: int = 1) -> None:
        self._fleet.usage.count(operation, calls)
        self._fleet.usage.count("all calls of Kinesis", calls)


class Client:
    """One client process."""

    def __init__(self, fleet: Fleet, client_id: str) -> None:
        self.client_id = client_id
        self.machine: Machine = fleet.loop.machine(client_id)
        self._fleet = fleet

        async def open_source(stream: Stream) -> LimitedSource:
            return LimitedSource(fleet)

        ports = memory_ports(
            self.machine,
            random.Random(client_id),
            lambda: f"id-{next(fleet.ids)}",
            LimitedStore(fleet),
            open_source,
        )
        self._client = Kinesumer("app", client_id=client_id, _ports=ports)
        self.task = fleet.loop.spawn(self.machine, self._consume())

    def leave(self) -> None:
        """Let the client leave, as after SIGTERM."""
        self._fleet.loop.spawn(self.machine, self._client.leave())

    def kill(self) -> None:
        """End the process at once."""
        self.machine.kill()

    async def _consume(self) -> None:
        fleet = self._fleet
        stream = Stream(STREAM, min_read_interval_seconds=fleet.read_seconds)
        async with self._client:
            async for _ in self._client.consume(stream, start=Start.TRIM_HORIZON):
                pass


class Fleet:
    """The clients of an app, and the services that they use."""

    def __init__(self, loop: VirtualLoop, shards: int, clients: int) -> None:
        self.loop = loop
        self.store = MemoryStore(loop.services)
        self.kinesis = MemoryKinesis(loop.services)
        self.stream = self.kinesis.create_stream(STREAM, shards)
        self.usage = Usage(loop)
        self.ids = count()
        self.read_seconds = READ_SECONDS
        # The shards that no client has read since the event.
        self.unread: set[str] = set()
        self.clients: list[Client] = []
        self._size = clients
        self._started = count()

    async def produce(self) -> None:
        """Put records into all shards, one shard after the other."""
        while True:
            shards = list(self.stream.open)
            for first in range(0, len(shards), 100):
                some = shards[first : first + 100]
                for shard in some:
                    if not shard.closed:
                        self.kinesis.put(STREAM, b"x", "", shard.shard.first_hash)
                await asyncio.sleep(RECORD_SECONDS * len(some) / len(shards))

    def grow(self, number: int) -> None:
        """Start so many clients."""
        self.clients += [
            Client(self, f"client-{next(self._started):04}") for _ in range(number)
        ]

    # --- events -----------------------------------------------------------------------

    async def start(self) -> None:
        """Start all clients at once, on an empty table."""
        self._forget_reads()
        self.grow(self._size)

    async def restart(self) -> None:
        """Let all clients leave at once, and start their successors."""
        for client in self.clients:
            client.leave()
        await asyncio.wait([client.task for client in self.clients])
        await self._succeed()

    async def crash(self) -> None:
        """Kill all clients at once, and start their successors."""
        for client in self.clients:
            client.kill()
        await self._succeed()

    async def _succeed(self) -> None:
        self.clients = []
        self._forget_reads()
        await asyncio.sleep(BOOT_SECONDS)
        self.grow(self._size)

    def _forget_reads(self) -> None:
        self.unread = {shard.shard.shard_id for shard in self.stream.open}

    async def roll(self) -> None:
        """Replace some clients at a time, new ones first."""
        old = list(self.clients)
        step = math.ceil(ROLLED_SHARE * len(old))
        for begin in range(0, len(old), step):
            leaving = old[begin : begin + step]
            self.grow(len(leaving))
            await asyncio.sleep(BOOT_SECONDS)
            for client in leaving:
                client.leave()
                self.clients.remove(client)
            await asyncio.sleep(ROLLING_SECONDS - BOOT_SECONDS)
        self._forget_reads()

    async def double(self) -> None:
        """Split all shards at once."""
        for shard in list(self.stream.open):
            self.kinesis.split(STREAM, shard.shard.shard_id)
        self._forget_reads()


EVENTS: dict[str, Callable[[Fleet], Awaitable[None]]] = {
    "start": Fleet.start,
    "restart": Fleet.restart,
    "crash": Fleet.crash,
    "roll": Fleet.roll,
    "double": Fleet.double,
}


async def measure(fleet: Fleet, events: Iterable[str]) -> None:
    """Run the fleet through the events, and print a table for each."""
    asyncio.ensure_future(fleet.produce())  # noqa: RUF006
    for name in ["start", *(name for name in events if name != "start")]:
        fleet.usage.clear()
        began, cpu = fleet.loop.real, time.process_time()
        await EVENTS[name](fleet)
        while fleet.unread and fleet.loop.real < began + PATIENCE_SECONDS:
            await asyncio.sleep(0.1)
        seconds = fleet.loop.real - began
        report(fleet, name, seconds, time.process_time() - cpu)
        await asyncio.sleep(SETTLE_SECONDS)


def report(fleet: Fleet, name: str, seconds: float, cpu: float) -> None:
    """Print what an event used until each shard was read."""
    shards, clients = len(fleet.stream.open), len(fleet.clients)
    made = Report(f"{name}: {shards:,} shards, {clients} clients")
    made.note("every shard read after", f"{seconds:,.1f} s")
    if fleet.unread:
        made.note("shards that were not read", f"{len(fleet.unread):,}")
    usage = fleet.usage
    for what, total in sorted(usage.total.items()):
        most = usage.most(what)
        made.note(what, f"{total:,.0f}, at most {most:,.0f} in a second")
    made.note("CPU time of the simulation", f"{cpu:,.0f} s")
    made.print()


def main() -> None:
    """Print a table for each event."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("events", nargs="*", choices=[[], *EVENTS])
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    given = parser.parse_args()
    reduce_logging()
    loop = VirtualLoop(random.Random(1))
    fleet = Fleet(loop, given.shards, given.clients)
    loop.run(measure(fleet, given.events or EVENTS))


if __name__ == "__main__":
    main()

"""Puts records into a stream: full requests, a few at once, only what failed again.

Kinesis refuses records one by one, mostly because a shard takes no more than 1 MB and
1,000 records a second. What a request had refused, it tries again after a pause, and
the number of requests at once halves: a stream that is full slows its writer down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

    from kinesumer.wire.put_records import Entry, PutResult

REQUEST_RECORDS = 500
REQUEST_BYTES = 5 << 20
QUEUED_BYTES = 10 << 20
"""What may wait for its request: the next rows are read meanwhile."""
FEWEST, FIRST, MOST = 1.0, 4.0, 8.0
"""Requests at once: at least, at first, at most."""
BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 5.0
GIVE_UP_SECONDS = 300.0
"""Without one record taken for so long, the batch fails."""


class Unit(NamedTuple):
    """A record to be put."""

    entry: Entry
    size: int
    rows: int = 1
    """More than one if it is an aggregate."""
    lane: Hashable = None
    """Units of one lane are put one after the other, if order is asked for."""
    origin: object = None
    """What its owner knows it by, when it comes back from ``Putter.untaken()``."""


class Counts(NamedTuple):
    """What a putter has done."""

    rows: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    retried: int = 0
    """Records that were sent once more, each time that they were."""


class Queue:
    """Units in no order but their own: what came first goes first."""

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._units)

    def add(self, unit: Unit) -> None:
        """Add a unit at the end."""
        self._units.append(unit)
        self.bytes += unit.size

    def take(self, *, full: bool) -> list[Unit]:
        """Return the next request, or nothing if it has to be full and isn't."""
        if full and len(self._units) < REQUEST_RECORDS and self.bytes < REQUEST_BYTES:
            return []
        taken: list[Unit] = []
        size = 0
        while self._units and len(taken) < REQUEST_RECORDS:
            if taken and size + self._units[0].size > REQUEST_BYTES:
                break
            taken.append(self._units.popleft())
            size += taken[-1].size
        self.bytes -= size
        return taken

    def taken(self, units: Iterable[Unit]) -> None:
        """Note that Kinesis has taken these."""

    def waiting(self) -> list[Unit]:
        """Return what hasn't left."""
        return list(self._units)


class OrderedQueue(Queue):
    """Units by lane: the next one leaves when Kinesis has taken the one before.

    A request has one unit of a lane: PutRecords keeps no order among its records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[Hashable, deque[Unit]] = {}
        """Those that have a unit under way or in the queue above, and what waits."""
        self._waiting = 0

    def __len__(self) -> int:
        return super().__len__() + self._waiting

    def add(self, unit: Unit) -> None:
        """Add a unit at the end of its lane."""
        if unit.lane in self._lanes:
            self._lanes[unit.lane].append(unit)
            self._waiting += 1
            self.bytes += unit.size
        else:
            self._lanes[unit.lane] = deque()
            super().add(unit)

    def taken(self, units: Iterable[Unit]) -> None:
        """Let the next of each lane go."""
        for unit in units:
            lane = self._lanes[unit.lane]
            if lane:
                self._units.append(lane.popleft())
                self._waiting -= 1
            else:
                del self._lanes[unit.lane]

    def waiting(self) -> list[Unit]:
        """Return what hasn't left."""
        lanes = self._lanes.values()
        return super().waiting() + [unit for lane in lanes for unit in lane]


class Putter:
    """Puts what it is given; belongs to one event loop."""

    def __init__(
        self,
        put: Callable[[Sequence[Entry]], Awaitable[Sequence[PutResult]]],
        *,
        ordered: bool,
        chance: random.Random,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._put = put
        self._queue = OrderedQueue() if ordered else Queue()
        self._chance = chance
        self._at_once = FIRST
        self._give_up_seconds = give_up_seconds
        self._flights: set[asyncio.Task[None]] = set()
        self._untaken: dict[object, list[Unit]] = {}
        """What each flight has under way and Kinesis hasn't taken."""
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._last_taken = asyncio.get_running_loop().time()
        self.counts = Counts()

    async def add(self, units: Iterable[Unit]) -> None:
        """Take units over; return when there is room for more."""
        for unit in units:
            self._queue.add(unit)
        self._launch(full=True)
        while self._queue.bytes > QUEUED_BYTES and self._failure is None:
            self._launch(full=False)
            await self._change()
        await self._require_success()

    async def send(self) -> None:
        """Send what waits, in requests that needn't be full; don't wait for answers."""
        self._launch(full=False)
        await self._require_success()

    async def finish(self) -> Counts:
        """Return when Kinesis has taken everything."""
        self._launch(full=False)
        while (self._flights or len(self._queue)) and self._failure is None:
            await self._change()
            self._launch(full=False)
        await self._require_success()
        return self.counts

    async def abandon(self) -> None:
        """End the requests that are under way, whatever became of them."""
        for flight in self._flights:
            flight.cancel()
        await asyncio.gather(*self._flights, return_exceptions=True)

    def untaken(self) -> list[Unit]:
        """Return what Kinesis hasn't said to have taken: after a failure, what is left.

        Of requests without an answer it may have taken some.
        """
        flying = [unit for units in self._untaken.values() for unit in units]
        return flying + self._queue.waiting()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _require_success(self) -> None:
        if self._failure is not None:
            await self.abandon()
            raise self._failure

    def _launch(self, *, full: bool) -> None:
        while len(self._flights) < int(self._at_once) and self._failure is None:
            units = self._queue.take(full=full)
            if not units:
                return
            key = object()
            self._untaken[key] = units
            flight = asyncio.create_task(self._fly(key))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled() and flight.exception() is not None:
            self._failure = self._failure or flight.exception()
        self._launch(full=True)
        self._changed.set()

    async def _fly(self, key: object) -> None:
        """Put units, and those that failed again, until Kinesis has taken them all."""
        began = asyncio.get_running_loop().time()
        tries, units = 0, self._untaken[key]
        while True:
            failed, reason = await self._attempt(units)
            if not failed:
                del self._untaken[key]
                self._at_once = min(MOST, self._at_once + 1 / self._at_once)
                return
            self._untaken[key] = failed
            self._at_once = max(FEWEST, self._at_once / 2)
            tries = tries + 1 if len(failed) == len(units) else 0
            self._require_progress(began, reason)
            limit = min(BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS * 2 ** min(tries, 10))
            await asyncio.sleep(limit * (0.2 + 0.8 * self._chance.random()))
            units = failed

    async def _attempt(self, units: list[Unit]) -> tuple[list[Unit], str]:
        """Put units once; return those that failed, and why the last one did."""
        try:
            results = await self._put([unit.entry for unit in units])
        except SourceUnavailableError as error:
            self._count([], len(units))
            return units, str(error)
        failed, taken = [], []
        reason = ""
        for unit, result in zip(units, results, strict=True):
            if result.error_code is None:
                taken.append(unit)
            else:
                failed.append(unit)
                reason = f"{result.error_code}: {result.error_message}"
        self._count(taken, len(failed))
        if taken:
            self._last_taken = asyncio.get_running_loop().time()
            self._queue.taken(taken)
            self._launch(full=True)
            self._changed.set()
        return failed, reason

    def _count(self, taken: Sequence[Unit], failed: int) -> None:
        counts = self.counts
        self.counts = Counts(
            counts.rows + sum(unit.rows for unit in taken),
            counts.records + len(taken),
            counts.bytes + sum(unit.size for unit in taken),
            counts.requests + 1,
            counts.retried + failed,
        )

    def _require_progress(self, began: float, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        idle = now - max(began, self._last_taken)
        if idle > self._give_up_seconds:
            raise SourceUnavailableError(
                f"Kinesis has taken no record for {idle:.0f} s, at last because of "
                f"{reason}; does the stream have enough shards?"
            )

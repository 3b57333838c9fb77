"""Put records into a stream: full requests, some in parallel, and retry what fails.

Kinesis rejects single records, mostly because a shard accepts at most 1 MB and 1,000
records a second. A request retries its rejected records after a wait, and the number of
parallel requests halves: a full stream slows the producer down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.backoff import backoff_seconds
from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

    from kinesumer.wire.put_records import Entry, PutResult

REQUEST_RECORDS = 500
REQUEST_BYTES = 5 << 20
QUEUED_BYTES = 10 << 20
"""Maximum size of the records that wait for a request."""
FEWEST, FIRST, MOST = 1.0, 4.0, 8.0
"""Requests at once: at least, at first, at most."""
BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 5.0
GIVE_UP_SECONDS = 300.0
"""If Kinesis accepts no record for this long, the batch fails."""


class PendingRecord(NamedTuple):
    """A record to put."""

    entry: Entry
    size: int
    rows: int = 1
    """More than one if it is an aggregate."""
    order_key: Hashable = None
    """Records of one key are put one after the other, if order is asked for."""
    origin: object = None
    """What the caller identifies it by: see ``unacknowledged()``."""


class PutCounts(NamedTuple):
    """What a producer has sent."""

    rows: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    retried: int = 0
    """Records that were sent once more, each time that they were."""


class Queue:
    """Records in the order in which they were added."""

    def __init__(self) -> None:
        self._units: deque[PendingRecord] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._units)

    def add(self, unit: PendingRecord) -> None:
        """Add a unit at the end."""
        self._units.append(unit)
        self.bytes += unit.size

    def take(self, *, full: bool) -> list[PendingRecord]:
        """Return the next request, or nothing if it has to be full and isn't."""
        if full and len(self._units) < REQUEST_RECORDS and self.bytes < REQUEST_BYTES:
            return []
        taken: list[PendingRecord] = []
        size = 0
        while self._units and len(taken) < REQUEST_RECORDS:
            if taken and size + self._units[0].size > REQUEST_BYTES:
                break
            taken.append(self._units.popleft())
            size += taken[-1].size
        self.bytes -= size
        return taken

    def taken(self, units: Iterable[PendingRecord]) -> None:
        """Record that Kinesis has accepted these."""

    def waiting(self) -> list[PendingRecord]:
        """Return the records that weren't sent yet."""
        return list(self._units)


class KeyOrderQueue(Queue):
    """Records by key: each is sent when Kinesis has accepted the one before of its key.

    A request has one record per key: PutRecords doesn't keep the order of its records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._backlogs: dict[Hashable, deque[PendingRecord]] = {}
        """Those that have a unit under way or in the queue above, and what waits."""
        self._waiting = 0

    def __len__(self) -> int:
        return super().__len__() + self._waiting

    def add(self, unit: PendingRecord) -> None:
        """Add a unit at the end of its backlog."""
        if unit.order_key in self._backlogs:
            self._backlogs[unit.order_key].append(unit)
            self._waiting += 1
            self.bytes += unit.size
        else:
            self._backlogs[unit.order_key] = deque()
            super().add(unit)

    def taken(self, units: Iterable[PendingRecord]) -> None:
        """Let the next of each backlog go."""
        for unit in units:
            backlog = self._backlogs[unit.order_key]
            if backlog:
                self._units.append(backlog.popleft())
                self._waiting -= 1
            else:
                del self._backlogs[unit.order_key]

    def waiting(self) -> list[PendingRecord]:
        """Return the records that weren't sent yet."""
        backlogs = self._backlogs.values()
        return super().waiting() + [unit for backlog in backlogs for unit in backlog]


class RecordProducer:
    """Puts records; belongs to one event loop."""

    def __init__(
        self,
        put: Callable[[Sequence[Entry]], Awaitable[Sequence[PutResult]]],
        *,
        ordered: bool,
        chance: random.Random,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._put = put
        self._queue = KeyOrderQueue() if ordered else Queue()
        self._chance = chance
        self._at_once = FIRST
        self._give_up_seconds = give_up_seconds
        self._requests: set[asyncio.Task[None]] = set()
        self._unacknowledged: dict[object, list[PendingRecord]] = {}
        """What each request has under way and Kinesis hasn't taken."""
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._last_taken = asyncio.get_running_loop().time()
        self.counts = PutCounts()

    async def add(self, units: Iterable[PendingRecord]) -> None:
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

    async def finish(self) -> PutCounts:
        """Return when Kinesis has accepted all records."""
        self._launch(full=False)
        while (self._requests or len(self._queue)) and self._failure is None:
            await self._change()
            self._launch(full=False)
        await self._require_success()
        return self.counts

    async def abandon(self) -> None:
        """Cancel the requests that are under way."""
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    def unacknowledged(self) -> list[PendingRecord]:
        """Return the records that Kinesis hasn't confirmed, for use after a failure.

        It may have accepted some records of requests without an answer.
        """
        flying = [unit for units in self._unacknowledged.values() for unit in units]
        return flying + self._queue.waiting()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _require_success(self) -> None:
        if self._failure is not None:
            await self.abandon()
            raise self._failure

    def _launch(self, *, full: bool) -> None:
        while len(self._requests) < int(self._at_once) and self._failure is None:
            units = self._queue.take(full=full)
            if not units:
                return
            key = object()
            self._unacknowledged[key] = units
            request = asyncio.create_task(self._send_until_taken(key))
            self._requests.add(request)
            request.add_done_callback(self._on_sent)

    def _on_sent(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        if not request.cancelled() and request.exception() is not None:
            self._failure = self._failure or request.exception()
        self._launch(full=True)
        self._changed.set()

    async def _send_until_taken(self, key: object) -> None:
        """Send records, and again those that fail, until Kinesis has accepted all."""
        began = asyncio.get_running_loop().time()
        tries, units = 0, self._unacknowledged[key]
        while True:
            failed, reason = await self._attempt(units)
            if not failed:
                del self._unacknowledged[key]
                self._at_once = min(MOST, self._at_once + 1 / self._at_once)
                return
            self._unacknowledged[key] = failed
            self._at_once = max(FEWEST, self._at_once / 2)
            tries = tries + 1 if len(failed) == len(units) else 0
            self._require_progress(began, reason)
            jitter = self._chance.random()
            await asyncio.sleep(
                backoff_seconds(
                    tries + 1, BACKOFF_SECONDS, BACKOFF_LIMIT_SECONDS, jitter
                )
            )
            units = failed

    async def _attempt(
        self, units: list[PendingRecord]
    ) -> tuple[list[PendingRecord], str]:
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

    def _count(self, taken: Sequence[PendingRecord], failed: int) -> None:
        counts = self.counts
        self.counts = PutCounts(
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
                f"Kinesis has accepted no record for {idle:.0f} s, at last because of "
                f"{reason}; does the stream have enough shards?"
            )

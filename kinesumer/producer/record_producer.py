"""Put records into a stream with parallel, full requests, and retry failed records.

Kinesis may reject single records of a request, mostly because a shard accepts at most
1,000 records and 1 MB a second. The rejected records are sent again after a wait, and
the maximum number of parallel requests is halved. In this way, an overloaded stream
slows the producer down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.backoff import backoff_seconds
from kinesumer.errors import (
    PutFailedError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.producer.aggregation import Aggregator
from kinesumer.producer.pending import PendingRecord, PutFuture
from kinesumer.producer.queue import Queue
from kinesumer.producer.reshard import Reshard
from kinesumer.telemetry.api import ProducerState, Telemetry

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from kinesumer.model.streams import Shard
    from kinesumer.wire.put_records import Entry, EntryResult

MIN_REQUESTS, FIRST_REQUESTS, MAX_REQUESTS = 1.0, 4.0, 8.0  # at once
BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 5.0
GIVE_UP_SECONDS = 300.0
LINGER_SECONDS = 0.1
MAX_BUFFER_BYTES = 64 << 20
# About the memory that a record takes beside its data and its partition key.
RECORD_COST_BYTES = 256
# A caller that adds records without a pause lets other tasks run after this much.
TURN_BYTES = 256 << 10
THROTTLED = "ProvisionedThroughputExceededException"


class PutCounts(NamedTuple):
    """The numbers of records, bytes and requests that a producer has sent."""

    rows: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    retried: int = 0  # number of times that a record was sent again


class RecordProducer:
    """Puts records into one stream. A producer belongs to one event loop.

    With an ``aggregator``, records are aggregated, and ``list_shards`` is called after
    a reshard. All records fail if Kinesis accepts none for ``give_up_seconds``, or
    denies a request. The producer can be used again after that.
    """

    stream_arn: str

    def __init__(
        self,
        put: Callable[[Sequence[Entry]], Awaitable[Sequence[EntryResult]]],
        *,
        ordered: bool,
        chance: random.Random,
        aggregator: Aggregator | None = None,
        list_shards: Callable[[], Awaitable[Sequence[Shard]]] | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
        telemetry: Telemetry | None = None,
        stream_arn: str = "",
    ) -> None:
        self._put = put
        self._ordered = ordered
        self._queue = Queue(ordered=ordered)
        self._chance = chance
        self._aggregator = aggregator
        self._list_shards = list_shards
        self._give_up_seconds = give_up_seconds
        self._linger_seconds = linger_seconds
        self._max_buffer_bytes = max_buffer_bytes
        self._telemetry, self.stream_arn = telemetry or Telemetry(), stream_arn
        self._loop = asyncio.get_running_loop()
        self._window = FIRST_REQUESTS  # maximum number of parallel requests
        self._requests: set[asyncio.Task[None]] = set()
        # For each running request, those of its records that Kinesis hasn't accepted
        # yet.
        self._unacknowledged: dict[object, list[PendingRecord]] = {}
        self._reshard: Reshard | None = None  # set after a reshard was noticed
        self._failed: list[PendingRecord] = []
        self._end: Exception | None = None
        self._changed = asyncio.Event()
        self._last_accepted_at = self._loop.time()
        self._linger: asyncio.TimerHandle | None = None
        self._sends_all = False  # whether to send requests that aren't full
        self._turn_bytes = 0
        self._number = 0  # of records added
        self.buffered_bytes: int = 0
        self.counts: PutCounts = PutCounts()

    async def add(self, entry: Entry) -> PutFuture:
        """Add a record when there is memory for it. Return its future result.

        Raise PutFailedError if earlier records have failed and no task awaits their
        results. In this case, and if the call is cancelled, the record isn't added.
        """
        size = entry.size
        cost = size + RECORD_COST_BYTES
        self._turn_bytes += cost
        if self._turn_bytes > TURN_BYTES:
            self._turn_bytes = 0
            await asyncio.sleep(0)
        if self._failed:
            self.raise_failures()
        while self.buffered_bytes >= self._max_buffer_bytes:
            self.send()
            await self._change()
            self.raise_failures()
        if self._end is not None:
            raise self._end
        if self._linger is None:
            delay = self._linger_seconds
            self._linger = self._loop.call_later(delay, self._on_linger)
        return PutFuture(*self._append(entry, size, cost))

    def send(self) -> None:
        """Send all waiting records without waiting for the answers."""
        if self._aggregator is not None:
            for record in self._aggregator.take_open():
                self._queue.add(record)
        self._sends_all = True
        self._launch()

    async def flush(self) -> PutCounts:
        """Wait until Kinesis has accepted all records that were added before.

        Raise PutFailedError if some of them have failed and no task awaits their
        results.
        """
        self.send()
        for record in self.unacknowledged():
            await record.settled()
        self.raise_failures()
        return self.counts

    async def failure(self) -> None:
        """Wait for a failure, and raise PutFailedError. Runs until it is cancelled."""
        while True:
            self.raise_failures()
            await self._change()

    def raise_failures(self) -> None:
        """Raise PutFailedError, once, for failed records that no task awaits."""
        failed, self._failed = self._failed, []
        records = [found for record in failed for found in record.failed_records()]
        if records:
            raise PutFailedError(records) from failed[0].error

    async def abandon(self, reason: Exception) -> None:
        """Cancel all requests, and let all records fail that aren't acknowledged.

        From now on, ``add()`` raises ``reason``.
        """
        self._end = reason
        if self._linger is not None:
            self._linger.cancel()
        requests = list(self._requests)
        self._fail(reason)
        await asyncio.gather(*requests, return_exceptions=True)

    def unacknowledged(self) -> list[PendingRecord]:
        """Return the records that Kinesis hasn't confirmed, in their order.

        If a request got no answer, Kinesis may still have accepted some of its records.
        """
        found = [unit for units in self._unacknowledged.values() for unit in units]
        found += self._queue.waiting()
        if self._aggregator is not None:
            found += self._aggregator.open_aggregates()
        if self._reshard is not None:
            found += self._reshard.records()
        return sorted(found, key=lambda record: record.number)

    def read_gauges(self) -> ProducerState:
        """Return the values for telemetry. Any thread may call this."""
        return ProducerState(self.stream_arn, self.buffered_bytes)

    def _append(self, entry: Entry, size: int, cost: int) -> tuple[PendingRecord, int]:
        """Append a record without waiting. Return its Kinesis record and its index."""
        self._number += 1
        self.buffered_bytes += cost
        if self._aggregator is None:
            record = PendingRecord(self._number, entry.partition_key)
            record.add(entry, size, cost)
            self._enqueue(record)
            return record, 0
        record, full = self._aggregator.add(entry, size, cost, self._number)
        if full is not None:
            self._enqueue(full)
        return record, record.rows - 1

    def _enqueue(self, record: PendingRecord) -> None:
        self._queue.add(record)
        self._launch()

    def _on_linger(self) -> None:
        self._linger = None
        self.send()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- requests ---------------------------------------------------------------------

    def _launch(self) -> None:
        while self._reshard is None and len(self._requests) < int(self._window):
            records = self._queue.take(full=not self._sends_all)
            if not records:
                self._sends_all = self._sends_all and bool(self._queue)
                return
            key = object()
            self._unacknowledged[key] = records
            self._start(self._send_until_accepted(key))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        request = asyncio.create_task(work)
        self._requests.add(request)
        request.add_done_callback(self._on_end)

    def _on_end(self, request: asyncio.Task[None]) -> None:
        error = None if request.cancelled() else request.exception()
        if request not in self._requests:
            return  # it was cancelled after a failure
        self._requests.discard(request)
        if isinstance(error, Exception):
            self._fail(error)
        elif self._reshard is not None and not self._requests:
            self._start(self._pack_again(self._reshard))
        self._launch()
        self._changed.set()

    def _fail(self, error: Exception) -> None:
        """Fail all records, and reset the producer for new ones."""
        failed = self.unacknowledged()
        for request in self._requests:
            request.cancel()
        self._requests.clear()
        self._unacknowledged.clear()
        self._queue, self._reshard = Queue(ordered=self._ordered), None
        if self._aggregator is not None:
            self._aggregator.take_open()
        self.buffered_bytes = 0
        self._last_accepted_at = self._loop.time()
        for record in failed:
            record.fail(error)
        self._failed += failed
        self._changed.set()

    async def _send_until_accepted(self, key: object) -> None:
        """Send records, and repeat failed ones, until Kinesis has accepted all."""
        began = self._loop.time()
        tries, records = 0, self._unacknowledged[key]
        while self._reshard is None:
            failed, reason = await self._attempt(records)
            self._unacknowledged[key] = failed
            if not failed:
                # This adds one parallel request after each round of requests, as in
                # TCP.
                self._window = min(MAX_REQUESTS, self._window + 1 / self._window)
                break
            self._window = max(MIN_REQUESTS, self._window / 2)
            # After a partial success, begin with the shortest wait again.
            tries = tries + 1 if len(failed) == len(records) else 0
            self._require_progress(began, reason)
            await self._back_off(tries + 1)
            records = failed
        failed = self._unacknowledged.pop(key)
        if self._reshard is not None:
            self._reshard.returned += failed

    async def _attempt(
        self, records: list[PendingRecord]
    ) -> tuple[list[PendingRecord], str]:
        """Put records once. Return the failed records and the last failure's reason."""
        try:
            with self._telemetry.measure("put", self.stream_arn):
                results = await self._put([record.encode() for record in records])
        except SourceUnavailableError as error:
            self._count([], len(records))
            if isinstance(error, SourceThrottledError):
                self._telemetry.count("throttles", self.stream_arn, service="kinesis")
            return records, str(error)
        failed, accepted = [], []
        reason = ""
        for record, result in zip(records, results, strict=True):
            if result.error_code is None:
                accepted.append((record, result))
            else:
                failed.append(record)
                reason = f"{result.error_code}: {result.error_message}"
        self._count([record for record, _ in accepted], len(failed))
        if reason.startswith(THROTTLED):
            self._telemetry.count("throttles", self.stream_arn, service="kinesis")
        if accepted:
            self._accept(accepted)
        return failed, reason

    def _accept(self, accepted: list[tuple[PendingRecord, EntryResult]]) -> None:
        self._last_accepted_at = self._loop.time()
        aggregator = self._aggregator
        for record, result in accepted:
            if aggregator and not aggregator.is_expected(record, result.shard_id):
                self._reshard = self._reshard or Reshard()
                self._reshard.misplaced.append((record, result))
            else:
                self.buffered_bytes -= record.cost
                record.accept(result)
        self._queue.release(record for record, _ in accepted)
        self._launch()
        self._changed.set()

    def _count(self, accepted: Sequence[PendingRecord], failed: int) -> None:
        counts = self.counts
        rows = sum(record.rows for record in accepted)
        size = sum(record.encode().size for record in accepted)
        self.counts = PutCounts(
            counts.rows + rows,
            counts.records + len(accepted),
            counts.bytes + size,
            counts.requests + 1,
            counts.retried + failed,
        )
        if accepted:
            self._telemetry.count("records_put", self.stream_arn, rows)
            self._telemetry.count("data_bytes_put", self.stream_arn, size)
        if failed:
            self._telemetry.count("put_retries", self.stream_arn, failed)

    def _require_progress(self, began: float, reason: str) -> None:
        idle = self._loop.time() - max(began, self._last_accepted_at)
        if idle > self._give_up_seconds:
            raise SourceUnavailableError(
                f"Kinesis has accepted no record for {idle:.0f} s, most recently "
                f"because of {reason}; does the stream have enough shards?"
            )

    async def _back_off(self, failures: int) -> None:
        jitter = self._chance.random()
        await asyncio.sleep(
            backoff_seconds(failures, BACKOFF_SECONDS, BACKOFF_LIMIT_SECONDS, jitter)
        )

    # --- reshards ---------------------------------------------------------------------

    async def _pack_again(self, reshard: Reshard) -> None:
        """Pack all waiting records for the shards that exist after a reshard."""
        assert self._list_shards is not None and self._aggregator is not None
        before = self._aggregator
        began, failures = self._loop.time(), 0
        while True:
            failures += 1
            try:
                aggregator = Aggregator(await self._list_shards())
            except SourceUnavailableError as error:
                self._require_progress(began, str(error))
            else:
                if reshard.is_listed(before, aggregator, failures):
                    break
            await self._back_off(failures)
        waiting = self._queue.waiting() + before.take_open()
        self._aggregator = aggregator
        self._queue, self._reshard = Queue(ordered=self._ordered), None
        for record, indexes in reshard.to_pack(before, aggregator, waiting):
            self.buffered_bytes -= record.cost
            if record.result is not None:
                self._uncount(len(indexes))
            entries = [(index, record.entries[index]) for index in indexes]
            record.move(
                {
                    index: self._append(e, e.size, e.size + RECORD_COST_BYTES)
                    for index, e in entries
                }
            )
        self.send()

    def _uncount(self, rows: int) -> None:
        counts = self.counts
        self.counts = counts._replace(
            rows=counts.rows - rows, retried=counts.retried + rows
        )

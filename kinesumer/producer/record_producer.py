"""Put records into a stream with parallel, full requests, and retry failed records.

Kinesis may reject single records of a request, mostly because a shard accepts at most
1,000 records and 1 MB a second. The rejected records are sent again after a wait, and
the maximum number of parallel requests is halved. In this way, an overloaded stream
slows the producer down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence

from kinesumer.errors import FailedRecord, PutFailedError, RecordRefusedError
from kinesumer.model.streams import Shard, StreamInfo
from kinesumer.producer.aggregation import Aggregator, Reshard
from kinesumer.producer.pending import PendingRecord, PutFuture, Queue
from kinesumer.producer.put_stream import (
    GIVE_UP_SECONDS,
    Patience,
    PutCounts,
    PutStream,
    PutTarget,
    find_refused,
)
from kinesumer.telemetry.api import ProducerState, Telemetry
from kinesumer.wire.put_records import Entry, EntryResult

FIRST_REQUESTS, MAX_REQUESTS = 4.0, 8.0  # at once
LINGER_SECONDS = 0.1  # the KPL waits for as long (RecordMaxBufferedTime)
# More than the requests under way: MAX_REQUESTS of REQUEST_BYTES are 40 MiB.
MAX_BUFFER_BYTES = 64 << 20
# About the memory that a record takes beside its data and its partition key.
RECORD_COST_BYTES = 256
# A caller that adds records without a pause lets other tasks run after this much.
# Chosen: at most a thousand small records, which take some milliseconds.
TURN_BYTES = 256 << 10
# A producer that should aggregate, but cannot by the stream's strategy, asks for the
# strategy this often. A switch back costs at most this time without aggregates.
STRATEGY_SECONDS = 60.0


class RecordProducer:
    """Puts records into one stream. A producer belongs to one event loop.

    With ``shards``, all that the stream has, records are aggregated, unless the stream
    distributes records by AUTO. ``info`` is the stream's description; it is read again
    when shards or refusals are unexpected.

    Kinesis refuses a whole request because of one record, such as one that is too large
    by now. That record alone fails: ``on_refused`` is called with it, or the producer
    raises PutFailedError. The others are sent again. All records fail if Kinesis takes
    none for ``give_up_seconds``, or denies a request. The producer can be used again
    after that. With ``waits_for_credentials``, time without valid credentials doesn't
    count.
    """

    stream: PutStream
    stream_arn: str

    def __init__(
        self,
        target: PutTarget,
        info: StreamInfo,
        *,
        ordered: bool,
        chance: random.Random,
        shards: Sequence[Shard] | None = None,
        on_refused: Callable[[FailedRecord], object] | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
        waits_for_credentials: bool = False,
        linger_seconds: float = LINGER_SECONDS,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._aggregates = shards is not None
        options = {"aggregate": self._aggregates, "ordered": ordered}
        by_key = [name for name, is_set in options.items() if is_set]
        self._patience = Patience(
            chance, give_up_seconds, waits_for_credentials=waits_for_credentials
        )
        self.stream = PutStream(
            target, info, self._patience, by_key, telemetry or Telemetry()
        )
        self._ordered = ordered
        self._queue = Queue(ordered=ordered)
        self._aggregator: Aggregator | None = None
        if shards is not None and info.routes_by_key:
            self._aggregator = Aggregator(shards)
        self._on_refused = on_refused
        self._linger_seconds = linger_seconds
        self._max_buffer_bytes = max_buffer_bytes
        self.stream_arn = info.arn
        self._loop = asyncio.get_running_loop()
        # When the strategy of distribution was last read to pack records by it.
        self._packed_at = self._loop.time()
        self._window = FIRST_REQUESTS  # maximum number of parallel requests
        self._requests: set[asyncio.Task[None]] = set()
        # For each running request, those of its records that Kinesis hasn't accepted
        # yet.
        self._unacknowledged: dict[object, list[PendingRecord]] = {}
        # Set while the records are packed anew for other shards or another strategy.
        self._reshard: Reshard | None = None
        self._failed: list[PendingRecord] = []
        self._end: Exception | None = None
        self._changed = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._sends_all = False  # whether to send requests that aren't full
        self._turn_bytes = 0
        self._number = 0  # of records added
        self.buffered_bytes: int = 0

    @property
    def counts(self) -> PutCounts:
        """The numbers of records, bytes and requests so far."""
        return self.stream.counts

    async def add(self, entry: Entry, traceparent: str = "") -> PutFuture:
        """Add a record when there is memory for it. Return its future result.

        ``traceparent`` is that of the record's creation; empty without a trace.
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
        return PutFuture(*self._append(entry, size, cost, traceparent))

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
            found += self._aggregator.opened.values()
        if self._reshard is not None:
            found += self._reshard.records()
        return sorted(found, key=lambda record: record.number)

    def read_gauges(self) -> ProducerState:
        """Return the values for telemetry. Any thread may call this."""
        return ProducerState(self.stream_arn, self.buffered_bytes)

    def _append(
        self, entry: Entry, size: int, cost: int, traceparent: str
    ) -> tuple[PendingRecord, int]:
        """Append a record without waiting. Return its Kinesis record and its index."""
        self._number += 1
        self.buffered_bytes += cost
        if self._aggregator is None or entry.partition_key is None:
            record = PendingRecord(self._number, entry.partition_key)
            record.add(entry, size, cost, traceparent)
            self._enqueue(record)
            return record, 0
        record, full = self._aggregator.add(
            entry, size, cost, self._number, traceparent
        )
        if full is not None:
            self._enqueue(full)
        return record, record.rows - 1

    def _enqueue(self, record: PendingRecord) -> None:
        self._queue.add(record)
        self._launch()

    def _on_linger(self) -> None:
        self._linger = None
        self.send()
        if self._is_outdated():
            self._reshard = Reshard()
            if not self._requests:
                self._start(self._pack_again(self._reshard))

    def _is_outdated(self) -> bool:
        """Return whether records may have to be packed by another strategy by now."""
        if not self._aggregates or self._reshard is not None:
            return False
        if self._aggregator is not None:
            return not self.stream.info.routes_by_key
        return self._loop.time() - self._packed_at >= STRATEGY_SECONDS

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
        self._patience.note_progress()
        for record in failed:
            record.fail(error)
        self._failed += failed
        self._changed.set()

    async def _send_until_accepted(self, key: object) -> None:
        """Send records, and repeat failed ones, until Kinesis has accepted all."""
        began = self._loop.time()
        tries, records = 0, self._unacknowledged[key]
        while records and self._reshard is None:
            sent_at = self._loop.time()
            try:
                accepted, failed, reason = await self.stream.put(records)
            except RecordRefusedError as error:
                await self._sort_out(key, sent_at, error)
                records = self._unacknowledged[key]
                continue
            self._unacknowledged[key] = failed
            if accepted:
                self._accept(accepted)
            if not failed:
                # This adds one parallel request after each round of requests, as in
                # TCP.
                self._window = min(MAX_REQUESTS, self._window + 1 / self._window)
                break
            self._window = max(1.0, self._window / 2)
            # After a partial success, begin with the shortest wait again.
            tries = tries + 1 if len(failed) == len(records) else 0
            self._patience.require_progress(began, reason)
            await self._patience.back_off(tries + 1)
            records = failed
        failed = self._unacknowledged.pop(key)
        if self._reshard is not None:
            self._reshard.returned += failed

    async def _sort_out(
        self, key: object, sent_at: float, error: RecordRefusedError
    ) -> None:
        """Let those records of a refused request fail that Kinesis refuses.

        If the stream's description doesn't say which, send the first half of the
        records before the rest. So at last, a refused record is alone in its request.
        """
        info = await self.stream.reread(sent_at)
        records = self._unacknowledged[key]
        refused = find_refused(records, info, error)
        left = [record for record in records if record not in refused]
        self._unacknowledged[key] = left
        for record, reason in refused.items():
            self._refuse(record, reason)
        if not refused:
            half, first = len(left) // 2, object()
            self._unacknowledged[key] = left[half:]
            self._unacknowledged[first] = left[:half]
            await self._send_until_accepted(first)

    def _refuse(self, record: PendingRecord, error: RecordRefusedError) -> None:
        self.buffered_bytes -= record.cost
        record.fail(error)
        if self._on_refused is None:
            self._failed.append(record)
        else:
            for failed in record.failed_records():
                self._on_refused(failed)
        self._queue.release([record])
        self._launch()
        self._changed.set()

    def _accept(self, accepted: list[tuple[PendingRecord, EntryResult]]) -> None:
        self._patience.note_progress()
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

    # --- reshards, and switches of the strategy ---------------------------------------

    async def _pack_again(self, reshard: Reshard) -> None:
        """Pack all waiting records as the stream distributes them at present."""
        before = self._aggregator
        shards, aggregates = await reshard.read_distribution(
            self.stream, self._patience, before
        )
        waiting = self._queue.waiting() + (before.take_open() if before else [])
        self._aggregator = shards if aggregates else None
        self._packed_at = self._loop.time()
        self._queue, self._reshard = Queue(ordered=self._ordered), None
        for record, indexes in reshard.to_pack(shards, waiting):
            self.buffered_bytes -= record.cost
            if record.result is not None:
                self.stream.take_back(len(indexes))
            places = {}
            for index in indexes:
                entry, size = record.entries[index], record.entries[index].size
                cost, origin = size + RECORD_COST_BYTES, record.traceparent_of(index)
                places[index] = self._append(entry, size, cost, origin)
            record.move(places)
        self.send()

"""Probes shards: reads some of their records in order to plan a batch.

A probe makes few calls, since Kinesis allows only five reads per second and shard, and
tasks need most of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from math import inf

from kinesumer.core.batch_ranges import Probed, ProbedRecord
from kinesumer.core.pacing import CAUGHT_UP_SECONDS, Pacing
from kinesumer.errors import ExpiredIteratorError, ShardThrottledError
from kinesumer.model.positions import After, At, End, Position, ShardPosition
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Start
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.clock import ServiceTime, iterator_at
from kinesumer.spark.process_cache import ITERATOR_SECONDS
from kinesumer.wire.records import payload_bytes

CALLS = 4  # in as many periods; Kinesis allows five per second and shard
TRIES = 3  # the maximum number of attempts, if Kinesis throttles a read


class ShardProbe:
    """Probes one shard, within its read limits."""

    def __init__(
        self,
        source: StreamSource,
        shard_id: str,
        clock: Clock,
        service: ServiceTime,
        period_seconds: float = CAUGHT_UP_SECONDS,
    ) -> None:
        self.shard_id = shard_id
        self.failing_since: float | None = None
        # The last record of the planned batch, the size of the probed records up to it,
        # and whether these are all records of the batch.
        self.measured: tuple[Position, int, bool] | None = None
        self._source, self._clock, self._service = source, clock, service
        # The position for which the iterator was kept, and since when.
        self._kept: object = None
        self._iterator, self._since = "", 0.0
        self._read_times: deque[float] = deque(maxlen=CALLS)
        # Between two reads, if no other consumer reads the shard. minFetchPeriod may
        # shorten this for servers without AWS's limits.
        self._period_seconds = period_seconds
        self.pacing: Pacing = Pacing(clock.now(), period_seconds, inf)

    async def after(self, position: ShardPosition, limit: int) -> Probed:
        """Return the records just after a position. Read on while pages are empty.

        Raises TrimmedPositionError, ShardMissingError, SourceUnavailableError.
        """
        start = position.position if isinstance(position, After) else position
        assert not isinstance(start, At | End)
        try:
            result = await self._read_after(start, limit)
        except ExpiredIteratorError:
            self._kept = None
            result = await self._read_after(start, limit)
        if not result.records:
            self.keep(start, result)
        return replace(result, is_whole=True)

    async def at(self, timestamp: float, limit: int) -> Probed:
        """Return the first records that arrived at a time or later.

        If the time is ahead of Kinesis's clock, the probe begins earlier, and may
        contain older records.
        """
        iterator, _ = await iterator_at(self._source, self.shard_id, timestamp)
        return await self._read_on(iterator, limit)

    async def further(self, result: Probed, limit: int) -> Probed:
        """Continue a probe. Return its records together with those that follow."""
        assert result.iterator is not None
        following = await self._read_on(result.iterator, limit)
        return replace(
            following,
            records=[*result.records, *following.records],
            total_bytes=result.total_bytes + following.total_bytes,
            is_whole=result.is_whole,
        )

    def keep(self, position: Position | Start, result: Probed) -> None:
        """Store a probe's iterator for the next probe after a position."""
        self._kept = None if result.iterator is None else position
        self._iterator, self._since = result.iterator or "", self._clock.now()

    def ends_at(self, last: ProbedRecord, result: Probed) -> None:
        """Store the size of the batch that ends at a record, and where it goes on."""
        self.measured = last.position, result.bytes_up_to(last), result.is_whole
        if last is result.records[-1]:
            self.keep(last.position, result)

    async def _read_after(self, start: Position | Start, limit: int) -> Probed:
        if self._kept == start and self._clock.now() - self._since < ITERATOR_SECONDS:
            iterator = self._iterator
        else:
            iterator = await self._source.get_iterator(self.shard_id, start)
        since = start.timestamp if isinstance(start, Start) else None
        return await self._read_on(iterator, limit, since)

    async def _read_on(
        self, iterator: str, limit: int, since: float | None = None
    ) -> Probed:
        while True:
            page = await self._read(iterator, limit)
            records = [_record(record) for record in page.records]
            if since is not None:
                # Some servers round the iterator's time down to a second. They return
                # older records, too.
                records = [item for item in records if item.arrived_at >= since]
            following = page.next_iterator
            if records or following is None or not page.millis_behind:
                # Kinesis rounds the lag, so records may follow a full page even if the
                # lag is 0 ms.
                is_last = not page.millis_behind and len(page.records) < limit
                closed = following is None
                size = sum(item.size for item in records)
                return Probed(records, following, closed or is_last, closed, size)
            iterator = following

    async def _read(self, iterator: str, limit: int) -> Page:
        if len(self._read_times) == CALLS:
            free_at = self._read_times[0] + CALLS * self._period_seconds
            await asyncio.sleep(max(0.0, free_at - self._clock.now()))
        page = await self._paced(iterator, limit)
        if page.records and (arrived := page.records[-1].approximate_arrival_timestamp):
            self._service.observe_arrival(arrived)
        return page

    async def _paced(self, iterator: str, limit: int) -> Page:
        """Read a page. If throttled, try again, and read more slowly from then on."""
        clock, pacing = self._clock, self.pacing
        next_at = pacing.starts_at(clock.now())
        left = TRIES
        while True:
            left -= 1
            await asyncio.sleep(max(0.0, next_at - clock.now()))
            started = clock.now()
            self._read_times.append(started)
            try:
                page = await self._source.get_records(iterator, limit)
            except ShardThrottledError:
                next_at = pacing.after_throttle(clock.now(), 0.5)
                if not left:
                    raise
            else:
                pacing.after_page(
                    started,
                    records=len(page.records),
                    payload_bytes=payload_bytes(page),
                    millis_behind=page.millis_behind,
                )
                return page


def _record(record: Record) -> ProbedRecord:
    # The position has no sub-sequence number, as batches don't end within aggregates.
    arrived = record.approximate_arrival_timestamp
    return ProbedRecord(
        Position(record.sequence_number), arrived or 0.0, len(record.data)
    )

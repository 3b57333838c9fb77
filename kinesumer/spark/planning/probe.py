"""Probes shards: reads some of their records in order to plan a batch.

A probe makes few calls, since Kinesis allows only five reads per second and shard, and
tasks need most of them. A search for the tip that would have to wait continues at the
next trigger.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import ExpiredIteratorError, ShardThrottledError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.runtime.service_time import iterator_at
from kinesumer.spark.offsets.model import After, At, End
from kinesumer.spark.runtime.process_cache import ShardPace
from kinesumer.wire.records import payload_bytes

if TYPE_CHECKING:
    from kinesumer.model.records import Page, Record
    from kinesumer.ports import Clock, StreamSource
    from kinesumer.runtime.service_time import ServiceTime
    from kinesumer.spark.offsets.model import ShardPosition

FRESH_SECONDS = 240.0  # how long iterators are used; they expire after five minutes
EMPTY_PAGES = 20  # the maximum number of empty pages that one probe follows
CALLS = 4  # in as many periods; Kinesis allows five per second and shard
# Between two reads, if no other consumer reads the shard. The option minFetchPeriod may
# shorten this for servers without AWS's limits.
PERIOD_SECONDS = 0.25
TRIES = 3  # the maximum number of attempts, if Kinesis throttles a read


class ProbedRecord(NamedTuple):
    """The position, arrival time and size of a record."""

    position: Position
    arrived_at: float
    size: int

    def lies_after(self, position: ShardPosition) -> bool:
        """Return whether the record lies after a position."""
        if isinstance(position, After):
            return self.position > position.position
        since = _since(position)
        return since is None or self.arrived_at >= since


class MeasuredBytes(NamedTuple):
    """The size of the probed records up to a record, including that record."""

    last: Position
    size: int
    exact: bool  # true if the first probed record is the batch's first record


@dataclass(slots=True)
class ProbeResult:
    """The records that a probe found after a position or since a time."""

    records: list[ProbedRecord]
    iterator: str | None
    at_tip: bool  # true if no later record exists yet
    # True if Kinesis reports a lag of 0 ms. A few records may still follow.
    near_tip: bool = False
    closed: bool = False  # true if the shard is closed, and nothing follows
    passed_bytes: int = 0  # of ``records``, and of earlier records that were dropped
    # True if the probe began where the batch begins, false if it began at a time.
    from_position: bool = False

    def up_to(self, last: Position) -> ProbeResult:
        """Return the records up to a position, as if that were the shard's tip."""
        return self._cut(sum(item.position <= last for item in self.records), last)

    def before(self, end: float | None) -> ProbeResult:
        """Return the records that arrived before a time."""
        if end is None:
            return self
        late = (i for i, item in enumerate(self.records) if item.arrived_at >= end)
        return self._cut(next(late, len(self.records)))

    def _cut(self, count: int, last: Position | None = None) -> ProbeResult:
        kept, dropped = self.records[:count], self.records[count:]
        reached = bool(dropped or (kept and kept[-1].position == last))
        return replace(
            self,
            records=kept,
            # The iterator continues after the dropped records, so it can't be used.
            iterator=None if dropped else self.iterator,
            at_tip=reached or self.at_tip,
            closed=self.closed and not reached,
            passed_bytes=self.passed_bytes - sum(item.size for item in dropped),
        )


class ShardProbe:
    """Probes one shard, within its read limits."""

    def __init__(
        self,
        source: StreamSource,
        shard_id: str,
        clock: Clock,
        service: ServiceTime,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self.shard_id = shard_id
        self.failing_since: float | None = None
        # The begin and end of a period without records, if a search has found one.
        self.quiet: tuple[float, float] | None = None
        # The rate of the last sample, or None before the first sample.
        self.records_per_second: float | None = None
        self.measured: MeasuredBytes | None = None
        self._source, self._clock, self._service = source, clock, service
        self._position: ShardPosition | None = None
        self._iterator, self._since = "", 0.0
        self._tip: tuple[object, float] = (None, -math.inf)
        self._read_times: deque[float] = deque(maxlen=CALLS)
        self._period_seconds = period_seconds
        self._pace = ShardPace()

    @property
    def may_read(self) -> bool:
        """True if the limit of calls per second allows a read now."""
        return len(self._read_times) < CALLS or self._clock.now() >= self._free_at

    @property
    def _free_at(self) -> float:
        """The time from which the limit of calls allows a read, after CALLS reads."""
        return self._read_times[0] + CALLS * self._period_seconds

    async def after(self, position: ShardPosition, limit: int) -> ProbeResult:
        """Return the records just after a position.

        Raises TrimmedPositionError, ShardMissingError, SourceUnavailableError.
        """
        try:
            result = await self._probe_after(position, limit)
        except ExpiredIteratorError:
            self._position = None
            result = await self._probe_after(position, limit)
        if not result.records:
            self.keep(position, result)
        result.from_position = True
        return result

    async def next_after(self, position: ShardPosition, limit: int) -> ProbeResult:
        """Return the records after a position. Read on as long as pages are empty."""
        result = await self.after(position, limit)
        while not (result.records or result.at_tip):
            result = await self.after(position, limit)
        return result

    async def at(self, timestamp: float, limit: int) -> ProbeResult:
        """Return the first records that arrived at a time or later.

        If the time is ahead of Kinesis's clock, the probe begins earlier, and may
        contain older records.
        """
        iterator, _ = await iterator_at(self._source, self.shard_id, timestamp)
        return await self._probe_once(iterator, limit)

    async def further(self, result: ProbeResult, limit: int) -> ProbeResult:
        """Continue a probe. Return its records together with those that follow."""
        assert result.iterator is not None
        following = await self._probe_once(result.iterator, limit)
        return replace(
            following,
            records=result.records + following.records,
            passed_bytes=result.passed_bytes + following.passed_bytes,
            from_position=result.from_position,
        )

    def note_tip(self, position: ShardPosition, before: float) -> None:
        """Store the fact that no record after a position arrived before a time."""
        self._tip = _key(position), before

    def empty_until(self, position: ShardPosition) -> float:
        """Return a time before which no record after a position arrived, or -inf."""
        key, before = self._tip
        return before if key == _key(position) else -math.inf

    def keep(self, position: ShardPosition, result: ProbeResult) -> None:
        """Store a probe's iterator for the next probe after a position."""
        if result.iterator is None or isinstance(position, End):
            self._position = None
        else:
            self._position, self._iterator = position, result.iterator
            self._since = self._clock.now()

    def keep_after(self, record: ProbedRecord, result: ProbeResult) -> None:
        """Store a probe's iterator for the next probe after a record."""
        self.keep(After(record.position, record.arrived_at), result)
        self.measure(record, result)

    def measure(self, last: ProbedRecord, result: ProbeResult) -> None:
        """Store the size of the probed records up to a record."""
        later = sum(item.size for item in result.records if item > last)
        size = result.passed_bytes - later
        self.measured = MeasuredBytes(last.position, size, result.from_position)

    async def _probe_after(self, position: ShardPosition, limit: int) -> ProbeResult:
        fresh = self._clock.now() - self._since < FRESH_SECONDS
        kept = self._position
        if fresh and kept is not None and _key(kept) == _key(position):
            iterator = self._iterator
        else:
            start = position.position if isinstance(position, After) else position
            assert not isinstance(start, At | End)
            iterator = await self._source.get_iterator(self.shard_id, start)
        return await self._probe_once(iterator, limit, _since(position))

    async def _probe_once(
        self, iterator: str, limit: int, since: float | None = None
    ) -> ProbeResult:
        for _ in range(EMPTY_PAGES):
            page = await self._read(iterator, limit)
            records = [_record(record) for record in page.records]
            if since is not None:
                # Some servers round the iterator's time down to a second. They return
                # older records, too.
                records = [item for item in records if item.arrived_at >= since]
            following = page.next_iterator
            near = following is None or not page.millis_behind
            if records or near:
                # Kinesis rounds the lag, so records may follow a full page even if the
                # lag is 0 ms.
                full = following is not None and len(page.records) >= limit
                return ProbeResult(
                    records,
                    following,
                    at_tip=near and not full,
                    near_tip=near,
                    closed=following is None,
                    passed_bytes=sum(item.size for item in records),
                )
            assert following is not None
            iterator = following
        return ProbeResult([], iterator, at_tip=False)

    async def _read(self, iterator: str, limit: int) -> Page:
        if not self.may_read:
            await asyncio.sleep(self._free_at - self._clock.now())
        page = await self._paced(iterator, limit)
        if page.records and (arrived := page.records[-1].approximate_arrival_timestamp):
            self._service.observe_arrival(arrived)
        return page

    @property
    def is_shared(self) -> bool:
        """True if Kinesis has recently refused reads because of other readers."""
        return not self._pace.share.is_whole

    async def _paced(self, iterator: str, limit: int) -> Page:
        """Read a page. If throttled, try again, and read more slowly from then on."""
        clock, pace = self._clock, self._pace
        next_at = pace.starts_at(clock.now())
        for left in reversed(range(TRIES)):
            await asyncio.sleep(max(0.0, next_at - clock.now()))
            started = clock.now()
            self._read_times.append(started)
            try:
                page = await self._source.get_records(iterator, limit)
            except ShardThrottledError:
                next_at = pace.after_throttle(clock.now(), self._period_seconds, 0.5)
                if not left:
                    raise
            else:
                pace.after_page(started, self._period_seconds, payload_bytes(page))
                return page
        raise AssertionError("unreachable")


def _record(record: Record) -> ProbedRecord:
    # The position has no sub-sequence number, as batches don't end within aggregates.
    arrived = record.approximate_arrival_timestamp
    return ProbedRecord(
        Position(record.sequence_number), arrived or 0.0, len(record.data)
    )


def _since(position: ShardPosition) -> float | None:
    return position.timestamp if isinstance(position, Start) else None


def _key(position: ShardPosition) -> object:
    return position.position if isinstance(position, After) else position

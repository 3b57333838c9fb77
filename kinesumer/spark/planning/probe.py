"""Probes of a shard: the next records, and the tip.

A probe takes few calls, since readers need the shard's five reads a second. A search
that may wait continues at the next trigger.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.clock_bounds import ClockBounds
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardThrottledError,
    StartInFutureError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import After, At, End
from kinesumer.spark.runtime.shard_cache import ShardPace
from kinesumer.wire.records import payload_bytes

if TYPE_CHECKING:
    from kinesumer.model.records import Page, Record
    from kinesumer.ports import Clock, StreamSource
    from kinesumer.spark.offsets.model import ShardPosition

FRESH_SECONDS = 240.0
"""Iterators expire after five minutes."""
EMPTY_PAGES = 20
"""The maximum number of empty pages that one probe follows."""
EARLIER_SECONDS = (0.0, 1.0, 10.0, 100.0)
CALLS_PER_SECOND = 4
"""A shard allows five."""
PERIOD_SECONDS = 0.25
"""The period of probes while no other consumer reads the shard."""
TRIES = 3
"""The number of tries of a throttled probe."""


class ProbedRecord(NamedTuple):
    """Position, arrival time and size of a record."""

    position: Position
    arrived_at: float
    size: int

    def lies_after(self, place: ShardPosition) -> bool:
        """Tell whether the record lies after a position."""
        if isinstance(place, After):
            return self.position > place.position
        since = place.timestamp if isinstance(place, Start) else None
        return since is None or self.arrived_at >= since


class MeasuredBytes(NamedTuple):
    """The number of probed bytes up to and including a record."""

    last: Position
    size: int
    exact: bool
    """True if these are all bytes since the begin of the batch."""


class ProbeResult:
    """The records after a position, or from a time on."""

    __slots__ = (
        "at_tip",
        "closed",
        "from_position",
        "iterator",
        "near_tip",
        "passed_bytes",
        "records",
    )

    def __init__(
        self, records: list[ProbedRecord], iterator: str | None, *, at_tip: bool
    ) -> None:
        self.records = records
        self.iterator = iterator
        """The iterator after the records. None: the shard is closed and ends here."""
        self.closed = iterator is None
        self.at_tip = at_tip
        """True if no more records have arrived."""
        self.near_tip = at_tip
        """True if Kinesis reports the tip, though some records may follow."""
        self.passed_bytes = sum(found.size for found in records)
        """Size of all records since the begin of the first probe."""
        self.from_position = False
        """True if the probe began at the batch's begin, not at a time."""

    def up_to(self, last: Position) -> ProbeResult:
        """Return the records up to a position, as if the tip were there."""
        return self._cut(sum(found.position <= last for found in self.records), last)

    def before(self, moment: float | None) -> ProbeResult:
        """Return the records that arrived before a time."""
        if moment is None:
            return self
        late = (i for i, f in enumerate(self.records) if f.arrived_at >= moment)
        return self._cut(next(late, len(self.records)), None)

    def _cut(self, count: int, last: Position | None) -> ProbeResult:
        kept = self.records[:count]
        dropped = count < len(self.records)
        reached = dropped or (bool(kept) and kept[-1].position == last)
        # After what was dropped, the iterator isn't the one behind the kept records.
        iterator = None if dropped else self.iterator
        result = ProbeResult(kept, iterator, at_tip=reached or self.at_tip)
        result.closed = self.closed and not reached
        dropped_bytes = sum(found.size for found in self.records[count:])
        result.passed_bytes = self.passed_bytes - dropped_bytes
        result.from_position = self.from_position
        return result


class ShardProbe:
    """Probes one shard, within its read limits."""

    def __init__(
        self, source: StreamSource, shard_id: str, clock: Clock, service: ServiceClock
    ) -> None:
        self.shard_id = shard_id
        self.failing_since: float | None = None
        self.quiet: tuple[float, float] | None = None
        """Nothing arrived between these times."""
        self.records_per_second: float | None = None
        """The rate of the last sample. None: there is no sample yet."""
        self.measured: MeasuredBytes | None = None
        self._source, self._clock, self._service = source, clock, service
        self._place: ShardPosition | None = None
        self._iterator, self._since = "", 0.0
        self._tip: tuple[object, float] = (None, -math.inf)
        self._read_times: deque[float] = deque(maxlen=CALLS_PER_SECOND)
        self._pace = ShardPace()

    @property
    def may_read(self) -> bool:
        """True if a probe needn't wait for the read limit."""
        asked = self._read_times
        return len(asked) < CALLS_PER_SECOND or self._clock.now() - asked[0] >= 1.0

    async def after(self, place: ShardPosition, limit: int) -> ProbeResult:
        """Return the records just after a position.

        Raises TrimmedPositionError, ShardMissingError, SourceUnavailableError.
        """
        try:
            result = await self._probe_once(
                await self._after(place), limit, _since(place)
            )
        except ExpiredIteratorError:
            self._place = None
            result = await self._probe_once(
                await self._after(place), limit, _since(place)
            )
        if not result.records:
            self.keep(place, result)
        result.from_position = True
        return result

    async def next_after(self, place: ShardPosition, limit: int) -> ProbeResult:
        """Return the records after a position, past any number of empty pages."""
        result = await self.after(place, limit)
        while not (result.records or result.at_tip):
            result = await self.after(place, limit)
        return result

    async def at(self, moment: float, limit: int) -> ProbeResult:
        """Return the first records that arrived at a time or later.

        Kinesis refuses a time that is ahead of its clock. Then the probe begins up to
        EARLIER_SECONDS earlier, and may contain older records.
        """
        return await self._probe_once(await self._iterator_at(moment), limit, None)

    async def _iterator_at(self, moment: float) -> str:
        for earlier in EARLIER_SECONDS:
            start = Start(type="AT_TIMESTAMP", timestamp=moment - earlier)
            with suppress(StartInFutureError):
                return await self._source.get_iterator(self.shard_id, start)
        raise StartInFutureError(
            f"{self.shard_id}: Kinesis refuses {moment} as later than its own clock"
        )

    async def further(self, result: ProbeResult, limit: int) -> ProbeResult:
        """Read the following records, and return them appended to a probe."""
        assert result.iterator is not None
        following = await self._probe_once(result.iterator, limit, None)
        both = result.records + following.records
        found = ProbeResult(both, following.iterator, at_tip=following.at_tip)
        found.near_tip = following.near_tip
        found.passed_bytes = result.passed_bytes + following.passed_bytes
        found.from_position = result.from_position
        return found

    def note_tip(self, place: ShardPosition, moment: float) -> None:
        """Note that no record before a time lies after a position."""
        self._tip = _key(place), moment

    def empty_until(self, place: ShardPosition) -> float:
        """Return a time before which no record after a position arrived, or -inf."""
        key, moment = self._tip
        return moment if key == _key(place) else -math.inf

    def keep(self, place: ShardPosition, result: ProbeResult) -> None:
        """Store a probe's iterator as the one after a position."""
        if result.iterator is None or isinstance(place, End):
            self._place = None
        else:
            self._place, self._iterator = place, result.iterator
            self._since = self._clock.now()

    def keep_after(self, found: ProbedRecord, result: ProbeResult) -> None:
        """Store a probe's iterator as the one after a record."""
        self.keep(After(found.position, found.arrived_at), result)
        self.measure(found, result)

    def measure(self, last: ProbedRecord, result: ProbeResult) -> None:
        """Store the number of probed bytes up to a record."""
        later = sum(found.size for found in result.records if found > last)
        size = result.passed_bytes - later
        self.measured = MeasuredBytes(last.position, size, result.from_position)

    async def _after(self, place: ShardPosition) -> str:
        fresh = self._clock.now() - self._since < FRESH_SECONDS
        if fresh and self._place is not None and _key(self._place) == _key(place):
            return self._iterator
        start = place.position if isinstance(place, After) else place
        assert not isinstance(start, At | End)
        return await self._source.get_iterator(self.shard_id, start)

    async def _probe_once(
        self, iterator: str, limit: int, since: float | None
    ) -> ProbeResult:
        for _ in range(EMPTY_PAGES):
            page = await self._read(iterator, limit)
            found = _found(page, since)
            following = page.next_iterator
            near = following is None or not page.millis_behind
            if found or near:
                # Servers count in milliseconds: more records may follow a full page.
                full = following is not None and len(page.records) >= limit
                result = ProbeResult(found, following, at_tip=near and not full)
                result.near_tip = near
                return result
            assert following is not None
            iterator = following
        return ProbeResult([], iterator, at_tip=False)

    async def _read(self, iterator: str, limit: int) -> Page:
        if not self.may_read:
            await asyncio.sleep(self._read_times[0] + 1.0 - self._clock.now())
        page = await self._paced(iterator, limit)
        if page.records and (arrived := page.records[-1].approximate_arrival_timestamp):
            self._service.observe_arrival(arrived)
        return page

    async def _paced(self, iterator: str, limit: int) -> Page:
        """Read at the rate that other consumers of the shard leave."""
        clock, pace = self._clock, self._pace
        next_at = pace.starts_at(clock.now())
        for left in reversed(range(TRIES)):
            await asyncio.sleep(max(0.0, next_at - clock.now()))
            started = clock.now()
            self._read_times.append(started)
            try:
                page = await self._source.get_records(iterator, limit)
            except ShardThrottledError:
                next_at = pace.after_throttle(clock.now(), PERIOD_SECONDS, 0.5)
                if not left:
                    raise
            else:
                pace.after_page(started, PERIOD_SECONDS, payload_bytes(page))
                return page
        raise AssertionError("unreachable")


def _found(page: Page, since: float | None) -> list[ProbedRecord]:
    found = [_record(record) for record in page.records]
    if since is not None:
        found = [record for record in found if record.arrived_at >= since]
    return found


def _record(record: Record) -> ProbedRecord:
    # A whole Kinesis record each: aggregates are never cut.
    arrived = record.approximate_arrival_timestamp
    return ProbedRecord(
        Position(record.sequence_number), arrived or 0.0, len(record.data)
    )


def _since(place: ShardPosition) -> float | None:
    """Return a start's time: servers that round to seconds return older records."""
    return place.timestamp if isinstance(place, Start) else None


def _key(place: ShardPosition) -> object:
    return place.position if isinstance(place, After) else place


class ServiceClock:
    """Bounds Kinesis's clock by what is heard of it on a monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds = ClockBounds()

    def observe_date(self, service_time: float, asked_at: float) -> None:
        """Take note of an answer's Date, in whole seconds, to what was asked then."""
        self._bounds.observe_date(service_time, asked_at, self._clock.now())

    def observe_arrival(self, arrived_at: float) -> None:
        """Take note of a record just read: Kinesis's clock is not behind it."""
        self._bounds.observe_arrival(arrived_at, self._clock.now())

    def earliest(self) -> float:
        """Return a time that Kinesis's clock has surely reached."""
        return self._bounds.earliest(self._clock.now())

    def latest(self) -> float:
        """Return a time that Kinesis's clock has surely not passed."""
        return self._bounds.latest(self._clock.now())

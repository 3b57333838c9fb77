"""Searches for the last record of a shard, or for its last record before a time.

``find_tip`` makes few calls. It may stop before the tip, as later batches continue.
``last_position`` and ``last_until`` search until the record is found.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.spark.offsets.model import BEGINNING, END, After
from kinesumer.spark.runtime.event_loop import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import Shard
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.planning.probe import ProbedRecord, ProbeResult, ShardProbe
    from kinesumer.spark.planning.stream_state import StreamState

RESOLUTION_SECONDS = 0.002
MAX_BISECTIONS = 40
# Limits for reading page by page if a bisection by time fails. It fails if too many
# records have the same arrival time, which some emulators of Kinesis allow.
WALK_RECORDS, WALK_PAGES = 10_000, 5
BURST_PER_SECOND = 4_000.0
SLACK_SECONDS = 2.0  # the maximum error of the estimated time of Kinesis
# A search probes the last second, then these longer periods, and finally the whole
# retention.
AGES = (1.0, 300.0, 21_600.0)
# The size of a page that is read only for its last record. AWS allows one such page a
# second.
WALK_BYTES = 2_000_000
# In one shard, a batch may end earlier than in the others: by up to NEAR_SECONDS, but
# not by more than NEAR_SHARE of the batch's time span. If the end is at most NEAR_PAGES
# away, the search reads these pages instead of bisecting.
NEAR_SECONDS, NEAR_SHARE, NEAR_PAGES = 10.0, 1 / 64, 3


class TipResult(NamedTuple):
    """The last record that the search found."""

    last: ProbedRecord
    at_tip: bool = False
    closed: bool = False  # the shard is closed, and nothing follows

    def within(self, target: After) -> TipResult:
        """Return the target if this result lies after it, else this result."""
        if not self.closed and self.last.position <= target.position:
            return self
        last = self.last._replace(position=target.position, arrived_at=target.seen)
        return TipResult(last)


async def find_tip(
    stream: StreamState,
    probe: ShardProbe,
    result: ProbeResult,
    now: float,
    *,
    known_quiet: bool = False,
) -> TipResult:
    """Return a record at or near the tip. ``result`` is a probe that ended before it.

    ``known_quiet`` is true if no record has arrived since ``now``.
    """
    result = await probe.further(result, stream.ahead)
    if result.at_tip:
        return remember_tip(probe, result)
    if known_quiet:
        return await _bisect(stream, probe, result, now)
    newest = await probe.at(now, stream.sample())
    if _is_newer(newest, result):
        return remember_tip(probe, newest)
    if not newest.at_tip:
        return await _walk(stream, probe, result)
    if newest.closed:
        return TipResult(result.records[-1], closed=True)
    if newest.records:
        return TipResult(result.records[-1], at_tip=True)
    return await _bisect(stream, probe, result, now)


async def _bisect(
    stream: StreamState, probe: ShardProbe, result: ProbeResult, now: float
) -> TipResult:
    """Find the tip by bisecting the time since the last known record.

    The first search in a quiet shard stops when it would have to wait for the read
    limit. The next search continues from there to the tip. So at most two batches
    are needed to reach an old tip.
    """
    high, resumed = now, False
    best = result
    if probe.quiet is not None and probe.quiet[0] < high:
        later = await probe.at(probe.quiet[1] - SLACK_SECONDS, stream.sample())
        if _is_newer(later, best):
            best = later
        elif later.at_tip:
            high, resumed = probe.quiet[0], True
    for _ in range(MAX_BISECTIONS):
        low = best.records[-1].arrived_at
        if best.at_tip or high - low <= RESOLUTION_SECONDS:
            break
        if not resumed and not probe.may_read:
            break
        middle = (low + high) / 2
        later = await probe.at(middle, stream.sample())
        if _is_newer(later, best):
            best = later
        elif later.at_tip:
            high = middle
        else:
            break
    probe.quiet = (high, now)
    low = best.records[-1].arrived_at
    if not best.at_tip and (best is result or high - low <= RESOLUTION_SECONDS):
        return await _walk(stream, probe, best)
    return remember_tip(probe, best)


async def _walk(
    stream: StreamState, probe: ShardProbe, result: ProbeResult
) -> TipResult:
    """Read on page by page. Used when a bisection fails or would have to wait."""
    result = await probe.further(result, stream.ahead)
    for _ in range(WALK_PAGES):
        if result.at_tip or result.iterator is None or not _is_burst(result):
            break
        result.records = result.records[-1:]
        result = await probe.further(result, WALK_RECORDS)
    return remember_tip(probe, result)


def remember_tip(probe: ShardProbe, result: ProbeResult) -> TipResult:
    """Return the last record of a probe, and store the iterator that follows it."""
    last = result.records[-1]
    if result.iterator is not None:
        probe.keep_after(last, result)
    return TipResult(last, result.at_tip, result.closed)


def _is_newer(result: ProbeResult, known: ProbeResult) -> bool:
    return bool(result.records) and result.records[-1] > known.records[-1]


def _is_burst(result: ProbeResult) -> bool:
    """Return whether records arrived faster than AWS allows."""
    first, last = result.records[0], result.records[-1]
    span = last.arrived_at - first.arrived_at
    return len(result.records) > 1 and span * BURST_PER_SECOND < len(result.records)


async def last_positions(stream: StreamState) -> dict[str, ShardPosition]:
    """Return the position after each shard's last record.

    The position is END for a closed shard, and BEGINNING for an open shard without
    records.
    """
    positions: dict[str, ShardPosition] = {}

    async def find(shard: Shard) -> None:
        closed, shard_id = shard.closed, shard.shard_id
        positions[shard_id] = END if closed else await last_position(stream, shard_id)

    await for_each(stream.shards, find)
    return positions


async def last_position(
    stream: StreamState, shard_id: str, before: float | None = None
) -> ShardPosition:
    """Return the position after a shard's last record (before a time, if given).

    Records that arrive during the call may lie after the position. The position is
    BEGINNING if there is no such record. It is END if the record is the last one of a
    closed shard.
    """
    search = _TipSearch(stream, shard_id, before)
    result = await search.widen()
    if result is None:
        return BEGINNING
    result = await search.to_the_tip(result)
    if result.closed:
        return END
    last = result.records[-1]
    stream.probe(shard_id).measure(last, result)
    return After(last.position, last.arrived_at)


async def last_until(
    stream: StreamState, shard_id: str, result: ProbeResult, until: float
) -> ProbeResult:
    """Return a probe that ends with the last record that arrived up to a time.

    ``result`` is a probe with earlier records. The returned probe may also end up to
    NEAR_SECONDS before that record, if this is a small share of the time between
    ``result`` and ``until``.
    """
    near = min(NEAR_SECONDS, (until - result.records[0].arrived_at) * NEAR_SHARE)
    search = _TipSearch(stream, shard_id, math.nextafter(until, math.inf), near)
    return await search.to_the_tip(await search.widen_to(result))


def is_near(records: Sequence[ProbedRecord], until: float, page_records: int) -> bool:
    """Estimate from the rate of records whether NEAR_PAGES pages reach a time."""
    left = until - records[-1].arrived_at
    span = records[-1].arrived_at - records[0].arrived_at
    if left <= RESOLUTION_SECONDS:
        return True
    return left * len(records) <= span * NEAR_PAGES * page_records


class _TipSearch:
    def __init__(
        self,
        stream: StreamState,
        shard_id: str,
        before: float | None,
        near_seconds: float = 0.0,
    ) -> None:
        self._stream, self._probe = stream, stream.probe(shard_id)
        self._before = before
        self._near_seconds = near_seconds
        now = stream.service.earliest()
        self._oldest = now - stream.retention_seconds - 60.0
        # The record that is searched for arrived before this time.
        self._high = now if before is None else min(before, now)

    async def widen(self) -> ProbeResult | None:
        """Probe earlier and earlier times until a probe returns a record."""
        newest = self._high
        for age in (*AGES, math.inf):
            time = max(newest - age, self._oldest)
            result = await self._probe_at(time)
            if result.records:
                return result
            self._high = min(self._high, time)
            if time == self._oldest:
                return result if result.closed else None
        return None

    async def widen_to(self, known: ProbeResult) -> ProbeResult:
        """Probe earlier and earlier times until a probe finds a later record."""
        newest = self._high
        for age in AGES:
            if newest - age <= known.records[-1].arrived_at:
                break
            result = await self._probe_at(newest - age)
            if _is_newer(result, known):
                return result
            if not result.at_tip:
                break  # the server rounds the time, and returned only known records
            self._high = newest - age
        return known

    async def to_the_tip(self, result: ProbeResult) -> ProbeResult:
        """Return a probe that ends with the last record, by continuing ``result``.

        First read one page, since most tips are near. Then bisect the time in which the
        last record may have arrived, until only a few pages are left.
        """
        bisects = False
        while not (result.at_tip or result.iterator is None or self._is_close(result)):
            page_records = min(
                WALK_RECORDS, max(1, int(WALK_BYTES / self._stream.record_bytes))
            )
            if not bisects or is_near(result.records, self._high, page_records):
                result, bisects = await self._further(result, page_records), True
                continue
            middle = (result.records[-1].arrived_at + self._high) / 2
            later = await self._probe_at(middle)
            if _is_newer(later, result) or (
                later.at_tip and later.records[-1:] == result.records[-1:]
            ):
                result = later
            elif later.at_tip:
                self._high = min(middle, self._high)
            else:
                bisects = False  # the server rounds the time: a bisection can't work
                result = await self._further(result, page_records)
        return result

    def _is_close(self, result: ProbeResult) -> bool:
        return (
            self._before is not None
            and self._before - result.records[-1].arrived_at <= self._near_seconds
        )

    async def _further(self, result: ProbeResult, count: int) -> ProbeResult:
        """Read one more page. Keep only the last one of the earlier records."""
        following = await self._stream.retry(self._probe.further, result, count)
        following = following.before(self._before)
        following.records = following.records[len(result.records) - 1 :]
        return following

    async def _probe_at(self, time: float) -> ProbeResult:
        sample = self._stream.sample()
        result = await self._stream.retry(self._probe.at, time, sample)
        if result.records:
            self._stream.learn(self._probe.shard_id, result)
        return result.before(self._before)

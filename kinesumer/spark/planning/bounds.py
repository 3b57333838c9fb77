"""The ends of bounded reads: the last record of a shard, now or before a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.core.lineage import ancestors
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import (
    BEGINNING,
    END,
    After,
    At,
    End,
    StreamOffset,
)
from kinesumer.spark.planning.start_offsets import require_known_shards
from kinesumer.spark.planning.tip_search import RESOLUTION_SECONDS, WALK_RECORDS
from kinesumer.spark.runtime.event_loop import for_each, with_retries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import Shard
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.planning.probe import ProbedRecord, ProbeResult
    from kinesumer.spark.planning.stream_state import PlanContext, StreamState

EndingPosition = Start | StreamOffset | None
"""A time (exclusive), positions (inclusive), or None: all records that exist now."""


async def bounds(
    stream: StreamState,
    first: StreamOffset,
    ending: EndingPosition,
    context: PlanContext,
) -> dict[str, tuple[ShardPosition, ShardPosition]]:
    """Return the first and last position of each shard that has records between them.

    Parents and children are read at the same time: only the order within a shard is
    guaranteed.
    """
    if isinstance(ending, StreamOffset):
        listed = {shard.shard_id for shard in stream.shards}
        require_known_shards("endingPosition", stream.info, listed, ending)
    pairs: dict[str, tuple[ShardPosition, ShardPosition]] = {}

    async def find(shard: Shard) -> None:
        begin = first.shards.get(shard.shard_id, BEGINNING)
        if not isinstance(begin, End):
            end = await _end(stream, shard, ending, context)
            if _holds_any(begin, end):
                begin = await _first(stream, shard.shard_id, begin, context)
                pairs[shard.shard_id] = begin, end

    await for_each(stream.shards, find)
    return dict(sorted(pairs.items()))


async def _first(
    stream: StreamState, shard_id: str, begin: After | At | Start, context: PlanContext
) -> ShardPosition:
    """Return the position of the first record after a start."""
    if not isinstance(begin, Start):
        return begin

    async def ask() -> ProbeResult:
        return await stream.probe(shard_id).after(begin, stream.sample())

    result = await with_retries(ask, context.clock)
    if not result.records:
        return begin
    stream.learn(shard_id, result)
    first = result.records[0]
    return At(first.position.sequence_number, first.arrived_at)


async def _end(
    stream: StreamState, shard: Shard, ending: EndingPosition, context: PlanContext
) -> ShardPosition:
    if isinstance(ending, StreamOffset):
        if shard.shard_id in ending.shards:
            return ending.shards[shard.shard_id]
        parents = {item.shard_id: item.parents for item in stream.shards}
        before = shard.shard_id in ancestors(ending.shards, parents)
        return END if before else BEGINNING
    if isinstance(ending, Start):
        return await last_place(stream, shard.shard_id, context, ending.timestamp)
    if shard.closed:
        return END
    return await last_place(stream, shard.shard_id, context)


def _holds_any(first: ShardPosition, last: ShardPosition) -> bool:
    if isinstance(last, Start):
        return False
    if isinstance(last, After):
        if isinstance(first, After):
            return first.position < last.position
        since = first.timestamp if isinstance(first, Start) else None
        return since is None or not last.seen or since <= last.seen
    return True


AGES = (1.0, 300.0, 21_600.0)
"""Ages of a tip in seconds, tried one after the other; then the retention."""
WALK_BYTES = 2_000_000
"""The size of a page that is read only for its last record. AWS allows one such page a
second."""
NEAR_SECONDS, NEAR_SHARE = 10.0, 1 / 64
"""A batch may end so many seconds before the common end of all shards, and by this
share of the time that it covers."""
WALK_PAGES = 3
"""The maximum number of pages that are read one by one instead of a bisection."""


async def targets(
    stream: StreamState, context: PlanContext
) -> dict[str, ShardPosition]:
    """Return the end of the records that each shard holds now.

    END for closed shards, BEGINNING for a shard without any record.
    """
    found: dict[str, ShardPosition] = {}

    async def find(shard: Shard) -> None:
        if shard.closed:
            found[shard.shard_id] = END
        else:
            found[shard.shard_id] = await last_place(stream, shard.shard_id, context)

    await for_each(stream.shards, find)
    return found


async def last_place(
    stream: StreamState,
    shard_id: str,
    context: PlanContext,
    before: float | None = None,
) -> ShardPosition:
    """Return the position after a shard's last record (that arrived before a time).

    No record that had arrived before this call lies after it. The result is BEGINNING
    without any record, and END if the shard is closed and has no later record.
    """
    search = _TipSearch(stream, shard_id, context, before)
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
    stream: StreamState,
    shard_id: str,
    context: PlanContext,
    result: ProbeResult,
    until: float,
) -> ProbeResult:
    """Return a probe that ends with the last record that arrived up to a time.

    ``result`` has such records, and more may follow. The search may stop up to
    NEAR_SECONDS before the time, if that is a small share of the way.
    """
    near = min(NEAR_SECONDS, (until - result.records[0].arrived_at) * NEAR_SHARE)
    before = math.nextafter(until, math.inf)
    search = _TipSearch(stream, shard_id, context, before, near)
    return await search.to_the_tip(await search.widen_to(result))


def is_near(records: Sequence[ProbedRecord], until: float, page_records: int) -> bool:
    """Estimate by the records' rate whether a few pages reach a time."""
    left = until - records[-1].arrived_at
    span = records[-1].arrived_at - records[0].arrived_at
    if left <= RESOLUTION_SECONDS:
        return True
    return left * len(records) <= span * WALK_PAGES * page_records


class _TipSearch:
    def __init__(
        self,
        stream: StreamState,
        shard_id: str,
        context: PlanContext,
        before: float | None,
        near_seconds: float = 0.0,
    ) -> None:
        self._stream, self._clock = stream, context.clock
        self._probe = stream.probe(shard_id)
        self._before = before
        self._near_seconds = near_seconds
        now = context.service.earliest()
        self._horizon = now - stream.retention_seconds - 60.0
        self._high = now if before is None else min(before, now)

    async def widen(self) -> ProbeResult | None:
        """Probe ever earlier times until there is a record."""
        top = self._high
        for age in (*AGES, float("inf")):
            moment = max(top - age, self._horizon)
            result = await self._probe_time(moment)
            if result.records:
                return result
            self._high = min(self._high, moment)
            if moment == self._horizon:
                return result if result.closed else None
        return None

    async def widen_to(self, known: ProbeResult) -> ProbeResult:
        """Probe earlier times until there is a record newer than the known ones."""
        last, top = known.records[-1], self._high
        for age in AGES:
            if top - age <= last.arrived_at:
                break
            result = await self._probe_time(top - age)
            if result.records and result.records[-1] > last:
                return result
            if not result.at_tip:
                break  # the server's times are too coarse
            self._high = top - age
        return known

    async def to_the_tip(self, result: ProbeResult) -> ProbeResult:
        """Continue from a probe with records to the last record.

        First read one page, since most tips are near. Then bisect the time in which the
        last record may have arrived, until the rest is a few pages.
        """
        halves = False
        while not (result.at_tip or result.iterator is None or self._is_close(result)):
            page = self._page_records
            if halves and not is_near(result.records, self._high, page):
                middle = (result.records[-1].arrived_at + self._high) / 2
                there = await self._probe_time(middle)
                if there.records and there.records[-1] > result.records[-1]:
                    result = there
                elif there.at_tip and there.records[-1:] == result.records[-1:]:
                    result = there
                elif there.at_tip:
                    self._high = min(middle, self._high)
                else:
                    halves = False  # the server's times are too coarse
                    result = await self._further(result, page)
                continue
            result, halves = await self._further(result, page), True
        return result

    def _is_close(self, result: ProbeResult) -> bool:
        return (
            self._before is not None
            and self._before - result.records[-1].arrived_at <= self._near_seconds
        )

    @property
    def _page_records(self) -> int:
        return min(WALK_RECORDS, max(1, int(WALK_BYTES / self._stream.record_bytes)))

    async def _further(self, result: ProbeResult, count: int) -> ProbeResult:
        """Read one more page, and drop earlier records."""

        async def ask() -> ProbeResult:
            return await self._probe.further(result, count)

        following = (await with_retries(ask, self._clock)).before(self._before)
        following.records = following.records[len(result.records) - 1 :]
        return following

    async def _probe_time(self, moment: float) -> ProbeResult:
        async def ask() -> ProbeResult:
            return await self._probe.at(moment, self._stream.sample())

        result = await with_retries(ask, self._clock)
        if result.records:
            self._stream.learn(self._probe.shard_id, result)
        return result.before(self._before)

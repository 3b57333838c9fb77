"""Searches for the last record of a shard that arrived before a time.

The search probes the time just before, and then earlier times, until a probe returns a
record. Then it bisects the time in which the last record may have arrived, until a few
pages are left. It reads those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.core.batch_ranges import Probed, ProbedRecord
from kinesumer.model.positions import BEGINNING, END, After, ShardPosition
from kinesumer.model.streams import Shard
from kinesumer.spark.process import PLAN_RETRIES, for_each

if TYPE_CHECKING:
    from kinesumer.spark.planning.stream_state import StreamState

# Times of arrival are in whole milliseconds.
RESOLUTION_SECONDS = 0.002
# A search probes the last second, then these longer periods, and finally the whole
# retention.
AGES = (1.0, 300.0, 21_600.0)
# If at most so many pages are left, the search reads them instead of bisecting.
NEAR_PAGES = 3


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
    stream: StreamState, shard_id: str, before: float = math.inf
) -> ShardPosition:
    """Return the position after a shard's last record before a time.

    Records that arrive during the call may lie after the position. The position is
    BEGINNING if there is no such record. It is END if the record is the last one of a
    closed shard.
    """
    result = await TipSearch(stream, shard_id, before).find()
    if result is None:
        return BEGINNING
    if result.closed:
        return END
    last = result.records[-1]
    stream.probe(shard_id).ends_at(last, result)
    return After(last.position, last.arrived_at)


def is_near(records: Sequence[ProbedRecord], until: float, page_records: int) -> bool:
    """Estimate from the rate of records whether NEAR_PAGES pages reach a time."""
    left = until - records[-1].arrived_at
    span = records[-1].arrived_at - records[0].arrived_at
    if left <= RESOLUTION_SECONDS:
        return True
    return left * len(records) <= span * NEAR_PAGES * page_records


class TipSearch:
    """Searches one shard for its last record before a time.

    The record that it finds may also arrive up to ``near_seconds`` before that time.
    """

    def __init__(
        self,
        stream: StreamState,
        shard_id: str,
        before: float = math.inf,
        near_seconds: float = 0.0,
    ) -> None:
        self._stream, self._probe = stream, stream.probe(shard_id)
        self._before = before
        self._near_seconds = near_seconds
        now = stream.service.earliest()
        self._oldest = now - stream.retention_seconds - 60.0
        # The record that is searched for arrived before this time.
        self._high = min(before, now)

    async def find(self, known: Probed | None = None) -> Probed | None:
        """Return a probe that ends with the last record, or None if there is none.

        ``known`` is a probe with earlier records.
        """
        result = await self._widen(known)
        if result is None or not result.records:
            return result
        return await self._to_the_tip(result)

    async def _widen(self, known: Probed | None) -> Probed | None:
        """Probe earlier and earlier times until a probe finds a later record."""
        newest = self._high
        first, *longer = AGES
        for age in (self._near_seconds or first, *longer, math.inf):
            time = max(newest - age, self._oldest)
            if known is not None and time <= known.records[-1].arrived_at:
                return known
            result = await self._probe_at(time)
            if _is_newer(result, known):
                return result
            if known is not None and not result.at_tip:
                return known  # the server rounds the time: it returned known records
            self._high = min(self._high, time)
            if time == self._oldest:
                return result if result.closed else None
        return None

    async def _to_the_tip(self, result: Probed) -> Probed:
        """Return a probe that ends with the last record, by continuing ``result``.

        First read one page, since most tips are near.
        """
        bisects = False
        while not (result.at_tip or result.iterator is None or self._is_close(result)):
            page = self._stream.page_records
            if not bisects or is_near(result.records, self._high, page):
                result, bisects = await self._further(result, page), True
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
                result = await self._further(result, page)
        return result

    def _is_close(self, result: Probed) -> bool:
        near = self._near_seconds
        return near > 0 and self._high - result.records[-1].arrived_at <= near

    async def _further(self, result: Probed, count: int) -> Probed:
        """Read one more page. Keep only the last one of the earlier records."""
        known = replace(result, records=result.records[-1:])
        following = await PLAN_RETRIES.call(self._probe.further, known, count)
        return following.before(self._before)

    async def _probe_at(self, time: float) -> Probed:
        sample = self._stream.sample()
        result = await PLAN_RETRIES.call(self._probe.at, time, sample)
        self._stream.learn(self._probe.shard_id, result.records)
        return result.before(self._before)


def _is_newer(result: Probed, known: Probed | None) -> bool:
    if not result.records:
        return False
    return known is None or result.records[-1] > known.records[-1]

"""The last record of a shard, now or before a time: where bounded reads end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.spark.planning.offsets import BEGINNING, END, After
from kinesumer.spark.planning.tip_search import RESOLUTION_SECONDS, WALK_RECORDS
from kinesumer.spark.runtime.event_loop import each, patiently

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import Shard
    from kinesumer.spark.planning.context import Context
    from kinesumer.spark.planning.offsets import Place
    from kinesumer.spark.planning.probe import Found, Look
    from kinesumer.spark.planning.stream_state import Watched

AGES = (1.0, 300.0, 21_600.0)
"""How old a tip may be, in seconds: tried one after the other, then the retention."""
WALK_BYTES = 2_000_000
"""A page that is read only for its last record holds about so much: AWS allows it once
a second."""
NEAR_SECONDS, NEAR_SHARE = 10.0, 1 / 64
"""A batch may end so long before the time up to which all shards are read, and by such
a share of the time that it covers."""
WALK_PAGES = 3
"""So many pages are rather read than the time halved that they lie in."""


async def targets(stream: Watched, context: Context) -> dict[str, Place]:
    """Return the end of all that each shard holds now.

    END for closed shards, BEGINNING for a shard without any record.
    """
    found: dict[str, Place] = {}

    async def find(shard: Shard) -> None:
        if shard.closed:
            found[shard.shard_id] = END
        else:
            found[shard.shard_id] = await last_place(stream, shard.shard_id, context)

    await each(stream.shards, find)
    return found


async def last_place(
    stream: Watched, shard_id: str, context: Context, before: float | None = None
) -> Place:
    """Return the place after the last record of a shard (that arrived before a time).

    Nothing that had arrived when this was called lies behind it. BEGINNING if there is
    no record; END if the shard is closed and holds nothing later.
    """
    search = _Search(stream, shard_id, context, before)
    look = await search.widen()
    if look is None:
        return BEGINNING
    look = await search.to_the_tip(look)
    if look.closed:
        return END
    last = look.records[-1]
    stream.probe(shard_id).measure(last, look)
    return After(last.position, last.arrived_at)


async def last_until(
    stream: Watched, shard_id: str, context: Context, look: Look, until: float
) -> Look:
    """Return a look that ends with the last record that arrived up to a time.

    ``look`` has records that did, and more of them may follow. The search may end up
    to NEAR_SECONDS before the time, if that is little of the way to it.
    """
    near = min(NEAR_SECONDS, (until - look.records[0].arrived_at) * NEAR_SHARE)
    before = math.nextafter(until, math.inf)
    search = _Search(stream, shard_id, context, before, near)
    return await search.to_the_tip(await search.widen_to(look))


def is_near(records: Sequence[Found], until: float, page_records: int) -> bool:
    """Tell whether a few pages reach from the last of some records to a time.

    Judges by how fast the records came.
    """
    left = until - records[-1].arrived_at
    span = records[-1].arrived_at - records[0].arrived_at
    if left <= RESOLUTION_SECONDS:
        return True
    return left * len(records) <= span * WALK_PAGES * page_records


class _Search:
    def __init__(
        self,
        stream: Watched,
        shard_id: str,
        context: Context,
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

    async def widen(self) -> Look | None:
        """Go back in time until there is a record."""
        top = self._high
        for age in (*AGES, float("inf")):
            moment = max(top - age, self._horizon)
            look = await self._look(moment)
            if look.records:
                return look
            self._high = min(self._high, moment)
            if moment == self._horizon:
                return look if look.closed else None
        return None

    async def widen_to(self, known: Look) -> Look:
        """Go back in time until there is a record newer than some that are known."""
        last, top = known.records[-1], self._high
        for age in AGES:
            if top - age <= last.arrived_at:
                break
            look = await self._look(top - age)
            if look.records and look.records[-1] > last:
                return look
            if not look.at_tip:
                break  # the server's times are too coarse
            self._high = top - age
        return known

    async def to_the_tip(self, look: Look) -> Look:
        """Go on from a look that has records to the last one.

        A page is read first: most tips are that near. Then the time is halved in which
        the last record may have arrived, until the rest is a few pages.
        """
        halves = False
        while not (look.at_tip or look.iterator is None or self._is_close(look)):
            page = self._page_records
            if halves and not is_near(look.records, self._high, page):
                middle = (look.records[-1].arrived_at + self._high) / 2
                there = await self._look(middle)
                if there.records and there.records[-1] > look.records[-1]:
                    look = there
                elif there.at_tip and there.records[-1:] == look.records[-1:]:
                    look = there
                elif there.at_tip:
                    self._high = min(middle, self._high)
                else:
                    halves = False  # the server's times are too coarse
                    look = await self._further(look, page)
                continue
            look, halves = await self._further(look, page), True
        return look

    def _is_close(self, look: Look) -> bool:
        return (
            self._before is not None
            and self._before - look.records[-1].arrived_at <= self._near_seconds
        )

    @property
    def _page_records(self) -> int:
        return min(WALK_RECORDS, max(1, int(WALK_BYTES / self._stream.record_bytes)))

    async def _further(self, look: Look, count: int) -> Look:
        """Read on for a page, and forget what came before it."""

        async def ask() -> Look:
            return await self._probe.further(look, count)

        following = (await patiently(ask, self._clock)).before(self._before)
        following.records = following.records[len(look.records) - 1 :]
        return following

    async def _look(self, moment: float) -> Look:
        async def ask() -> Look:
            return await self._probe.at(moment, self._stream.sample())

        look = await patiently(ask, self._clock)
        if look.records:
            self._stream.learn(self._probe.shard_id, look)
        return look.before(self._before)

"""The last record of a shard, now or before a time: where bounded reads end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.spark.each import each
from kinesumer.spark.offsets import BEGINNING, END, After
from kinesumer.spark.patience import patiently
from kinesumer.spark.search import RESOLUTION_SECONDS, WALK_RECORDS

if TYPE_CHECKING:
    from kinesumer.model import Shard
    from kinesumer.spark.advance import Context
    from kinesumer.spark.offsets import Place
    from kinesumer.spark.tips import Look
    from kinesumer.spark.watched import Watched

AGES = (1.0, 10.0, 120.0, 1_800.0, 21_600.0)
"""How old a tip may be, in seconds: tried one after the other, then the retention."""


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
    look = await search.narrow(look)
    while not look.at_tip and look.iterator is not None:
        look = await search.further(look)
    if look.closed:
        return END
    last = look.records[-1]
    return After(last.position, last.arrived_at)


class _Search:
    def __init__(
        self, stream: Watched, shard_id: str, context: Context, before: float | None
    ) -> None:
        self._stream, self._clock = stream, context.clock
        self._probe = stream.probe(shard_id)
        self._before = before
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

    async def narrow(self, look: Look) -> Look:
        """Halve the time in which the last record may have arrived."""
        while look.records and not look.at_tip:
            low = look.records[-1].arrived_at
            if self._high - low <= RESOLUTION_SECONDS:
                break
            middle = (low + self._high) / 2
            there = await self._look(middle)
            if there.records and there.records[-1] > look.records[-1]:
                look = there
            elif there.at_tip:
                self._high = middle
            else:
                break
        return look

    async def further(self, look: Look) -> Look:
        """Read on for a page; only its last record matters."""

        async def ask() -> Look:
            return await self._probe.further(look, WALK_RECORDS)

        following = (await patiently(ask, self._clock)).before(self._before)
        following.records = following.records[-1:]
        return following

    async def _look(self, moment: float) -> Look:
        async def ask() -> Look:
            return await self._probe.at(moment, self._stream.sample())

        look = await patiently(ask, self._clock)
        if look.records:
            self._stream.learn(self._probe.shard_id, look)
        return look.before(self._before)

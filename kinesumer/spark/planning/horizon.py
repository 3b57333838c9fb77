"""Up to when a batch may go, so that all shards advance together in arrival time.

A row that is read batches after newer ones falls behind a query's watermark. So while
a backlog is read, a batch goes up to one time in all shards. A child waits for the
batch after its parents' end: the batch goes little further than the child begins.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING

from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.spark.planning.offsets import BEGINNING, END
from kinesumer.spark.planning.shard_order import readable
from kinesumer.spark.runtime.event_loop import each, patiently

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kinesumer.spark.planning.context import Context
    from kinesumer.spark.planning.offsets import Place, StreamOffset
    from kinesumer.spark.planning.probe import Look
    from kinesumer.spark.planning.shard_order import Readable
    from kinesumer.spark.planning.shard_plan import Advance
    from kinesumer.spark.planning.stream_state import Watched


async def horizon(
    streams: Sequence[Watched],
    before: Mapping[str, StreamOffset],
    work: Mapping[str, Sequence[Advance]],
    context: Context,
) -> float:
    """Return the time up to which a batch may go; inf if no shard has a backlog.

    The shards of ``work`` have been looked at. If the batch must end before now, those
    whose end was chosen already are held back.
    """
    now, skew = context.service.earliest(), context.skew_seconds
    if skew == inf:
        return inf
    items = [item for shards in work.values() for item in shards]
    begins: list[float] = []
    for stream in streams:
        arn = stream.info.arn
        begins += await _children_begin(stream, before[arn], work[arn], context)
    unknown = min((item.since for item in items if item.refused), default=inf)
    # Parents that end at about the same time end in one batch.
    most = min(begins, default=inf) + skew
    children = max((moment for moment in begins if moment <= most), default=inf)
    until = min(now, unknown + skew, children)
    if until < now:
        for item in items:
            item.hold()
    elif all(item.since + skew >= now for item in items if item.sample is not None):
        return inf
    return until


async def _children_begin(
    stream: Watched,
    before: StreamOffset,
    items: Sequence[Advance],
    context: Context,
) -> Collection[float]:
    """Return the time just before the first record that waits for each parent's end.

    Notes with the parents by when they have ended.
    """
    by_id = {item.shard_id: item for item in items}
    ended: dict[str, Place] = {i.shard_id: END for i in items if i.ends_whole}
    firsts: dict[str, float] = {}
    waiting: dict[str, float] = {}
    parents = set(ended)
    while parents:
        offset = replace(before, shards={**before.shards, **ended})
        children = [
            child
            for child in readable(offset, stream.shards)
            if child.shard.shard_id not in by_id.keys() | waiting.keys()
            and parents.intersection(child.shard.parents)
        ]

        async def look(child: Readable) -> None:
            waiting[child.shard.shard_id] = await _begins(stream, child, context)

        await each(children, look)
        for child in children:
            begins = waiting[child.shard.shard_id]
            for parent in parents.intersection(child.shard.parents):
                firsts[parent] = min(begins, firsts.get(parent, inf))
        # The records that wait for an empty shard's end are those of its children.
        parents = {
            child.shard.shard_id
            for child in children
            if child.shard.closed and waiting[child.shard.shard_id] == inf
        }
        ended.update(dict.fromkeys(parents, END))
    now = context.service.earliest()
    for shard_id in by_id.keys() & ended.keys():
        by_id[shard_id].ended_by = min(now, firsts.get(shard_id, inf))
    stream.first_arrivals = waiting
    return firsts.values()


async def _begins(stream: Watched, child: Readable, context: Context) -> float:
    """Return the time just before a shard's first record; inf if there is none."""
    shard_id = child.shard.shard_id
    known = stream.first_arrivals.get(shard_id, inf)
    if known < inf:
        return known

    async def ask(place: Place) -> Look:
        probe = stream.probe(shard_id)
        return await patiently(lambda: probe.next_after(place, 1), context.clock)

    try:
        look = await ask(child.place)
    except TrimmedPositionError:
        look = await ask(BEGINNING)
    except ShardMissingError:
        return inf
    return nextafter(look.records[0].arrived_at, -inf) if look.records else inf

"""What a bounded read takes of each shard: between a start and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.lineage import ancestors
from kinesumer.model.streams import Start
from kinesumer.spark.planning.offsets import (
    BEGINNING,
    END,
    After,
    At,
    End,
    StreamOffset,
)
from kinesumer.spark.planning.start_offsets import require_known_shards
from kinesumer.spark.planning.targets import last_place
from kinesumer.spark.runtime.event_loop import each, patiently

if TYPE_CHECKING:
    from kinesumer.model.streams import Shard
    from kinesumer.spark.planning.context import Context
    from kinesumer.spark.planning.offsets import Place
    from kinesumer.spark.planning.probe import Look
    from kinesumer.spark.planning.stream_state import Watched

Ending = Start | StreamOffset | None
"""A time (exclusive), places (inclusive), or None: what is there now."""


async def bounds(
    stream: Watched, first: StreamOffset, ending: Ending, context: Context
) -> dict[str, tuple[Place, Place]]:
    """Return where reading begins and ends in each shard that has something between.

    Parents and children alike: their order isn't promised, only that within a shard.
    """
    if isinstance(ending, StreamOffset):
        listed = {shard.shard_id for shard in stream.shards}
        require_known_shards("endingPosition", stream.info, listed, ending)
    pairs: dict[str, tuple[Place, Place]] = {}

    async def find(shard: Shard) -> None:
        begin = first.shards.get(shard.shard_id, BEGINNING)
        if not isinstance(begin, End):
            end = await _end(stream, shard, ending, context)
            if _holds_any(begin, end):
                begin = await _first(stream, shard.shard_id, begin, context)
                pairs[shard.shard_id] = begin, end

    await each(stream.shards, find)
    return dict(sorted(pairs.items()))


async def _first(
    stream: Watched, shard_id: str, begin: After | At | Start, context: Context
) -> Place:
    """Return the place before the first record after a start: it must come later."""
    if not isinstance(begin, Start):
        return begin

    async def ask() -> Look:
        return await stream.probe(shard_id).after(begin, stream.sample())

    look = await patiently(ask, context.clock)
    if not look.records:
        return begin
    stream.learn(shard_id, look)
    first = look.records[0]
    return At(first.position.sequence_number, first.arrived_at)


async def _end(
    stream: Watched, shard: Shard, ending: Ending, context: Context
) -> Place:
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


def _holds_any(first: Place, last: Place) -> bool:
    if isinstance(last, Start):
        return False
    if isinstance(last, After):
        if isinstance(first, After):
            return first.position < last.position
        since = first.timestamp if isinstance(first, Start) else None
        return since is None or not last.seen or since <= last.seen
    return True

"""Plans the end of a batch over all streams: probes shards, chooses, and searches.

``core/batch_plan.py`` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from kinesumer.core.batch_limits import Limits
from kinesumer.core.batch_plan import choose
from kinesumer.core.batch_ranges import Readable
from kinesumer.model.positions import (
    BEGINNING,
    End,
    Offset,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import ShardKey, Start
from kinesumer.spark.planning.bounds import first_offset
from kinesumer.spark.planning.stream_plan import StreamPlan, Targets
from kinesumer.spark.planning.stream_state import StreamState
from kinesumer.spark.runtime.event_loop import for_each

WRONG_END = (
    "an earlier version of kinesumer took an answer for the end of the shard, which is "
    "open; with failOnDataLoss=false they are read after all, and the last records "
    "before them may come twice"
)


async def plan_batch(
    start: Offset,
    streams: Sequence[StreamState],
    starting: Callable[[StreamState], Start | StreamOffset],
    limits: Limits,
    *,
    skew_seconds: float = inf,
    targets: Targets | None = None,
) -> Offset | None:
    """Return the end of the batch that begins at a committed offset.

    None if there is nothing new. The end keeps the positions in streams that the query
    doesn't read now, so that it continues there when it reads them again. The records
    that a batch reads in different shards should have arrived at most ``skew_seconds``
    apart. If that is longer than the retention, it has no effect.
    """
    if skew_seconds > max(stream.retention_seconds for stream in streams):
        skew_seconds = inf
    plans = [
        StreamPlan(stream, _begin(start, stream, starting), targets)
        for stream in streams
    ]
    shards = [(plan, shard) for plan in plans for shard in plan.readable]
    together = skew_seconds < inf and any(shard.ends for _, shard in shards)
    max_jump_seconds = 0.0 if limits.any or together else skew_seconds
    await for_each(
        shards, lambda item: item[0].observe(item[1], limits, max_jump_seconds)
    )
    now = streams[0].service.earliest()
    arrivals: dict[ShardKey, float] = {}
    if skew_seconds < inf:
        for plan in plans:
            arrivals |= await plan.first_arrivals(now)
    observed = [shard for plan in plans for shard in plan.observed.values()]
    chosen = choose(observed, arrivals, limits, skew_seconds, now)

    async def finish(item: tuple[StreamPlan, Readable]) -> None:
        plan, readable = item
        key = ShardKey(plan.stream.arn, readable.shard.shard_id)
        await plan.finish(readable, chosen, arrivals.get(key, inf), now)

    await for_each(shards, finish)
    ends = {plan.stream.arn: plan.end(now) for plan in plans}
    if start.keys() >= ends.keys() and not any(changed for _, changed in ends.values()):
        return None
    unread = {arn: replace(start[arn], origin={}) for arn in start.keys() - ends.keys()}
    return unread | {arn: offset for arn, (offset, _) in ends.items()}


def _begin(
    start: Offset,
    stream: StreamState,
    starting: Callable[[StreamState], Start | StreamOffset],
) -> StreamOffset:
    info = stream.info
    before = start.get(info.arn)
    if before is None:
        return first_offset(stream, starting(stream))
    # A recreated stream has the same ARN and shard ids. Only the
    # creation time differs.
    if before.created_at != info.created_at:
        stream.report_loss("", None, "the stream was recreated")
        return first_offset(stream, BEGINNING)
    return _without_wrong_ends(replace(before, origin={}), stream)


def _without_wrong_ends(before: StreamOffset, stream: StreamState) -> StreamOffset:
    """Return the offset with a Start in place of each End in an open shard.

    Earlier versions took some answers for the end of an open shard. A Start repeats the
    last records, and an older batch cannot be planned again, so this counts as a loss.
    """
    starts: dict[str, ShardPosition] = {}
    for shard_id in stream.wrong_ends(before.shards):
        end = before.shards[shard_id]
        assert isinstance(end, End)
        stream.report_loss(shard_id, end, WRONG_END)
        seen = end.seen or before.anchored_at
        starts[shard_id] = Start(type="AT_TIMESTAMP", timestamp=seen)
    return replace(before, shards={**before.shards, **starts}, origin=starts)

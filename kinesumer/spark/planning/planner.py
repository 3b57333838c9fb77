"""Plans the end of a batch over all streams, so that all shards advance together.

A row that is read batches after newer ones falls behind a query's watermark. So while a
backlog is read, a batch ends at one time in all shards. A child is read in the batch
after its parents' end: the batch ends soon after the child's first record.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING

from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.spark.offsets.model import BEGINNING, END, End, StreamOffset
from kinesumer.spark.planning.limits import Limits, admit
from kinesumer.spark.planning.shard_order import readable, still_needed, vanished
from kinesumer.spark.planning.shard_plan import ShardPlan
from kinesumer.spark.planning.start_offsets import anchor
from kinesumer.spark.runtime.event_loop import for_each, with_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kinesumer.model.streams import Start
    from kinesumer.spark.offsets.model import Offset, ShardPosition, StreamOffset
    from kinesumer.spark.planning.limits import Share
    from kinesumer.spark.planning.probe import ProbeResult
    from kinesumer.spark.planning.shard_order import Readable
    from kinesumer.spark.planning.stream_state import PlanContext, StreamState

Targets = dict[str, dict[str, "ShardPosition"]]
"""The ends of Trigger.AvailableNow, by stream and shard. A shard without a target is
left for the next run."""


class Planner:
    """Plans a query's batches."""

    def __init__(self, context: PlanContext) -> None:
        self.context = context

    async def plan(
        self,
        start: Offset,
        streams: Sequence[StreamState],
        starting: Callable[[StreamState], Start | StreamOffset],
        limits: Limits,
        targets: Targets | None = None,
    ) -> Offset | None:
        """Return the end of the batch that begins at a committed offset.

        None if there is nothing new.
        """
        most = max((stream.retention_seconds for stream in streams), default=inf)
        if self.context.skew_seconds > most:
            self.context = self.context._replace(skew_seconds=inf)
        before = {}
        for stream in streams:
            before[stream.info.arn] = self._begin(start, stream, starting)
        work = {
            stream.info.arn: self._advances(stream, before[stream.info.arn], targets)
            for stream in streams
        }
        all_of_them = [item for items in work.values() for item in items]
        together = self.context.skew_seconds < inf
        parents = together and any(item.ends_whole for item in all_of_them)
        await for_each(all_of_them, lambda item: item.observe(limits, together=parents))
        until = await horizon(streams, before, work, self.context)
        shares = _shares(work, limits, until)
        await for_each(all_of_them, lambda item: item.cut(shares(item)))
        after = {
            stream.info.arn: self._finish(
                stream, before[stream.info.arn], work[stream.info.arn]
            )
            for stream in streams
        }
        is_new = set(start) != set(after)
        if not is_new and all(offset is None for offset in after.values()):
            return None
        return {
            arn: _refreshed(before[arn], work[arn]) if offset is None else offset
            for arn, offset in after.items()
        }

    def _begin(
        self,
        start: Offset,
        stream: StreamState,
        starting: Callable[[StreamState], Start | StreamOffset],
    ) -> StreamOffset:
        info = stream.info
        before = start.get(info.arn)
        if before is None:
            return anchor(info, stream.shards, starting(stream))
        if before.created_at != info.created_at:
            self.context.loss.report(info.arn, "", None, "the stream was recreated")
            return anchor(info, stream.shards, BEGINNING)
        return replace(before, origin={})

    def _advances(
        self, stream: StreamState, before: StreamOffset, targets: Targets | None
    ) -> list[ShardPlan]:
        arn = stream.info.arn
        found = []
        for item in readable(before, stream.shards):
            target = None
            if targets is not None:
                target = targets.get(arn, {}).get(item.shard.shard_id)
                if target is None:
                    continue
            begins = bool(before.origin)
            found.append(ShardPlan(stream, item, self.context, target, begins=begins))
        return found

    def _finish(
        self, stream: StreamState, before: StreamOffset, work: Sequence[ShardPlan]
    ) -> StreamOffset | None:
        """Return a stream's positions after the batch; None if they are unchanged."""
        lost = {item.shard_id for item in work if item.lost}
        for shard_id in vanished(before, stream.shards):
            place = before.shards[shard_id]
            reason = "Kinesis no longer knows the shard"
            self.context.loss.report(stream.info.arn, shard_id, place, reason)
            lost.add(shard_id)
        if any(isinstance(item.place, End) for item in work):
            stream.reshards()
        open_ones = [item for item in work if not isinstance(item.place, End)]
        stream.keep_only(item.shard_id for item in open_ones)
        for item in open_ones:
            if item.probed is not None or item.moved:
                stream.lag_seconds[item.shard_id] = item.behind_seconds
        changed = (
            lost
            or before.origin
            or any(
                item.moved or (item.is_stale and item.confirmed_position is not None)
                for item in work
            )
        )
        if not changed:
            return None
        places = still_needed(_refreshed(before, work), stream.shards)
        for item in work:
            if item.moved:
                places[item.shard_id] = item.place
        for shard_id in lost:
            places.pop(shard_id, None)
        anew = {i.shard_id: i.restarted_at for i in work if i.restarted_at is not None}
        return replace(before, shards=places, origin={**before.origin, **anew})


def _refreshed(before: StreamOffset, work: Sequence[ShardPlan]) -> StreamOffset:
    confirmed_position: dict[str, ShardPosition] = {}
    for item in work:
        place = item.confirmed_position
        if place is not None:
            confirmed_position[item.shard_id] = place
    return replace(before, shards={**before.shards, **confirmed_position})


def _shares(
    work: Mapping[str, Sequence[ShardPlan]], limits: Limits, until: float
) -> Callable[[ShardPlan], Share | None]:
    if not limits.any and until == inf:
        return lambda item: None
    by_key = {
        (arn, item.shard_id): item for arn, items in work.items() for item in items
    }
    samples = {
        key: sample
        for key, item in by_key.items()
        if (sample := item.sample_up_to(until)) is not None
    }
    admitted = admit(samples, limits, until) if samples else {}
    shares = {id(by_key[key]): share for key, share in admitted.items()}
    return lambda item: shares.get(id(item))


async def horizon(
    streams: Sequence[StreamState],
    before: Mapping[str, StreamOffset],
    work: Mapping[str, Sequence[ShardPlan]],
    context: PlanContext,
) -> float:
    """Return the common end of a batch; inf if no shard has a backlog.

    The shards of ``work`` have been probed. If the batch must end before now, ends that
    are chosen already are undone.
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
    stream: StreamState,
    before: StreamOffset,
    items: Sequence[ShardPlan],
    context: PlanContext,
) -> Collection[float]:
    """Return the time just before the first record of each parent's children.

    Set ``ended_by`` of the parents.
    """
    by_id = {item.shard_id: item for item in items}
    ended: dict[str, ShardPosition] = {i.shard_id: END for i in items if i.ends_whole}
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

        async def find_begin(child: Readable) -> None:
            waiting[child.shard.shard_id] = await _begins(stream, child, context)

        await for_each(children, find_begin)
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


async def _begins(stream: StreamState, child: Readable, context: PlanContext) -> float:
    """Return the time just before a shard's first record; inf if there is none."""
    shard_id = child.shard.shard_id
    known = stream.first_arrivals.get(shard_id, inf)
    if known < inf:
        return known

    async def ask(place: ShardPosition) -> ProbeResult:
        probe = stream.probe(shard_id)
        return await with_retries(lambda: probe.next_after(place, 1), context.clock)

    try:
        result = await ask(child.place)
    except TrimmedPositionError:
        result = await ask(BEGINNING)
    except ShardMissingError:
        return inf
    return nextafter(result.records[0].arrived_at, -inf) if result.records else inf

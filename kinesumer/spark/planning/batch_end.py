"""Plans the end of a batch over all streams, so that all shards advance together.

If a row is read some batches after newer rows, it may be behind Spark's watermark. So
while there is a backlog, a batch ends at the same arrival time in all shards. Children
are read only in the batch after the one that reads their parents to their ends. So the
earlier batch ends soon after the arrival of the children's first record.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING

from kinesumer.core.lineage import ancestors, is_complete
from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, END, End, StreamOffset
from kinesumer.spark.planning.bounds import first_offset
from kinesumer.spark.planning.data_loss import seen_at
from kinesumer.spark.planning.limits import admit
from kinesumer.spark.planning.shard_plan import UNKNOWN_SHARD, Readable, ShardPlan
from kinesumer.spark.runtime.event_loop import for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kinesumer.model.streams import Shard, ShardKey
    from kinesumer.spark.offsets.model import Offset, ShardPosition
    from kinesumer.spark.planning.limits import Limits, Share
    from kinesumer.spark.planning.stream_state import StreamState

WRONG_END = (
    "an earlier version of kinesumer took an answer for the end of the shard, which is "
    "open; with failOnDataLoss=false they are read after all, and the last records "
    "before them may come twice"
)
# Where a run with Trigger.AvailableNow ends, by stream and shard. This run doesn't read
# a shard that has no target.
Targets = dict[str, dict[str, "ShardPosition"]]


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
    shards = [shard for plan in plans for shard in plan.shards]
    together = skew_seconds < inf and any(shard.ends_whole for shard in shards)
    await for_each(
        shards, lambda shard: shard.observe(limits, skew_seconds, together=together)
    )
    until = inf
    if skew_seconds < inf:
        until = await _common_end(plans, shards, skew_seconds)
    shares = _shares(shards, limits, until)
    await for_each(shards, lambda shard: shard.cut(shares.get(shard.key)))
    ends = {plan.stream.arn: plan.end() for plan in plans}
    if start.keys() >= ends.keys() and not any(ends.values()):
        return None
    unread = {arn: replace(start[arn], origin={}) for arn in start.keys() - ends.keys()}
    read = {plan.stream.arn: ends[plan.stream.arn] or plan.refreshed for plan in plans}
    return unread | read


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


async def _common_end(
    plans: Sequence[StreamPlan], shards: Sequence[ShardPlan], skew_seconds: float
) -> float:
    """Return the arrival time at which a batch ends in all shards.

    Return inf if no shard has a backlog. If the batch must end before the current time,
    undo the ends that shards have chosen. The shards must have been probed.
    """
    now = plans[0].stream.service.earliest()
    begins = [time for plan in plans for time in await plan.find_children_begin()]
    unknown = min((shard.since for shard in shards if shard.refused), default=inf)
    # The batch ends at the first record of a child, or up to ``skew_seconds`` later if
    # other children begin meanwhile. So one batch can read several parents to the end.
    latest = min(begins, default=inf) + skew_seconds
    children = max((time for time in begins if time <= latest), default=inf)
    until = min(now, unknown + skew_seconds, children)
    if until < now:
        for shard in shards:
            shard.hold()
    elif all(
        shard.since + skew_seconds >= now
        for shard in shards
        if shard.sample is not None
    ):
        return inf
    return until


def _shares(
    shards: Iterable[ShardPlan], limits: Limits, until: float
) -> Mapping[ShardKey, Share]:
    if not limits.any and until == inf:
        return {}
    samples = {
        shard.key: sample
        for shard in shards
        if (sample := shard.sample_up_to(until)) is not None
    }
    return admit(samples, limits, until)


class StreamPlan:
    """Plans what the batch of one trigger reads in one stream."""

    stream: StreamState

    def __init__(
        self, stream: StreamState, before: StreamOffset, targets: Targets | None
    ) -> None:
        self.stream, self._before = stream, before
        self.shards: list[ShardPlan] = []
        begins = bool(before.origin)
        for item in readable(before, stream.shards):
            target = None
            if targets is not None:
                target = targets.get(stream.arn, {}).get(item.shard.shard_id)
                if target is None:
                    continue
            self.shards.append(ShardPlan(stream, item, target, begins=begins))

    @property
    def refreshed(self) -> StreamOffset:
        """The batch's start, with later times for positions in quiet shards."""
        confirmed = {
            shard.shard_id: position
            for shard in self.shards
            if (position := shard.confirmed_position) is not None
        }
        return replace(self._before, shards={**self._before.shards, **confirmed})

    def end(self) -> StreamOffset | None:
        """Return the positions after the batch, or None if the batch changes none."""
        stream, before = self.stream, self._before
        lost = {shard.shard_id for shard in self.shards if shard.lost}
        for shard_id in vanished(before, stream.shards):
            stream.report_loss(shard_id, before.shards[shard_id], UNKNOWN_SHARD)
            lost.add(shard_id)
        still_open = [s for s in self.shards if not isinstance(s.end, End)]
        if len(still_open) < len(self.shards):
            stream.reshards()
        stream.keep_only(shard.shard_id for shard in still_open)
        for shard in still_open:
            if shard.probed is not None or shard.moved:
                stream.lag_seconds[shard.shard_id] = shard.behind_seconds
        moved = {shard.shard_id: shard.end for shard in self.shards if shard.moved}
        confirms = any(
            shard.is_stale and shard.confirmed_position is not None
            for shard in self.shards
        )
        if not (lost or before.origin or moved or confirms):
            return None
        positions = {**still_needed(self.refreshed, stream.shards), **moved}
        restarted = {
            shard.shard_id: shard.restarted_at
            for shard in self.shards
            if shard.restarted_at is not None
        }
        return replace(
            before,
            shards={i: p for i, p in positions.items() if i not in lost},
            origin={**before.origin, **restarted},
        )

    async def find_children_begin(self) -> Iterable[float]:
        """Return when the children of the shards that end in this batch begin.

        For each shard that ends, this is the time just before its children's first
        record, or inf if they have no records. Set ``ended_by`` of the shard.
        """
        by_id = {shard.shard_id: shard for shard in self.shards}
        ended: dict[str, ShardPosition] = {
            shard.shard_id: END for shard in self.shards if shard.ends_whole
        }
        firsts = dict.fromkeys(ended, inf)
        waiting: dict[str, float] = {}
        # A closed child without records ends in this batch, too, and its own children
        # are then searched for records. Key: a shard that ends. Value: the shards that
        # this batch reads to their ends and from which the key descends.
        roots = {shard_id: {shard_id} for shard_id in ended}
        parents = set(ended)

        async def find_begin(child: Readable) -> None:
            waiting[child.shard.shard_id] = await self._find_begin(child)

        while parents:
            offset = replace(self._before, shards={**self._before.shards, **ended})
            children = [
                child
                for child in readable(offset, self.stream.shards)
                if child.shard.shard_id not in by_id.keys() | waiting.keys()
                and parents.intersection(child.shard.parents)
            ]
            await for_each(children, find_begin)
            parents = set()
            for child in children:
                shard_id, begins = child.shard.shard_id, waiting[child.shard.shard_id]
                of_child = {
                    root for p in child.shard.parents for root in roots.get(p, ())
                }
                for root in of_child:
                    firsts[root] = min(begins, firsts[root])
                if child.shard.closed and begins == inf:
                    roots[shard_id] = of_child
                    parents.add(shard_id)
            ended.update(dict.fromkeys(parents, END))
        now = self.stream.service.earliest()
        for shard_id, first in firsts.items():
            by_id[shard_id].ended_by = min(now, first)
        self.stream.first_arrivals = waiting
        return firsts.values()

    async def _find_begin(self, child: Readable) -> float:
        """Return the time just before a child's first record, or inf if it has none."""
        shard_id, stream = child.shard.shard_id, self.stream
        known = stream.first_arrivals.get(shard_id, inf)
        if known < inf:
            return known
        probe = stream.probe(shard_id)
        try:
            result = await stream.retry(probe.next_after, child.position, 1)
        except TrimmedPositionError:
            result = await stream.retry(probe.next_after, BEGINNING, 1)
        except ShardMissingError:
            return inf
        # A batch includes records that arrive exactly at its end. So that it excludes
        # this record, it must end a moment before.
        return nextafter(result.records[0].arrived_at, -inf) if result.records else inf


def readable(offset: StreamOffset, shards: Sequence[Shard]) -> list[Readable]:
    """Return the shards that the batch after a committed offset may read.

    All parents of such a shard have expired or been read to their ends. A shard that
    isn't in the offset is read from its beginning. But if the offset contains
    descendants of the shard, the shard has been read already, and isn't returned.
    """
    known = offset.shards
    parents = {shard.shard_id: shard.parents for shard in shards}
    read = ancestors(known, parents)

    def is_done(parent: str) -> bool:
        if parent in known:
            return isinstance(known[parent], End)
        return parent not in parents or parent in read

    result = []
    for shard in shards:
        position = known.get(shard.shard_id)
        if isinstance(position, End) or (position is None and shard.shard_id in read):
            continue
        if all(map(is_done, shard.parents)):
            result.append(Readable(shard, position or BEGINNING, _seen(offset, shard)))
    return result


def _seen(offset: StreamOffset, shard: Shard) -> float:
    """Return a time before which none of a shard's unread records arrived.

    This is the time of the shard's position. If the offset has no position in the
    shard, it is the time of its parents' ends.
    """
    position = offset.shards.get(shard.shard_id)
    if position is not None:
        seen = seen_at(position)
        return offset.anchored_at if seen is None else seen
    ends = [offset.shards.get(parent) for parent in shard.parents]
    times = [end.seen for end in ends if isinstance(end, End) and end.seen]
    return min(times, default=offset.anchored_at)


def vanished(offset: StreamOffset, shards: Sequence[Shard]) -> list[str]:
    """Return the shards that expired before they were read to their ends."""
    omitted = _omitted(offset, shards)
    return [i for i in omitted if not isinstance(offset.shards[i], End)]


def still_needed(
    offset: StreamOffset, shards: Sequence[Shard]
) -> dict[str, ShardPosition]:
    """Return an offset's positions, except in fully read shards that have expired."""
    omitted = set(_omitted(offset, shards))
    return {
        shard_id: position
        for shard_id, position in offset.shards.items()
        if shard_id not in omitted or not isinstance(position, End)
    }


def _omitted(offset: StreamOffset, shards: Sequence[Shard]) -> list[str]:
    """Return the shards of an offset that Kinesis no longer lists.

    Return none of them if the listing is incomplete, or if it is older than the offset.
    It is older if the offset contains a greater shard id.
    """
    listed = {shard.shard_id for shard in shards}
    if not is_complete(shards) or max(offset.shards, default="") > max(listed):
        return []
    return [shard_id for shard_id in offset.shards if shard_id not in listed]

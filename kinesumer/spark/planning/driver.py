"""Plans the batches of a query over all its streams, in Spark's driver.

``core/batch_plan.py`` has the rules.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from kinesumer.core.batch_plan import choose
from kinesumer.core.batch_ranges import (
    MAX_BYTES_PER_SECOND,
    Limits,
    Pair,
    Readable,
    between,
    seen_at,
)
from kinesumer.core.pacing import CAUGHT_UP_SECONDS
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import (
    BEGINNING,
    After,
    At,
    End,
    Offset,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import ShardKey, Start, Stream, as_start
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.clock import ServiceTime, SystemClock
from kinesumer.runtime.failure_log import logger
from kinesumer.spark.filters import ANY_ROW, PushedFilters
from kinesumer.spark.options.parser import FromCheckpoint, ReadOptions
from kinesumer.spark.planning.bounds import (
    bounds,
    first_offset,
    positions_in,
    require_known_streams,
)
from kinesumer.spark.planning.data_loss import DataLoss
from kinesumer.spark.planning.search import last_positions
from kinesumer.spark.planning.stream_plan import StreamPlan, Targets
from kinesumer.spark.planning.stream_state import StreamState
from kinesumer.spark.planning.tasks import ShardRange, Task, pack
from kinesumer.spark.process import for_each

WRONG_END = (
    "an earlier version of kinesumer took an answer for the end of the shard, which is "
    "open; with failOnDataLoss=false they are read after all, and the last records "
    "before them may come twice"
)
# The minimum seconds between two plans. A plan probes shards, and Kinesis allows only
# five reads per second and shard. The tasks need most of them.
# With a read in each plan, less than half of the five are the driver's.
PROBE_SECONDS = 0.45
UNKNOWN_RETENTION_SECONDS = 86_400.0  # AWS's least and default
# If a query begins with the oldest records, some may expire before it can read them.
# For this long after the query's begin, that isn't reported as a loss. It is as long as
# a task waits for Kinesis (GIVE_UP_SECONDS).
BEGINNING_SECONDS = 600.0


class Driver:
    """Plans batches for Spark. All calls must be made on the same event loop."""

    def __init__(
        self,
        options: ReadOptions,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        # The function that reads the group's positions for startingPosition=checkpoint.
        self.stored: Callable[[], Awaitable[Offset]] | None = None
        # The function that finds or registers the consumer of a stream with a fan_out.
        self.find_consumer: Callable[[Stream], Awaitable[str]] | None = None
        # The function that returns how many apps of the state store poll a stream.
        self.apps: Callable[[str], int] = lambda _arn: 1
        self._stored: Offset = {}
        self._loss = DataLoss(fail=options.fail_on_data_loss)
        self._open_source = open_source
        self._clock = SystemClock() if clock is None else clock
        self._service = ServiceTime(self._clock)
        self._streams: dict[Stream, StreamState] = {}
        self._pause_seconds = PROBE_SECONDS
        self._planned_at = -inf
        self._targets: Targets | None = None
        # The streams of the checkpoint that the options don't name, once logged.
        self._unread: set[str] = set()

    async def latest(self, start: Offset, limits: Limits) -> Offset | None:
        """Return the end of the batch after ``start``; None if nothing is new."""
        return await self._plan(start, limits, self.options.max_skew_per_batch)

    async def all_there_is(self, start: Offset) -> Offset | None:
        """Return the end of the only batch of a query with ``Trigger.Once``."""
        await self.fix_targets()
        return await self._plan(start, Limits(), inf)

    async def _plan(
        self, start: Offset, limits: Limits, skew_seconds: float
    ) -> Offset | None:
        await asyncio.sleep(
            max(0.0, self._planned_at + self._pause_seconds - self._clock.now())
        )
        self._planned_at = self._clock.now()
        streams = await self._refreshed()
        for arn in start.keys() - {stream.arn for stream in streams} - self._unread:
            self._unread.add(arn)
            logger.warning(
                "the query doesn't read stream %s now; the checkpoint keeps its "
                "position, and the query continues there when it reads it again",
                arn,
            )
        new = [stream for stream in streams if stream.arn not in start]
        is_from_group = isinstance(self.options.starting, FromCheckpoint)
        if new and is_from_group and self.stored is not None:
            self._stored = await self.stored()
        at_latest = [stream for stream in new if self._starting(stream) == Start.LATEST]
        await asyncio.gather(*(stream.resolve_now() for stream in at_latest))
        return await self._plan_batch(start, streams, limits, skew_seconds)

    async def _plan_batch(
        self,
        start: Offset,
        streams: Sequence[StreamState],
        limits: Limits,
        skew_seconds: float,
    ) -> Offset | None:
        """Return the end of the batch that begins at a committed offset.

        None if there is nothing new. The end keeps the positions in streams that the
        query doesn't read now. The records that a batch reads in different shards
        should have arrived at most ``skew_seconds`` apart. If that is longer than the
        retention, it has no effect.
        """
        if skew_seconds > max(stream.retention_seconds for stream in streams):
            skew_seconds = inf
        plans = [
            StreamPlan(stream, self._begin(start, stream), self._targets)
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
        unread = {i: replace(start[i], origin={}) for i in start.keys() - ends.keys()}
        if start.keys() >= ends.keys() and not any(new for _, new in ends.values()):
            return None
        return unread | {arn: offset for arn, (offset, _) in ends.items()}

    def _begin(self, start: Offset, stream: StreamState) -> StreamOffset:
        info = stream.info
        before = start.get(info.arn)
        if before is None:
            return first_offset(stream, self._starting(stream))
        # A recreated stream has the same ARN and shard ids. Only the creation time
        # differs.
        if before.created_at != info.created_at:
            stream.report_loss("", None, "the stream was recreated")
            return first_offset(stream, BEGINNING)
        return _without_wrong_ends(replace(before, origin={}), stream)

    async def fix_targets(self) -> None:
        """Fix the query's end at the present newest records, for ``AvailableNow``."""
        # List the shards again: this run wouldn't read a shard without a target.
        streams = await self._refreshed(now=True)
        self._targets = {stream.arn: await last_positions(stream) for stream in streams}

    async def partitions(self, start: Offset, end: Offset) -> list[Task]:
        """Return the tasks of a batch. The two offsets fully determine its records."""
        streams = {stream.arn: stream for stream in await self._refreshed()}
        ranges: list[ShardRange] = []
        for arn, pairs in between(start, end).items():
            stream = streams.get(arn)
            if stream is not None and stream.info.created_at != end[arn].created_at:
                stream.report_loss("", None, "the stream was recreated")
                continue
            ranges += await self._ranges(arn, pairs, stream, end[arn].anchored_at)
        return self._tasks(ranges, streams)

    async def bounded(self, pushed: PushedFilters = ANY_ROW) -> list[Task]:
        """Return the tasks of a bounded read (``spark.read``) with these filters."""
        ranges: list[ShardRange] = []
        streams = {stream.arn: stream for stream in await self._refreshed()}
        require_known_streams("endingPosition", self.options.ending, streams.values())
        for arn, stream in sorted(streams.items()):
            if not pushed.has_stream(arn):
                continue
            first = first_offset(stream, self._starting(stream))
            pairs = await bounds(stream, first, self._ending(stream), pushed)
            ranges += await self._ranges(arn, pairs, stream, first.anchored_at)
        return self._tasks(ranges, streams)

    async def _ranges(
        self,
        arn: str,
        pairs: Mapping[str, Pair],
        stream: StreamState | None,
        anchored_at: float,
    ) -> list[ShardRange]:
        """Return ranges of shards. Report data loss if records have expired."""
        expiring_until = anchored_at + BEGINNING_SECONDS
        now = self._service.latest()
        ranges = []
        for shard_id, pair in pairs.items():
            first, _ = pair
            seen = seen_at(first)
            if stream is not None and seen is not None:
                if isinstance(first, After) or now >= expiring_until:
                    await stream.check_retention(shard_id, first, seen)
            ranges.append(_range(arn, shard_id, pair, stream, expiring_until))
        return ranges

    def _tasks(
        self, ranges: list[ShardRange], streams: dict[str, StreamState]
    ) -> list[Task]:
        """Return tasks with the ranges, each with the streams of its own ranges."""
        max_tasks = self.options.max_partitions or os.cpu_count() or 1
        named = {
            arn: replace(
                s.requested, name=arn, region=None, start=None, fan_out=s.consumer_arn
            )
            for arn, s in streams.items()
        }
        tasks = []
        for part in pack(ranges, max_tasks):
            arns = sorted({item.stream_arn for item in part})
            tasks.append(Task(tuple(named.get(a, Stream(a)) for a in arns), part))
        return tasks

    def report(self) -> dict[str, Any]:
        """Return the lag of each stream, which Spark shows in the query's progress."""
        streams = self._streams.values()
        return {
            "data_losses": self._loss.count,
            "streams": {stream.arn: stream.progress() for stream in streams},
        }

    async def _refreshed(self, *, now: bool = False) -> list[StreamState]:
        async def refresh(requested: Stream) -> StreamState:
            stream = self._streams.get(requested)
            if stream is None:
                source = await self._open_source(replace(requested, fan_out=None))
                stream = StreamState(
                    requested,
                    source,
                    self._clock,
                    self._service,
                    self._loss,
                    min(CAUGHT_UP_SECONDS, self.options.min_fetch_period),
                )
            await stream.refresh(now=now)
            if requested.fan_out is not None and self.find_consumer is not None:
                await stream.find_consumer(self.find_consumer)
            self._streams[requested] = stream
            stream.apps = self.apps(stream.arn)
            return stream

        streams = await asyncio.gather(*map(refresh, self.options.streams))
        arns = [stream.arn for stream in streams]
        for arn in arns:
            if arns.count(arn) > 1:
                raise ConfigurationError(
                    f"option streams names {arn} twice: name it once"
                )
        return streams

    def _starting(self, stream: StreamState) -> Start | StreamOffset:
        arn, starting = stream.arn, self.options.starting
        if isinstance(starting, FromCheckpoint):
            if arn in self._stored:
                return self._stored[arn]
            raise ConfigurationError(
                f"startingPosition=checkpoint: the state store holds no positions of "
                f"stream {arn}; use another startingPosition"
            )
        positions = self.options.starting_positions
        require_known_streams("startingPosition", positions, self._streams.values())
        offset = positions and positions_in(positions, stream)
        if offset:
            return offset
        own = stream.requested.start
        return starting if own is None else as_start(own)

    def _ending(self, stream: StreamState) -> Start | StreamOffset | None:
        """Return where a bounded read ends in a stream. Raises ConfigurationError."""
        ending = self.options.ending
        if ending is None or isinstance(ending, Start):
            return ending
        offset = positions_in(ending, stream)
        if offset is None:
            raise ConfigurationError(
                f"endingPosition has no entry for stream {stream.arn}; add one"
            )
        return offset


def _range(
    arn: str,
    shard_id: str,
    pair: Pair,
    stream: StreamState | None,
    expiring_until: float,
) -> ShardRange:
    first, last = pair
    span = 1.0
    if isinstance(first, After | At) and isinstance(last, After):
        span = max(0.0, last.seen - first.seen)
    place = arn, shard_id, first, last
    if stream is None:
        size = int(MAX_BYTES_PER_SECOND * span)
        return ShardRange(*place, UNKNOWN_RETENTION_SECONDS, size, expiring_until)
    size = stream.estimate_bytes(shard_id, last, span)
    subscribes = stream.subscribes(shard_id, size)
    retention = stream.retention_seconds
    return ShardRange(*place, retention, size, expiring_until, subscribes, stream.apps)


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

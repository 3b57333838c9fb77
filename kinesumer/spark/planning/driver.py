"""The planning of a query in Spark's driver."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start, Stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.spark.offsets.model import After, At, StreamOffset
from kinesumer.spark.options.parser import FromCheckpoint
from kinesumer.spark.planning.bounds import EndingPosition, bounds, targets
from kinesumer.spark.planning.data_loss import (
    DataLoss,
    seen_at,
)
from kinesumer.spark.planning.limits import Limits
from kinesumer.spark.planning.planner import Planner
from kinesumer.spark.planning.probe import ServiceClock
from kinesumer.spark.planning.start_offsets import (
    anchor,
    positions_for,
    require_known_streams,
)
from kinesumer.spark.planning.stream_state import (
    UNKNOWN_BYTES_PER_SECOND,
    UNKNOWN_SECONDS,
    PlanContext,
    StreamState,
    report,
)
from kinesumer.spark.planning.tasks import ShardRange, Task, between, pack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kinesumer.ports import Clock, StreamSource
    from kinesumer.spark.offsets.model import Offset, ShardPosition
    from kinesumer.spark.options.parser import ReadOptions
    from kinesumer.spark.planning.planner import Targets

logger = logging.getLogger("kinesumer.spark")

PROBE_SECONDS = 0.45
"""Minimum seconds between plans: readers need most of a shard's five reads a second."""
MAX_BYTES_PER_RANGE = 1 << 30
BEGINNING_SECONDS = 600.0
"""A query that begins with the oldest records competes with retention. For this long,
records that expire on time are not a loss."""


class Driver:
    """Plans batches for Spark. Belongs to one event loop."""

    def __init__(
        self,
        options: ReadOptions,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
        clock: Clock | None = None,
        *,
        pause_seconds: float = PROBE_SECONDS,
    ) -> None:
        self.options = options
        self.loss = DataLoss(fail=options.fail_on_data_loss)
        self.stored: Callable[[], Awaitable[Offset]] | None = None
        """Reads the group's positions, for ``startingPosition=checkpoint``."""
        self._stored: Offset = {}
        self._open_source = open_source
        self._clock = SystemClock() if clock is None else clock
        self._service = ServiceClock(self._clock)
        self._streams: dict[str, StreamState] = {}
        self._pause_seconds = pause_seconds
        self._planned_at: float | None = None
        self._targets: Targets | None = None

    async def latest(self, start: Offset, limits: Limits) -> Offset | None:
        """Return the end of the batch after ``start``; None if nothing is new."""
        context = self._context._replace(skew_seconds=self.options.max_skew_per_batch)
        return await self._plan(start, limits, context)

    async def _plan(
        self, start: Offset, limits: Limits, context: PlanContext
    ) -> Offset | None:
        await self._pause()
        streams = await self._refreshed()
        gone = start.keys() - {stream.info.arn for stream in streams}
        for arn in gone:
            logger.warning("the query no longer reads stream %s", arn)
        if (
            isinstance(self.options.starting, FromCheckpoint)
            and self.stored is not None
        ):
            if any(stream.info.arn not in start for stream in streams):
                self._stored = await self.stored()
        new = [stream for stream in streams if stream.info.arn not in start]
        await asyncio.gather(
            *(s.resolve_now() for s in new if self._starts_at_latest(s))
        )
        return await Planner(context).plan(
            start, streams, self._starting, limits, self._targets
        )

    async def all_there_is(self, start: Offset) -> Offset | None:
        """Return the end of a query's only batch: ``Trigger.Once``."""
        await self.fix_targets()
        return await self._plan(start, Limits(), self._context)

    async def fix_targets(self) -> None:
        """Let batches end at the records that exist now: ``Trigger.AvailableNow``."""
        streams = await self._refreshed(now=True)
        self._targets = {
            stream.info.arn: await targets(stream, self._context) for stream in streams
        }

    async def partitions(self, start: Offset, end: Offset) -> list[Task]:
        """Return the tasks of a batch. The offsets alone determine their records."""
        streams = {stream.info.arn: stream for stream in await self._refreshed()}
        ranges: list[ShardRange] = []
        for arn, pairs in between(start, end).items():
            stream = streams.get(arn)
            until = end[arn].anchored_at + BEGINNING_SECONDS
            if stream is not None:
                if self._is_recreated(stream, end[arn]):
                    continue
                await self._check_retention(stream, pairs, until)
            ranges += (_range(arn, i, p, stream, until) for i, p in pairs.items())
        return self._tasks(ranges, streams)

    async def bounded(self) -> list[Task]:
        """Return the tasks of a bounded read: ``spark.read``."""
        ranges: list[ShardRange] = []
        streams = {stream.info.arn: stream for stream in await self._refreshed()}
        self._require_known("endingPosition", self.options.ending)
        for arn, stream in sorted(streams.items()):
            first = anchor(stream.info, stream.shards, self._starting(stream))
            ending = _ending_of(self.options.ending, stream)
            pairs = await bounds(stream, first, ending, self._context)
            until = first.anchored_at + BEGINNING_SECONDS
            await self._check_retention(stream, pairs, until)
            ranges += (_range(arn, i, p, stream, until) for i, p in pairs.items())
        return self._tasks(ranges, streams)

    def _tasks(
        self, ranges: list[ShardRange], streams: dict[str, StreamState]
    ) -> list[Task]:
        most = self.options.max_partitions or _cores()
        return [_task(part, streams) for part in pack(ranges, most)]

    def report(self) -> dict[str, Any]:
        """Return what the query's progress shows."""
        return report(self._streams.values(), self.loss.count)

    async def _pause(self) -> None:
        now = self._clock.now()
        if self._planned_at is not None:
            wait = self._planned_at + self._pause_seconds - now
            if wait > 0:
                await asyncio.sleep(wait)
        self._planned_at = self._clock.now()

    @property
    def _context(self) -> PlanContext:
        must_succeed = self._targets is not None
        return PlanContext(
            self._clock, self._service, self.loss, must_succeed=must_succeed
        )

    async def _refreshed(self, *, now: bool = False) -> list[StreamState]:
        async def refresh(requested: Stream) -> StreamState:
            stream = self._streams.get(requested.name)
            if stream is None:
                source = await self._open_source(requested)
                stream = StreamState(requested, source, self._clock, self._service)
                await stream.refresh()
                self._streams[requested.name] = stream
            else:
                await stream.refresh(now=now)
            return stream

        return list(await asyncio.gather(*map(refresh, self.options.streams)))

    def _starting(self, stream: StreamState) -> Start | StreamOffset:
        requested, arn = stream.requested, stream.info.arn
        starting = self.options.starting
        if isinstance(starting, FromCheckpoint):
            found = self._stored.get(arn)
            if found is None:
                raise ConfigurationError(
                    f"startingPosition=checkpoint: the state store holds no positions "
                    f"of stream {arn}"
                )
            return found
        positions = self.options.starting_positions
        self._require_known("startingPosition", positions)
        given = positions and positions_for(positions, [requested.name], arn)
        return given or requested.start or starting

    def _starts_at_latest(self, stream: StreamState) -> bool:
        return self._starting(stream) == Start.LATEST

    def _require_known(self, option: str, positions: Start | Offset | None) -> None:
        if isinstance(positions, dict):
            streams = self._streams.values()
            names = [(stream.requested.name, stream.info.arn) for stream in streams]
            require_known_streams(option, positions, names)

    async def _check_retention(
        self,
        stream: StreamState,
        pairs: Mapping[str, tuple[ShardPosition, ShardPosition]],
        expiring_until: float,
    ) -> None:
        """Report records that expired between planning a batch and its repetition."""
        now = self._service.latest()
        for shard_id, (first, _) in pairs.items():
            seen = seen_at(first)
            if seen is None:
                continue
            if now < expiring_until and not isinstance(first, After):
                continue
            await stream.check_retention(shard_id, first, seen, self.loss)

    def _is_recreated(self, stream: StreamState, planned: StreamOffset) -> bool:
        """Tell whether the stream was recreated after a batch was planned."""
        if stream.info.created_at == planned.created_at:
            return False
        self.loss.report(stream.info.arn, "", None, "the stream was recreated")
        return True


def _ending_of(ending: Start | Offset | None, stream: StreamState) -> EndingPosition:
    """Return the end of a read in a stream. Raises ConfigurationError."""
    if ending is None or isinstance(ending, Start):
        return ending
    found = positions_for(ending, [stream.requested.name], stream.info.arn)
    if found is None:
        raise ConfigurationError(
            f"endingPosition doesn't say where to end in stream {stream.info.arn}"
        )
    return found


def _cores() -> int:
    return os.cpu_count() or 1


def _range(
    arn: str,
    shard_id: str,
    pair: tuple[ShardPosition, ShardPosition],
    stream: StreamState | None,
    expiring_until: float,
) -> ShardRange:
    first, last = pair
    span, retention = UNKNOWN_SECONDS, 86_400.0
    if isinstance(first, After | At) and isinstance(last, After):
        span = max(0.0, last.seen - first.seen)
    size = int(UNKNOWN_BYTES_PER_SECOND * span)
    if stream is not None:
        retention = stream.retention_seconds
        size = stream.estimate_bytes(shard_id, last, span)
    size = min(size, MAX_BYTES_PER_RANGE)
    return ShardRange(arn, shard_id, first, last, retention, size, expiring_until)


def _task(ranges: tuple[ShardRange, ...], streams: dict[str, StreamState]) -> Task:
    arns = sorted({item.stream_arn for item in ranges})
    return Task(tuple(_reached(arn, streams.get(arn)) for arn in arns), ranges)


def _reached(arn: str, stream: StreamState | None) -> Stream:
    if stream is None:
        return Stream(arn)
    requested = stream.requested
    return Stream(
        arn,
        role_arn=requested.role_arn,
        external_id=requested.external_id,
        session_name=requested.session_name,
    )

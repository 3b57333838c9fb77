"""Define open streams, with their source, identity and start."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.core.backoff import DESCRIBE_SECONDS, LOOK_SECONDS
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.lineage import leaves
from kinesumer.errors import (
    ConfigurationError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import (
    FanOutUse,
    Shard,
    Start,
    Stream,
    StreamInfo,
    as_start,
    check_consumer,
    stream_name,
)
from kinesumer.model.times import Until
from kinesumer.model.validation import require_list
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.clock import ServiceTime, reached_time
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger

StreamLike = str | Stream
Streams = StreamLike | Sequence[StreamLike]


class ReadFailure(NamedTuple):
    """The period in which reads of a stream fail, by the event loop's clock."""

    since: float  # the start of the first failed read
    # The end of the last failed read. It may be long ago, since a reader that waits for
    # user code doesn't read.
    until: float
    shard_id: str  # the shard of the last failed read
    after: Position | Start


class OpenStream:
    """A stream that exists, and how to read it."""

    def __init__(
        self,
        stream: Stream,
        source: StreamSource,
        info: StreamInfo,
        start: Start,
        clock: Clock,
    ) -> None:
        self.stream, self.source, self.info, self.start = stream, source, info, start
        self.arn: str = info.arn
        self.name: str = stream_name(info.arn)
        self.label: str = f"stream {self.name}"
        # Bounds of Kinesis's time, taken from its descriptions of the stream.
        self.service_time: ServiceTime = ServiceTime(clock)
        self._clock = clock
        # The time of the last check that the stream wasn't recreated.
        self.confirmed_at = -math.inf
        self._confirming = asyncio.Lock()
        self._requested_at = -math.inf
        # Records that arrived at this time or later are not read.
        self.until: float = math.inf
        self.failing: ReadFailure | None = None
        self.answered_at = -math.inf  # when Kinesis last answered a read
        self.throttled_at: float = -math.inf  # when Kinesis last throttled a read
        self.apps: int = 1  # how many apps of the state store poll the stream
        # The estimated bytes of one record in an answer. At first, as many records as
        # an answer may have fill a page.
        self.record_bytes: int = FULL_PAGE_BYTES // PAGE_RECORDS
        self._is_measured = False
        # The listing for which all rows exist, as far as this client knows.
        self.synced_listing: Sequence[Shard] | None = None
        # Read the rows then, even if the listing is the same.
        self.synced_until: float = 0.0
        # The first hash keys of the stream's open shards when the rows were last read.
        self.open_shard_starts: list[int] | None = None
        # The ended shards that the last sync found to be listed as open, with epochs.
        self.ended_but_open: frozenset[tuple[str, int]] = frozenset()
        # The times at which ended shards were first missing in the listing.
        self.unlisted_since: dict[str, float] = {}

    async def confirm(self, since: float) -> None:
        """Check that the stream wasn't recreated after it was opened.

        Skip the check if there was one at ``since`` or later. All readers together
        check at most once a second. Raises StreamRecreatedError, and errors of the
        source.
        """
        async with self._confirming:
            if self.confirmed_at >= since:
                return
            wait = self._requested_at + DESCRIBE_SECONDS - self._clock.now()
            await asyncio.sleep(max(0.0, wait))
            requested_at = self._requested_at = self._clock.now()
            info = await self.source.describe()
            self.service_time.observe_date(info.now, requested_at)
            if info.created_at != self.info.created_at:
                raise StreamRecreatedError(
                    f"{self.label} ({self.arn}) was deleted and created again while it "
                    "was consumed, so its stored positions are void; restart the client"
                )
            self.info, self.confirmed_at = info, requested_at

    def read_until(self, until: Until | None) -> None:
        """End the reading at a time, or at the time that Kinesis's clock has now."""
        if until == "now":
            # A time that the clock has not passed, so that no earlier record is missed.
            # Rows store times in whole milliseconds.
            self.until = math.ceil(self.service_time.latest() * 1000) / 1000
        elif until is not None:
            self.until = until

    @property
    def fan_out_polling(self) -> int | None:
        """1 if the client polls instead of fan-out, or 0; None if not requested."""
        use = self.source.fan_out()
        return None if use is None else int(bool(use.problem))

    @property
    def retention_seconds(self) -> float:
        """The stream's retention period."""
        return self.info.retention_hours * 3600.0

    async def describe(self, context: ClientContext) -> StreamInfo:
        """Return the stream's description, and record Kinesis's time."""
        requested_at = context.clock.now()
        info = await context.until_available(self.source.describe, self.label)
        self.service_time.observe_date(info.now, requested_at)
        return info

    async def list_shards(self, context: ClientContext) -> Sequence[Shard]:
        """Return the stream's shards, with retries while Kinesis is unavailable."""
        return await context.until_available(self.source.list_shards, self.label)

    async def latest_start(
        self, context: ClientContext, info: StreamInfo, shards: Sequence[Shard]
    ) -> Start:
        """Return LATEST as a time: when ``info`` was read, or a little earlier."""
        open_ids = [shard.shard_id for shard in leaves(shards)]
        moment = await context.until_available(
            lambda: reached_time(self.source, open_ids, info.now), self.label
        )
        return Start(type="AT_TIMESTAMP", timestamp=moment)

    def read_answered(self, page: Page, now: float) -> None:
        """Record a read that Kinesis answered."""
        self.failing, self.answered_at = None, now
        if page.records and page.wire_bytes:
            self.record_bytes = page.wire_bytes // len(page.records) + 1
            self._is_measured = True

    def read_too_slowly(self) -> None:
        """Record a slow answer. Assume larger records until their size is known."""
        if not self._is_measured:
            largest = 4 * self.info.max_record_bytes // 3
            # Fourfold, so that five slow answers lead from 1.6 KB to 1 MiB and more.
            self.record_bytes = min(4 * self.record_bytes, largest)

    def read_failed(self, read: ReadFailure) -> None:
        """Record a read that Kinesis didn't answer."""
        since = min(read.since, self.failing.since) if self.failing else read.since
        self.failing = read._replace(since=since)


def as_streams(streams: StreamLike | Sequence[StreamLike]) -> list[Stream]:
    """Return the argument as a list of streams. Raises ConfigurationError."""
    if isinstance(streams, Mapping):
        raise ConfigurationError(
            "{stream: handler} is for run(): give consume() the streams only"
        )
    one = isinstance(streams, str | Stream)
    items = (streams,) if one else require_list("streams", streams)
    if not items:
        raise ConfigurationError("no stream to consume: name at least one")
    checked = []
    for item in items:
        stream = Stream(item) if isinstance(item, str) else item
        if isinstance(stream, Stream) and "," in stream.name:
            names = [name.strip() for name in stream.name.split(",")]
            raise ConfigurationError(
                f"{stream.name!r} isn't the name of a stream: give a list of streams, "
                f"such as {names}"
            )
        if not isinstance(stream, Stream):
            raise ConfigurationError(
                f"{item!r} must be a stream: give a name, an ARN or a Stream"
            )
        _check_fan_out(stream)
        checked.append(stream)
    return checked


def check_until(until: Until | None, streams: Sequence[Stream]) -> None:
    """Raise ConfigurationError for a stream that can't be read until a time."""
    for stream in streams:
        if until is not None and stream.fan_out is not None:
            raise ConfigurationError(
                f"stream {stream.name}: until= needs polling: leave fan_out out"
            )


def _check_fan_out(stream: Stream) -> None:
    if stream.fan_out is not None:
        check_consumer(stream.fan_out, stream.name)
    elif stream.fan_out_fallback:
        raise ConfigurationError(
            f"stream {stream.name}: fan_out_fallback=True needs fan_out=: name the "
            "stream consumer, or leave fan_out_fallback out"
        )


def fan_out_uses(streams: Mapping[str, OpenStream]) -> dict[str, FanOutUse]:
    """Return how fan-out is used, for each stream that requests it, by ARN."""
    # Copy the streams first, since another thread may add one.
    found = {arn: stream.source.fan_out() for arn, stream in list(streams.items())}
    return {arn: use for arn, use in found.items() if use is not None}


async def open_streams(
    context: ClientContext,
    streams: Sequence[Stream],
    start: Start,
    open_source: Callable[[Stream], Awaitable[StreamSource]],
    until: Until | None = None,
) -> dict[str, OpenStream]:
    """Describe the streams and return them by ARN; wait for those being created.

    Raises StreamMissingError, AccessDeniedError, and ConfigurationError for a stream
    that is named twice or a start in the future.
    """
    opened = await asyncio.gather(
        *(_open(context, stream, start, open_source) for stream in streams)
    )
    found: dict[str, OpenStream] = {}
    for stream in opened:
        if stream.arn in found:
            raise ConfigurationError(
                f"stream {stream.arn} is named twice: name it once"
            )
        stream.read_until(until)
        found[stream.arn] = stream
    return found


async def _open(
    context: ClientContext,
    stream: Stream,
    start: Start,
    open_source: Callable[[Stream], Awaitable[StreamSource]],
) -> OpenStream:
    label = f"stream {stream.name}"
    source = await context.until_available(lambda: open_source(stream), label)
    requested_at = context.clock.now()
    info = await context.until_available(source.describe, label)
    while info.status == "CREATING":
        logger.info(
            "%s is being created, waiting", label, extra={"stream": stream.name}
        )
        await asyncio.sleep(LOOK_SECONDS)
        info = await context.until_available(source.describe, label)
    if info.status == "DELETING":
        raise StreamMissingError(
            f"{label} ({info.arn}) is being deleted: create it again, or leave it out"
        )
    opened = OpenStream(
        stream, source, info, as_start(stream.start or start), context.clock
    )
    opened.confirmed_at = requested_at
    opened.service_time.observe_date(info.now, requested_at)
    moment = opened.start.timestamp
    if moment is not None and (advice := info.future_start(moment)):
        raise ConfigurationError(f"{label}: {advice}")
    return opened

"""The streams that a client asks for, opened: their source, identity and start."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.clock_bounds import ClockBounds
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.lineage import leaves
from kinesumer.errors import (
    ConfigurationError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.streams import Start, Stream, stream_name
from kinesumer.model.validation import require_list
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.service_time import reached_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import Clock, StreamSource
    from kinesumer.runtime.context import ClientContext

StreamLike = str | Stream
CREATING_SECONDS = 0.5
CONFIRM_SECONDS = 1.0
FIRST_RECORD_BYTES = FULL_PAGE_BYTES // 10_000
"""With records of this size, 10,000 fill a page."""


class ReadFailure(NamedTuple):
    """Since no read of a stream has succeeded; times on the event loop's clock."""

    since: float
    """When the first one that failed began."""
    until: float
    """When the last one failed: a reader that waits for user code doesn't fail."""
    shard_id: str
    """What the last one asked for."""
    after: Position | Start


class OpenStream:
    """A stream that was found, and how to read it."""

    def __init__(
        self, stream: Stream, source: StreamSource, info: StreamInfo, start: Start
    ) -> None:
        self.stream, self.source, self.info, self.start = stream, source, info, start
        self.arn = info.arn
        self.name = stream_name(info.arn)
        self.label = f"stream {self.name}"
        self.service_time = ClockBounds()
        """Kinesis's clock, as far as descriptions of the stream bound it."""
        self.confirmed_at = -math.inf
        """When it was last asked whether the stream is still the one that was opened;
        the answer was yes."""
        self._confirming = asyncio.Lock()
        self._asked_at = -math.inf
        self.failing: ReadFailure | None = None
        self.answered_at = -math.inf
        """When Kinesis last answered a read."""
        self.record_bytes = FIRST_RECORD_BYTES
        """About how much of an answer one record takes, as far as is known."""
        self._is_measured = False
        self.synced_listing: Sequence[Shard] | None = None
        """The listing with which all rows were in step, if a keeper has seen that."""
        self.synced_until = 0.0
        """When to look at the rows again all the same."""
        self.open_shard_starts: list[int] | None = None
        """Starting hash keys of its open shards, when a keeper last read their rows."""
        self.unlisted_since: dict[str, float] = {}
        """Since when ended shards have been missing in the listing, by shard id."""

    async def confirm(self, clock: Clock, since: float) -> None:
        """Make sure that the stream isn't a new one under the same name.

        An answer to a question asked at ``since`` or later is good enough. All readers
        together ask once a second. Raises StreamRecreatedError, and what
        ``source.describe()`` raises.
        """
        async with self._confirming:
            if self.confirmed_at >= since:
                return
            wait = self._asked_at + CONFIRM_SECONDS - clock.now()
            await asyncio.sleep(max(0.0, wait))
            asked_at = self._asked_at = clock.now()
            info = await self.source.describe()
            self.service_time.observe_date(info.now, asked_at, clock.now())
            if info.created_at != self.info.created_at:
                raise StreamRecreatedError(
                    f"{self.label} ({self.arn}) was deleted and made anew while it was "
                    "consumed: its stored positions are void"
                )
            self.info, self.confirmed_at = info, asked_at

    @property
    def retention_seconds(self) -> float:
        """How long the stream keeps its records."""
        return self.info.retention_hours * 3600.0

    async def describe(self, context: ClientContext) -> StreamInfo:
        """Return the stream as it is now, and note Kinesis's time."""
        asked_at = context.clock.now()
        info = await context.until_available(self.source.describe, self.label)
        self.service_time.observe_date(info.now, asked_at, context.clock.now())
        return info

    async def latest_start(
        self, context: ClientContext, info: StreamInfo, shards: Sequence[Shard]
    ) -> Start:
        """Return the start that LATEST meant when ``info`` was told."""
        open_ids = [shard.shard_id for shard in leaves(shards)]
        moment = await context.until_available(
            lambda: reached_time(self.source, open_ids, info.now), self.label
        )
        return Start(type="AT_TIMESTAMP", timestamp=moment)

    def read_answered(self, page: Page, now: float) -> None:
        """Note a read that Kinesis answered."""
        self.failing, self.answered_at = None, now
        if page.records and page.wire_bytes:
            self.record_bytes = page.wire_bytes // len(page.records) + 1
            self._is_measured = True

    def read_too_slowly(self) -> None:
        """Note an answer that took too long: if nothing is known, records are large."""
        if not self._is_measured:
            largest = 4 * self.info.max_record_bytes // 3
            self.record_bytes = min(4 * self.record_bytes, largest)

    def read_failed(self, read: ReadFailure) -> None:
        """Note a read that Kinesis didn't answer."""
        since = min(read.since, self.failing.since) if self.failing else read.since
        self.failing = read._replace(since=since)


def as_streams(streams: StreamLike | Sequence[StreamLike]) -> list[Stream]:
    """Return what the user named as streams. Raises ConfigurationError."""
    one = isinstance(streams, str | Stream)
    given = (streams,) if one else require_list("streams", streams)
    if not given:
        raise ConfigurationError("no stream to consume: name at least one")
    found = []
    for item in given:
        stream = Stream(item) if isinstance(item, str) else item
        if not isinstance(stream, Stream) or not stream.name:
            raise ConfigurationError(
                f"{item!r} must be a stream: give a name, an ARN or a Stream"
            )
        found.append(stream)
    return found


async def open_streams(
    context: ClientContext,
    streams: Sequence[Stream],
    start: Start,
    open_source: Callable[[Stream], Awaitable[StreamSource]],
) -> dict[str, OpenStream]:
    """Describe the streams and return them by ARN; one that is being made is awaited.

    Raises StreamMissingError, AccessDeniedError, and ConfigurationError for a stream
    that is named twice or a start in the future.
    """
    opened = await asyncio.gather(
        *(_open(context, stream, start, open_source) for stream in streams)
    )
    found: dict[str, OpenStream] = {}
    for stream in opened:
        if stream.arn in found:
            raise ConfigurationError(f"stream {stream.arn} is named twice")
        found[stream.arn] = stream
    return found


async def _open(
    context: ClientContext,
    stream: Stream,
    start: Start,
    open_source: Callable[[Stream], Awaitable[StreamSource]],
) -> OpenStream:
    source = await open_source(stream)
    label = f"stream {stream.name}"
    asked_at = context.clock.now()
    info = await context.until_available(source.describe, label)
    while info.status == "CREATING":
        logger.info(
            "%s is being created, waiting", label, extra={"stream": stream.name}
        )
        await asyncio.sleep(CREATING_SECONDS)
        info = await context.until_available(source.describe, label)
    if info.status == "DELETING":
        raise StreamMissingError(f"{label} ({info.arn}) is being deleted")
    opened = OpenStream(stream, source, info, stream.start or start)
    opened.confirmed_at = asked_at
    opened.service_time.observe_date(info.now, asked_at, context.clock.now())
    _check_start(opened)
    return opened


def _check_start(stream: OpenStream) -> None:
    moment, info = stream.start.timestamp, stream.info
    if moment is None:
        return
    # The service's clock comes in whole seconds.
    if moment > info.now + 1:
        raise ConfigurationError(
            f"{stream.label}: start lies {moment - info.now:.0f} s in the future; "
            "use Start.LATEST to begin with what comes from now on"
        )
    if moment < info.now - info.retention_hours * 3600:
        logger.warning(
            "%s: start is older than the retention of %d h; "
            "beginning with the oldest record",
            stream.label,
            info.retention_hours,
            extra={"stream": stream.name},
        )

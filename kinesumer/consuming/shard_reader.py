"""Read one shard into the buffer, from its checkpoint to its end."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from kinesumer.consuming.batch_builder import BatchBuilder
from kinesumer.consuming.isolation import RECORDS_PER_READ, put_suspects
from kinesumer.consuming.key_failures import KeyFailures
from kinesumer.consuming.prefetch import (
    SMALL_PAGE_BYTES,
    FetchedBatch,
    answer_memory,
    memory_size,
)
from kinesumer.consuming.read_request import NoRoomError, ReadRequest
from kinesumer.consuming.read_warnings import ReadWarnings
from kinesumer.consuming.streams import ReadFailure
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.pacing import Pacing
from kinesumer.core.read_end import records_before
from kinesumer.errors import (
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    KeyThrottledError,
    KeyUnavailableError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SlowAnswerError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.records import Page
from kinesumer.model.streams import Start
from kinesumer.wire.aggregation import has_aggregates
from kinesumer.wire.records import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.runtime.context import ClientContext

# A check of a stream's identity stays valid for this time, since deleting a stream and
# creating it again takes longer.
FRESH_SECONDS = 30.0
# A read that reaches the newest record may still miss records that arrived up to this
# long before it.
SLACK_SECONDS = 60.0
# An event of a subscription may also have waited for the reader, at most as long as a
# subscription lasts.
PUSHED_SLACK_SECONDS = SLACK_SECONDS + 300.0
# A caught-up shard's next page is not expected to be larger.
CAUGHT_UP_PAGE_BYTES = 16 * SMALL_PAGE_BYTES
# The memory that is reserved for a reader's first page. Most first pages are small: if
# each reserved a full page, few of thousands of shards could be read at a time.
FIRST_PAGE_BYTES = 4 * 1024 * 1024


class ShardReader:
    """Reads the records of one shard, page by page, into the buffer."""

    def __init__(
        self,
        context: ClientContext,
        stream: OpenStream,
        owned: OwnedShard,
        buffer: PrefetchBuffer,
    ) -> None:
        self._context = context
        self._stream = stream
        self._owned = owned
        self._buffer = buffer
        self._builder = BatchBuilder(owned, context)
        self._warnings = ReadWarnings(context, stream, owned)
        self._iterator: str | None = None
        self._is_pushed = False  # whether Kinesis sends the records unasked
        self._is_answered = False  # whether Kinesis answered the last call
        # Before the next iterator is requested, the stream's identity must have been
        # checked at this time or later. None means that no check is needed.
        self._confirm_since: float | None = None
        self._confirm_start(context.clock.now() - FRESH_SECONDS)
        self._reserve = FIRST_PAGE_BYTES
        # The time at which the last request got its connection.
        self._began = context.clock.now()
        self._throttled = False  # whether Kinesis throttled the last call
        self._key_failures = KeyFailures(context, stream)
        self._pacing = Pacing(
            context.clock.now(), stream.stream.min_read_interval_seconds
        )

    async def run(self) -> None:
        """Read until the shard's end, where Kinesis names children, or ``until``."""
        clock = self._context.clock
        next_at = clock.now()
        try:
            while self._owned.children is None and not self._owned.reached:
                await asyncio.sleep(max(0.0, next_at - clock.now()))
                next_at = await self._read_once()
        finally:
            self._stream.source.release(self._owned.key.shard_id)

    async def _read_once(self) -> float:
        """Read a page into the buffer; return when to read again."""
        page = None
        request = ReadRequest(self._buffer, self._owned, self._context.loop_clock)
        if not self._is_answered:
            # Reserve no memory until Kinesis answers again: other streams may need it.
            page = await self._call(self._find, request)
            if not self._is_answered:
                return self._backoff()
        try:
            if not self._is_pushed:  # else memory is reserved when an event arrives
                size = min(self._reserve, self._buffer.window.answer_bytes)
                await request.take(size)
            request.max_records = self._max_records()
            page = page or await self._call(self._read, request)
            if page is None:
                return self._backoff()
            next_at = await self._take(page, request, self._began)
            return self._context.clock.now() if self._is_pushed else next_at
        except SourceUnavailableError as error:  # no memory to build batches
            self._context.failure_log.record_failure(self._stream.label, error)
            self._forget_iterator()
            return self._backoff()
        finally:
            request.close()

    async def _find(self, request: ReadRequest) -> None:
        if self._confirm_since is not None:
            await self._stream.confirm(self._context.clock, self._confirm_since)
            self._confirm_since = None
        source, shard_id = self._stream.source, self._owned.key.shard_id
        self._iterator = await source.get_iterator(shard_id, self._builder.after)
        self._is_pushed = source.is_pushed(self._iterator)

    async def _read(self, request: ReadRequest) -> Page:
        if self._iterator is None:
            await self._find(request)
        assert self._iterator is not None
        page = await self._stream.source.get_records(
            self._iterator, request.max_records, request
        )
        self._context.failure_log.record_success(self._stream.label)
        self._context.failure_log.record_read(self._stream.name)
        self._key_failures.ended()
        self._stream.read_answered(page, self._context.loop_clock.now())
        if self._is_pushed:
            request.land()  # how long an event took to arrive tells nothing
        else:
            seconds = self._context.loop_clock.now() - request.began
            request.answered(page.wire_bytes, seconds)
        self._iterator = page.next_iterator
        return page

    def _max_records(self) -> int:
        """Return the record limit of the next read; slow answers make it lower."""
        self._pacing.share_among(self._stream.apps)
        most = self._pacing.page_records(self._context.config.max_records_per_read)
        if self._owned.suspects is not None and self._owned.suspects.is_isolated:
            most = min(most, RECORDS_PER_READ)
        size = self._buffer.window.answer_bytes
        if size == FULL_PAGE_BYTES:
            return most
        return max(1, min(most, size // self._stream.record_bytes))

    async def _take(self, page: Page, room: ReadRequest, started: float) -> float:
        """Queue a page's records; return when to read again."""
        owned, records = self._owned, page.records
        owned.millis_behind = page.millis_behind
        if page.is_unconfirmed:
            self._warnings.not_ended()
            self._forget_iterator()
            return self._backoff()
        next_at, until = self._next_read(started, page), self._stream.until
        if is_cut := (count := records_before(page, until)) < len(records):
            records = records[:count]
        if has_aggregates(records):
            room.keep(memory_size(records))
            steps = self._builder.open(records, page.millis_behind)
            while (batches := await room.open(steps)) is not None:
                await self._put(batches, room)
                await asyncio.sleep(0)  # opening takes long: let other tasks run
        else:
            batches = self._builder.build(records, page.millis_behind)
            room.keep(sum(batch.size for batch in batches))
            await self._put(batches, room)
        if not page.millis_behind:
            slack = PUSHED_SLACK_SECONDS if self._is_pushed else SLACK_SECONDS
            read_until = self._stream.service_time.earliest(started) - slack
            owned.caught_up(read_until, self._stream.retention_seconds)
            if owned.suspects is not None:
                owned.suspects.end(owned.queued_records)
        if page.next_iterator is None and not is_cut:
            owned.children = page.children
        elif is_cut or (
            not page.millis_behind
            and self._stream.service_time.earliest(started) >= until
        ):
            owned.reached = until
            if owned.suspects is not None:
                owned.suspects.end(owned.queued_records)
        return next_at

    async def _call(
        self,
        work: Callable[[ReadRequest], Awaitable[Page | None]],
        request: ReadRequest,
    ) -> Page | None:
        """Call Kinesis and handle its errors. Return the page, or None without one."""
        label = self._stream.label
        request.began = self._context.loop_clock.now()
        self._is_answered, self._throttled = True, False
        self._key_failures.is_last = False
        try:
            return await self._watched(work, request)
        except ExpiredIteratorError:
            self._forget_iterator()
        except TrimmedPositionError as error:
            self._trimmed(error)
        except NoRoomError:
            self._reserve = FULL_PAGE_BYTES
        except ShardMissingError as error:
            return await self._missing(error)
        except ShardThrottledError as error:
            self._throttled = True
            self._stream.throttled_at = self._context.clock.now()
            self._context.failure_log.record_throttled_read(self._stream.name, error)
        except (KeyThrottledError, KeyUnavailableError) as error:
            self._key_failures.failed(error)
        except StartInFutureError:
            self._iterator = None
        except SlowAnswerError as error:
            self._context.failure_log.record_failure(label, error)
            self._too_slow(request)
        except SourceUnavailableError as error:
            self._context.failure_log.record_failure(label, error)
            if not isinstance(error, SourceThrottledError):
                self._unreachable(request)
        except FatalError as error:
            is_invalid = isinstance(error, InvalidPositionError)
            # A FatalError that is of no subclass has an unknown reason.
            if is_invalid or type(error) is FatalError:
                await self._require_same_stream(error)
            if is_invalid and self._builder.after == self._owned.row.position:
                raise self._warnings.position_error(error) from error
            raise
        return None

    async def _watched(
        self,
        work: Callable[[ReadRequest], Awaitable[Page | None]],
        request: ReadRequest,
    ) -> Page | None:
        """Send a request, and let the watchdog see it until it ends."""
        try:
            async with self._stream.source.connection():
                request.begin()
                self._began = self._context.clock.now()
                return await work(request)
        except asyncio.CancelledError:
            if self._owned.is_stuck:
                # Report the stream as unreachable, however short the request was.
                self._failed(since=-math.inf)
            raise
        finally:
            self._owned.request_since = None

    def _too_slow(self, request: ReadRequest) -> None:
        """Reduce the size of reads, since an answer was too slow."""
        buffer, now = self._buffer, self._context.loop_clock.now()
        was_smallest = buffer.window.is_smallest
        buffer.window.timed_out(request.began, now, buffer.in_flight)
        self._stream.read_too_slowly()
        self._reserve = FULL_PAGE_BYTES
        if was_smallest:
            self._unreachable(request)

    def _unreachable(self, request: ReadRequest) -> None:
        """Record that a read got no answer; the next one requests a new iterator."""
        # Other reads of the stream may have been answered after this one began.
        self._failed(since=max(request.began, self._stream.answered_at))
        self._buffer.window.restart()
        self._is_answered = False
        self._forget_iterator()

    def _forget_iterator(self) -> None:
        """Discard the iterator, so that the next read requests a new one."""
        # Many records may have arrived since the last read, so expect a full page.
        self._iterator, self._reserve = None, FULL_PAGE_BYTES
        self._confirm_start(self._context.clock.now())

    def _confirm_start(self, since: float) -> None:
        """Require a check of the stream at ``since`` or later before a start is used.

        If the stream was recreated, Kinesis rejects a position, but accepts a start.
        """
        if isinstance(self._builder.after, Start):
            self._confirm_since = since

    def _trimmed(self, error: TrimmedPositionError) -> None:
        """Continue with the oldest record."""
        self._warnings.position_expired(error)
        self._builder.after = Start.TRIM_HORIZON
        self._forget_iterator()

    def _failed(self, since: float) -> None:
        now, shard_id = self._context.loop_clock.now(), self._owned.key.shard_id
        self._stream.read_failed(ReadFailure(since, now, shard_id, self._builder.after))

    async def _missing(self, error: ShardMissingError) -> Page:
        """Treat an expired shard as ended, unless the stream was recreated."""
        await self._require_same_stream(error)
        self._warnings.shard_expired(error)
        return Page([], None, 0)

    async def _require_same_stream(self, error: KinesumerError) -> None:
        """Raise StreamRecreatedError if a recreated stream explains the error."""
        stream, clock = self._stream, self._context.clock
        since = clock.now()
        try:
            await self._context.until_available(
                lambda: stream.confirm(clock, since), stream.label
            )
        except StreamRecreatedError as recreated:
            raise recreated from error

    async def _put(self, batches: list[FetchedBatch], room: ReadRequest) -> None:
        """Queue batches as ``max_uncommitted_records`` allows."""
        for fetched in batches:
            batch: FetchedBatch | None = fetched
            if (suspects := self._owned.suspects) is not None:
                batch = await put_suspects(self._owned, suspects, fetched, room.put)
            if batch is None:
                continue
            # While user code is slow, the reader stops here and fetches no more pages.
            await self._owned.wait_for_capacity(len(batch))
            self._owned.queued(len(batch))
            room.put(batch)

    def _backoff(self) -> float:
        clock = self._context.clock
        now, jitter = clock.now(), self._context.random.random()
        if self._key_failures.is_last:
            return now + self._key_failures.wait_seconds(jitter)
        if self._throttled:
            return self._pacing.after_throttle(now, jitter)
        return self._pacing.after_failure(now, jitter)

    def _next_read(self, started: float, page: Page) -> float:
        # If the reader is behind, the next page may be full. Otherwise it is small.
        most = FULL_PAGE_BYTES if page.millis_behind else CAUGHT_UP_PAGE_BYTES
        payload = payload_bytes(page)
        expected = answer_memory(2 * page.wire_bytes)
        self._reserve = max(SMALL_PAGE_BYTES, min(expected, most))
        if page.millis_behind and not page.records:
            self._reserve = FULL_PAGE_BYTES
        return self._pacing.after_page(
            started,
            records=len(page.records),
            payload_bytes=payload,
            millis_behind=page.millis_behind,
        )

"""Reads one shard into the buffer, from where its checkpoint says, until its end."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import (
    SMALL_PAGE_BYTES,
    FetchedBatch,
    answer_memory,
    memory_size,
)
from kinesumer.consuming.read_request import NoRoomError, ReadRequest, Reservation
from kinesumer.consuming.streams import ReadFailure
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.core.pacing import Pacing
from kinesumer.errors import (
    CorruptRowError,
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
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
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Start
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import RECORDS_OUTSIDE
from kinesumer.wire import rows
from kinesumer.wire.aggregation import (
    OpenedRecords,
    has_aggregates,
    open_records,
    take_piece,
    with_source,
)
from kinesumer.wire.records import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.runtime.context import ClientContext

FRESH_SECONDS = 5.0
"""A reader begins without a question of its own if others have asked so lately: no
stream is deleted and created again within this time."""
SLACK_SECONDS = 60.0
"""A read to the tip may lack records that arrived so shortly before it."""
PIECE_BYTES = 512 * 1024
"""Data of the aggregates that are opened at once."""
MOST_CAUGHT_UP_BYTES = 16 * SMALL_PAGE_BYTES
"""A caught-up shard's next page is not expected to be larger."""


class ShardReader:
    """One shard's reading position; everything behind it is in the buffer or done."""

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
        self._after: Position | Start = owned.row.position or owned.row.start
        self._skip_to: Position | Start | None = self._after
        self._iterator: str | None = None
        self._answers = False
        """Whether Kinesis answered the last call."""
        self._confirm_since: float | None = context.clock.now() - FRESH_SECONDS
        """The next iterator needs a stream confirmed since then; None: it doesn't."""
        self._reserve = FULL_PAGE_BYTES
        self._began = context.clock.now()
        """When the last request got its connection, on the clock of the pace."""
        self._throttled = False
        """Whether Kinesis refused the last call since the shard is used up."""
        self._pacing = Pacing(
            context.clock.now(), stream.stream.min_read_interval_seconds
        )

    async def run(self) -> None:
        """Read until the shard's end, then leave its children in the owned shard."""
        clock = self._context.clock
        next_at = clock.now()
        while self._owned.children is None:
            await asyncio.sleep(max(0.0, next_at - clock.now()))
            next_at = await self._turn()

    async def _turn(self) -> float:
        """Bring a page into the buffer, keep nothing of it; return when to go on."""
        page = None
        if not self._answers:
            # Asked without owned room: streams that do answer need it.
            page = await self._call(self._find)
            if not self._answers:
                return self._later()
        room = Reservation(self._buffer, self._owned)
        try:
            await room.take(min(self._reserve, self._buffer.window.answer_bytes))
            room.most_records = self._most_records()
            page = page or await self._call(self._read, room)
            if page is None:
                return self._later()
            return await self._take(page, room, self._began)
        finally:
            room.close()

    async def _find(self, request: ReadRequest) -> None:
        if self._confirm_since is not None:
            await self._stream.confirm(self._context.clock, self._confirm_since)
            self._confirm_since = None
        source, shard_id = self._stream.source, self._owned.key.shard_id
        self._iterator = await source.get_iterator(shard_id, self._after)

    async def _read(self, request: ReadRequest) -> Page:
        if self._iterator is None:
            await self._find(request)
        assert self._iterator is not None
        page = await self._stream.source.get_records(
            self._iterator, request.most_records, request
        )
        self._context.failure_log.record_success(self._stream.label)
        self._context.failure_log.record_read(self._stream.name)
        self._stream.read_answered(page, self._context.loop_clock.now())
        request.answered(page)
        self._iterator = page.next_iterator
        return page

    def _most_records(self) -> int:
        """Return how many records to ask for: fewer if a page is too much at once."""
        most = self._pacing.page_records(self._context.config.max_records_per_read)
        size = self._buffer.window.answer_bytes
        if size == FULL_PAGE_BYTES:
            return most
        return max(1, min(most, size // self._stream.record_bytes))

    async def _take(self, page: Page, room: Reservation, started: float) -> float:
        """Queue a page's records; return when to read again."""
        owned, records = self._owned, page.records
        owned.millis_behind = page.millis_behind
        next_at = self._next_read(started, page)
        if has_aggregates(records):
            room.keep(memory_size(records))
            while records:
                piece = take_piece(records, PIECE_BYTES)
                open_piece = partial(self._open, piece, page.millis_behind)
                batches = await room.open(memory_size(piece), open_piece)
                await self._put(batches, room)
                await asyncio.sleep(0)  # opening takes long
        else:
            opened = with_source(records, owned.source)
            batches = self._batches(opened, page.millis_behind)
            room.keep(sum(batch.size for batch in batches))
            await self._put(batches, room)
        if not page.millis_behind:
            read_until = self._stream.service_time.earliest(started) - SLACK_SECONDS
            owned.caught_up(read_until, self._stream.retention_seconds)
        if page.next_iterator is None:
            owned.children = page.children
        return next_at

    def _open(self, piece: list[Record], millis_behind: int) -> list[FetchedBatch]:
        """Open a page's aggregates, or some of them."""
        opened = open_records(piece, self._owned.source)
        if opened.outside:
            self._owned.outside_hash_range += opened.outside
            self._context.telemetry.count(
                RECORDS_OUTSIDE, self._stream.arn, opened.outside
            )
        return self._batches(opened, millis_behind)

    async def _call(
        self,
        work: Callable[[ReadRequest], Awaitable[Page | None]],
        room: Reservation | None = None,
    ) -> Page | None:
        """Return the page of a call that has one, or None if there is none yet."""
        label = self._stream.label
        request = ReadRequest(self._owned, self._context.loop_clock, room)
        self._answers, self._throttled = True, False
        try:
            return await self._watched(work, request)
        except ExpiredIteratorError:
            self._forget_iterator()
            self._reserve = FULL_PAGE_BYTES
        except TrimmedPositionError as error:
            self._trimmed(error)
        except NoRoomError:
            self._reserve = FULL_PAGE_BYTES
        except ShardMissingError as error:
            return await self._missing(error)
        except ShardThrottledError as error:
            self._throttled = True
            self._context.failure_log.record_throttled_read(self._stream.name, error)
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
            refused = isinstance(error, InvalidPositionError)
            if refused or type(error) is FatalError:  # nobody knows yet why
                await self._refuse_replaced(error)
            if refused and self._after == self._owned.row.position:
                raise self._corrupt(error) from error
            raise
        return None

    async def _watched(
        self,
        work: Callable[[ReadRequest], Awaitable[Page | None]],
        request: ReadRequest,
    ) -> Page | None:
        """Let the watchdog know of a request for as long as it is under way."""
        try:
            async with self._stream.source.connection():
                request.begin()
                self._began = self._context.clock.now()
                return await work(request)
        except asyncio.CancelledError:
            if self._owned.is_stuck:
                self._failed(since=-math.inf)  # however long that is
            raise
        finally:
            self._owned.request_since = None

    def _too_slow(self, request: ReadRequest) -> None:
        """Ask for less: the answer came, but not within its time."""
        buffer, now = self._buffer, self._context.loop_clock.now()
        was_smallest = buffer.window.is_smallest
        buffer.window.timed_out(request.began, now, buffer.in_flight)
        self._stream.read_too_slowly()
        self._reserve = FULL_PAGE_BYTES
        if was_smallest:
            self._unreachable(request)

    def _unreachable(self, request: ReadRequest) -> None:
        """Note a read without an answer; what comes after it may be a full page."""
        # Others of the stream may have been answered meanwhile.
        self._failed(since=max(request.began, self._stream.answered_at))
        self._buffer.window.restart()
        self._answers = False
        self._forget_iterator()
        self._reserve = FULL_PAGE_BYTES

    def _forget_iterator(self) -> None:
        """Have the next read find its place again.

        Positions of another stream are refused; starts would be found there, too.
        """
        self._iterator = None
        if isinstance(self._after, Start):
            self._confirm_since = self._context.clock.now()

    def _trimmed(self, error: TrimmedPositionError) -> None:
        """Go on with the oldest record; say what is known of those in between."""
        if self._is_all_fetched:
            logger.info(
                "%s: the position of shard %s has expired, and nothing came after it",
                self._stream.label,
                self._owned.key.shard_id,
                extra=self._owned.log_fields,
            )
        else:
            logger.warning(
                "%s: records may be lost to retention, if any came after a position "
                "that has expired: %s",
                self._stream.label,
                error,
                extra=self._owned.log_fields,
            )
        self._after = Start.TRIM_HORIZON
        self._forget_iterator()
        self._reserve = FULL_PAGE_BYTES

    @property
    def _is_all_fetched(self) -> bool:
        """Whether all that retention may have taken was fetched, here or before."""
        now = self._stream.service_time.latest(self._context.clock.now())
        return self._owned.read_until > now - self._stream.retention_seconds

    def _failed(self, since: float) -> None:
        now, shard_id = self._context.loop_clock.now(), self._owned.key.shard_id
        self._stream.read_failed(ReadFailure(since, now, shard_id, self._after))

    async def _missing(self, error: ShardMissingError) -> Page:
        """Treat a shard that has expired as ended, if the stream is still the same."""
        await self._refuse_replaced(error)
        if self._is_all_fetched:
            logger.info(
                "%s: shard %s has expired, and was read to its end",
                self._stream.label,
                self._owned.key.shard_id,
                extra=self._owned.log_fields,
            )
        else:
            logger.warning(
                "%s: retention has passed a whole shard: records may be lost to "
                "retention, if any came after its position: %s",
                self._stream.label,
                error,
                extra=self._owned.log_fields,
            )
        return Page([], None, 0)

    async def _refuse_replaced(self, error: KinesumerError) -> None:
        """Raise StreamRecreatedError if that is why Kinesis answered with an error."""
        stream, clock = self._stream, self._context.clock
        since = clock.now()
        try:
            await self._context.until_available(
                lambda: stream.confirm(clock, since), stream.label
            )
        except StreamRecreatedError as replaced:
            raise replaced from error

    def _corrupt(self, error: FatalError) -> CorruptRowError:
        key = self._owned.key
        row = rows.shard_key(self._context.app, key, self._owned.row.first_hash)
        return CorruptRowError(
            f"state store row pk={row.pk!r} sk={row.sk!r}: attribute sequence_number "
            f"is not a position in the shard ({error}); correct it, or remove it to "
            "begin at the row's start"
        )

    def _batches(self, opened: OpenedRecords, millis_behind: int) -> list[FetchedBatch]:
        """Return user records in batches that fit ``max_uncommitted_records``."""
        if opened.last is None:
            return []
        records = self._skip(opened.records, self._skip_to)
        self._after = Position(opened.last)
        return list(self._cut(opened, records, millis_behind))

    def _skip(
        self, records: list[Record], skip_to: Position | Start | None
    ) -> list[Record]:
        """Drop what the checkpoint covers, or what arrived before the start.

        An iterator is at the whole aggregate that a checkpoint lies in, and one at a
        time may be a little early: Kinesis has milliseconds, others whole seconds.
        """
        if skip_to is None:
            return records
        for index, record in enumerate(records):
            if _is_after(record, skip_to):
                self._skip_to = None
                return records[index:] if index else records
        return []

    def _cut(
        self, opened: OpenedRecords, records: list[Record], millis_behind: int
    ) -> Iterator[FetchedBatch]:
        assert opened.last is not None
        step = max(1, self._context.config.max_uncommitted_records // 2)
        for first in range(0, max(1, len(records)), step):
            part = records if len(records) <= step else records[first : first + step]
            is_last = first + step >= len(records)
            end = Position(opened.last) if is_last else None
            size = memory_size(part)
            yield FetchedBatch(part, millis_behind, size, end, self._owned)

    async def _put(self, batches: list[FetchedBatch], room: Reservation) -> None:
        """Queue batches as ``max_uncommitted_records`` allows."""
        for batch in batches:
            await self._owned.wait_for_capacity(len(batch))
            self._owned.queued(len(batch))
            room.put(batch)

    def _later(self) -> float:
        clock = self._context.clock
        now, jitter = clock.now(), self._context.random.random()
        if self._throttled:
            return self._pacing.after_throttle(now, clock.wall(), jitter)
        return self._pacing.after_failure(now, jitter)

    def _next_read(self, started: float, page: Page) -> float:
        # Behind, the next page may be a full one; caught up, it holds a moment's worth.
        most = FULL_PAGE_BYTES if page.millis_behind else MOST_CAUGHT_UP_BYTES
        expected = answer_memory(2 * page.wire_bytes)
        self._reserve = max(SMALL_PAGE_BYTES, min(expected, most))
        if page.millis_behind and not page.records:
            self._reserve = FULL_PAGE_BYTES
        return self._pacing.after_page(
            started,
            records=len(page.records),
            payload_bytes=payload_bytes(page),
            millis_behind=page.millis_behind,
        )


def _is_after(record: Record, after: Position | Start) -> bool:
    if isinstance(after, Position):
        return record.position > after
    arrived = record.approximate_arrival_timestamp
    if arrived is None or after.timestamp is None:
        return True
    return arrived >= after.timestamp

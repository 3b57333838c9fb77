"""Fetch one page of a shard: its memory, its request, and what its errors mean."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import (
    PAGE_RECORDS,
    SMALL_PAGE_BYTES,
    FetchedBatch,
    OpenedStep,
    PrefetchBuffer,
    answer_memory,
)
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.streams import ReadFailure
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.errors import (
    ChildrenUnknownError,
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
from kinesumer.runtime.tasks import timeout
from kinesumer.wire.cbor import compiled

T = TypeVar("T")

# The longest time for which an answer may wait for memory. Nothing is received on the
# connection meanwhile, so it might break. The reader repeats the request later.
ROOM_SECONDS = 10.0


class NoRoomError(KinesumerError):
    """An answer waited too long for memory."""


class Retry(NamedTuple):
    """No page was fetched: read again at this time."""

    at: float


class Ended(NamedTuple):
    """The shard ends with this page, which is empty if the shard has expired."""

    page: Page


class Reservation:
    """The memory that one reader has reserved: implements ``ports.Reservation``.

    Until the answer has arrived, these bytes also count for the congestion window.
    """

    def __init__(self, buffer: PrefetchBuffer, owned: OwnedShard) -> None:
        self.size = 0
        self.max_records = PAGE_RECORDS  # how many records the answer may have
        self._buffer, self._owned = buffer, owned
        self._in_flight = 0
        self._held = 0  # bytes of ``size`` that hold a partly opened aggregate
        self._opened = 0  # bytes of opened aggregates, in addition to ``size``

    def covers(self, size: int | None) -> bool:
        """Return whether an answer of ``size`` bytes fits in the reserved memory."""
        return self._memory(size) <= self.size

    def shrink(self, size: int) -> None:
        """Release the memory that an answer of ``size`` bytes doesn't need."""
        # The answer's headers tell its size. So other readers can use the memory that
        # it doesn't need before its end has arrived.
        if self._in_flight > size:
            self._buffer.in_flight -= self._in_flight - size
            self._in_flight = size
        self.keep(min(self.size, self._memory(size)))

    async def grow(self, size: int | None) -> None:
        """Release all bytes, then wait for the memory that the answer needs."""
        # A reader that holds no bytes while it waits can't cause a deadlock.
        self.close()
        await self.take(self._memory(size))

    async def take(self, size: int) -> None:
        """Reserve ``size`` bytes for an answer: see ``PrefetchBuffer.reserve()``."""
        # A small answer doesn't congest the link, so the window doesn't limit it.
        in_flight = size if size > SMALL_PAGE_BYTES else 0
        await self._buffer.reserve(size, self._owned, in_flight=in_flight)
        self.size, self._in_flight = size, in_flight

    def answered(self, wire_bytes: int, seconds: float) -> None:
        """Record that the answer has arrived, how large it is and how long it took."""
        self._buffer.window.answered(wire_bytes, seconds, self._buffer.in_flight)
        self.land()

    def keep(self, size: int) -> None:
        """Set the reserved bytes to ``size``, without waiting if that is more."""
        self._buffer.release(self.size - size)
        self.size = size

    async def open(self, steps: Iterator[OpenedStep]) -> list[FetchedBatch] | None:
        """Open some aggregates, release their raw bytes, and return batches.

        Waits for the memory of the batches: see ``PrefetchBuffer.open()``. Returns None
        if all aggregates are open.
        """
        step = await self._buffer.open(self._owned, steps)
        if step is None:
            return None
        self._opened += step.size
        self.keep(self.size - step.raw_bytes + step.held_bytes - self._held)
        self._held = step.held_bytes
        return step.batches

    def put(self, batch: FetchedBatch) -> None:
        """Queue a batch, and pass its bytes to the buffer."""
        if self._opened:
            self._opened -= batch.size
            self._buffer.opened -= batch.size
        else:
            self.size -= batch.size
        self._buffer.put(batch)

    def close(self) -> None:
        """Release all bytes."""
        self.land()
        self._buffer.opened -= self._opened
        size, self.size, self._opened = self.size + self._opened, 0, 0
        self._buffer.release(size)

    def land(self) -> None:
        """Record that the answer has arrived."""
        self._buffer.in_flight -= self._in_flight
        self._in_flight = 0

    def _memory(self, size: int | None) -> int:
        if size is None:
            return FULL_PAGE_BYTES
        return answer_memory(size, self.max_records, is_cbor=compiled is not None)


class PageFetch(Reservation):
    """The request for one page, with the memory that is reserved for its answer.

    The time for which an answer waits for memory doesn't count as the request's time.
    """

    def __init__(self, place: ReadPlace) -> None:
        super().__init__(place.buffer, place.owned)
        self._place, self._stream = place, place.stream
        self._context, self._clock = place.context, place.context.loop_clock
        # When the request began. Each wait for memory moves this time forward, so that
        # the wait doesn't count.
        self._began = self._clock.now()
        # The time, by the client's clock, at which the request got its connection.
        self.began_at: float = self._context.clock.now()

    async def run(self) -> Page | Ended | Retry:
        """Return the next page, the shard's last page, or when to read again.

        Raises errors that no later read can mend.
        """
        place = self._place
        try:
            # Reserve no memory until Kinesis answers again: other streams may need it.
            if not place.is_answered:
                await self._call(place.find)
            if not place.is_pushed:  # else memory is reserved when an event arrives
                await self.take(min(place.reserve, place.buffer.window.answer_bytes))
            self.max_records = place.max_records()
            return await self._call(self._read)
        except KinesumerError as error:
            return await self._react(error)

    async def _read(self) -> Page | Ended | Retry:
        place, stream = self._place, self._stream
        iterator = place.iterator or await place.find()
        page = await stream.source.get_records(iterator, self.max_records, self)
        self._context.failure_log.record_success(stream.label)
        self._context.failure_log.record_read(stream.name)
        place.warnings.key_works()
        now = self._clock.now()
        stream.read_answered(page, now)
        if place.is_pushed:
            self.land()  # how long an event took to arrive tells nothing
        else:
            seconds = now - self._began
            self.answered(page.wire_bytes, seconds)
            self._context.telemetry.note_read(place.owned.key.stream_arn, seconds)
        place.iterator = page.next_iterator
        place.owned.millis_behind = page.millis_behind
        if page.is_unconfirmed:
            place.warnings.not_ended()
            place.forget_iterator()
            return Retry(place.after_failure())
        if page.next_iterator is None:
            return Ended(page)
        return page

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call Kinesis, and let the watchdog see the request until it ends."""
        owned = self._place.owned
        self._began, self._place.is_answered = self._clock.now(), True
        try:
            async with self._stream.source.connection():
                # From now on the request waits only for Kinesis.
                self._began = owned.request_since = self._clock.now()
                self.began_at = self._context.clock.now()
                return await work()
        except asyncio.CancelledError:
            if owned.is_stuck:
                # Report the stream as unreachable, however short the request was.
                self._failed(since=-math.inf)
            raise
        finally:
            owned.request_since = None

    async def grow(self, size: int | None) -> None:
        """Wait for the memory that the answer needs. Raises NoRoomError."""
        owned, stopped = self._place.owned, self._clock.now()
        owned.request_since = None  # Kinesis has answered
        try:
            async with timeout(ROOM_SECONDS):
                await super().grow(size)
        except TimeoutError:
            raise NoRoomError(f"no room for an answer of {size} bytes") from None
        finally:
            now = self._clock.now()
            self._began += now - stopped
            owned.request_since = now

    # --- errors -----------------------------------------------------------------------

    async def _react(self, error: KinesumerError) -> Ended | Retry:
        """Return what follows from an error. Raises errors that no read can mend."""
        place = self._place
        match error:
            case ExpiredIteratorError():
                place.forget_iterator()
            case TrimmedPositionError():
                self._trimmed(error)
            case NoRoomError():
                place.reserve = FULL_PAGE_BYTES
            case StartInFutureError():
                place.iterator = None
            case ShardThrottledError():
                self._throttled(error)
                return Retry(place.after_throttle())
            case KeyThrottledError() | KeyUnavailableError():
                place.warnings.key_failed(error)
                return Retry(place.after_key_failure())
            case ShardMissingError():
                return await self._missing(error)
            case ChildrenUnknownError():
                pass  # the read itself has not failed
            case SourceUnavailableError():
                self._unavailable(error)
            case FatalError():
                await self._explain(error)
                raise error
            case _:
                raise error
        return Retry(place.after_failure())

    def _trimmed(self, error: TrimmedPositionError) -> None:
        """Continue with the oldest record, if the shard is still this client's."""
        self._place.forget_iterator()
        if self._may_own:
            self._place.warnings.position_expired(error)
            self._place.builder.after = Start.TRIM_HORIZON

    @property
    def _may_own(self) -> bool:
        """True if the lease is valid: otherwise another client may have read on."""
        return self._place.owned.lease.permits(self._context.clock.now())

    def _throttled(self, error: ShardThrottledError) -> None:
        """Record when Kinesis throttled the shard."""
        self._stream.throttled_at = self._context.clock.now()
        self._context.failure_log.record_throttled_read(self._stream.name, error)

    def _unavailable(self, error: SourceUnavailableError) -> None:
        """Record that Kinesis failed, or that its answer was too slow."""
        self._context.failure_log.record_failure(self._stream.label, error)
        if isinstance(error, SlowAnswerError):
            self._too_slow()
        elif not isinstance(error, SourceThrottledError):
            self._unreachable()

    def _too_slow(self) -> None:
        """Reduce the size of reads, since an answer was too slow."""
        buffer, now = self._place.buffer, self._clock.now()
        was_smallest = buffer.window.is_smallest
        buffer.window.timed_out(self._began, now, buffer.in_flight)
        self._stream.read_too_slowly()
        self._place.reserve = FULL_PAGE_BYTES
        if was_smallest:
            self._unreachable()

    def _unreachable(self) -> None:
        """Record that a read got no answer; the next one requests a new iterator."""
        # Other reads of the stream may have been answered after this one began.
        self._failed(since=max(self._began, self._stream.answered_at))
        self._place.buffer.window.restart()
        self._place.is_answered = False
        self._place.forget_iterator()

    def _failed(self, since: float) -> None:
        now, shard_id = self._clock.now(), self._place.owned.key.shard_id
        after = self._place.builder.after
        self._stream.read_failed(ReadFailure(since, now, shard_id, after))

    async def _missing(self, error: ShardMissingError) -> Ended | Retry:
        """Treat an expired shard as ended, unless the stream was recreated."""
        await self._require_same_stream(error)
        if not self._may_own:
            return Retry(self._place.after_failure())
        self._place.warnings.shard_expired(error)
        return Ended(Page([], None, 0))

    async def _explain(self, error: FatalError) -> None:
        """Raise an error that says more than a FatalError, if there is one."""
        place, is_invalid = self._place, isinstance(error, InvalidPositionError)
        # A FatalError that is of no subclass has an unknown reason.
        if is_invalid or type(error) is FatalError:
            await self._require_same_stream(error)
        if is_invalid and place.builder.after == place.owned.row.position:
            raise place.warnings.position_error(error) from error

    async def _require_same_stream(self, error: KinesumerError) -> None:
        """Raise StreamRecreatedError if a recreated stream explains the error."""
        stream, since = self._stream, self._context.clock.now()
        try:
            await self._context.until_available(
                lambda: stream.confirm(since), stream.label
            )
        except StreamRecreatedError as recreated:
            raise recreated from error

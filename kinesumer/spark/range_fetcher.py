"""Fetches the records of one range of a shard, within Kinesis's limits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.core.batch_ranges import seen_at
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import After, At, Position, may_be_trimmed
from kinesumer.model.records import Page
from kinesumer.model.streams import ShardKey, Start, Stream
from kinesumer.ports import Clock, ReservedForAny, StreamSource
from kinesumer.runtime.failure_log import FailureLog, logger
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.planning.data_loss import DataLoss, holds_all_after
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.process_cache import IteratorCache, Paces
from kinesumer.spark.rows import Columns, RangeFilter, RecordRows, Rows, rows_of

# The task fails if Kinesis doesn't answer for this long.
GIVE_UP_SECONDS = 600.0
# After this many empty pages at the shard's tip, missing records are regarded as lost.
CAUGHT_UP_READS = 4
# The maximum error of an executor's clock. Chosen: a clock that is set at times errs by
# less, and an hour is little of the least retention, a day.
CLOCK_ERROR_SECONDS = 3600.0
# After these errors of a subscription, the rest of the range is polled.
POLLED_AFTER = (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)


@dataclass
class ReadContext:
    """Options, clock and caches that all ranges of a task share."""

    clock: Clock
    random: random.Random
    iterators: IteratorCache
    paces: Paces
    options: ReadOptions
    columns: Columns
    # The total time in which Spark blocked the event loop, and nothing was fetched.
    paused_seconds: float = 0.0
    failure_log: FailureLog = field(init=False)
    loss: DataLoss = field(init=False)

    def __post_init__(self) -> None:
        """Create the logs of the task's failures and losses."""
        self.failure_log = FailureLog(self.clock)
        self.loss = DataLoss(fail=self.options.fail_on_data_loss)

    def running(self) -> float:
        """Return the time on a clock that stops while Spark blocks the loop."""
        return self.clock.now() - self.paused_seconds


class RangeFetcher:
    """Fetches one range, page by page."""

    def __init__(
        self,
        context: ReadContext,
        range_: ShardRange,
        stream: Stream,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
    ) -> None:
        self._context, self._range, self._open = context, range_, open_source
        self._polled = replace(stream, fan_out=None)
        # The stream to subscribe to, or None while the range is polled.
        self._subscribed = stream if range_.subscribes else None
        self._pushed: StreamSource | None = None  # the source of the subscription
        self._key = ShardKey(range_.stream_arn, range_.shard_id)
        self._filter = RangeFilter(range_)
        self._iterator: str | None = None
        self._caught_up = 0
        self.over: bool = self._filter.reached  # true if nothing more is to be read
        options = context.options
        self._pacing = context.paces(
            self._key, options.min_fetch_period, options.max_fetch_rate * 1e6
        )
        self._pacing.share_among(range_.apps)
        self._next_at = self._pacing.starts_at(context.clock.now())
        self._answered_at = context.running()
        # True after the check whether the range's first records have expired.
        self._is_whole = False
        # The memory, in bytes, that decoding the next page may need.
        self.page_bytes: int = min(range_.estimated_bytes, FULL_PAGE_BYTES)

    async def wait(self) -> None:
        """Wait until the next read is due."""
        delay = self._next_at - self._context.clock.now()
        if delay > 0:
            await asyncio.sleep(delay)

    async def turn(self) -> pa.RecordBatch | None:
        """Read one page, and return its rows that belong to the range, or None."""
        clock = self._context.clock
        started = clock.now()
        try:
            if self._subscribed is None:
                page = await self._read(started)
            else:
                page = await self._receive(self._subscribed)
            if page.is_unconfirmed:
                raise SourceUnavailableError(
                    f"{self._key.shard_id} is open, but Kinesis's answer looks like "
                    "its end"
                )
        except POLLED_AFTER as error:
            if self._subscribed is None:
                self._failed(error)
            else:
                self._poll_instead(str(error))
            return None
        self._answered_at = self._context.running()
        rows = rows_of(page, deaggregate=self._context.options.deaggregate)
        return self._take(started, page, rows)

    def _failed(self, error: KinesumerError) -> None:
        """Prepare the next read after an error of polling, or raise the error."""
        match error:
            case ExpiredIteratorError():
                self._iterator = None
            case ShardMissingError():
                self._report_loss(f"Kinesis no longer knows the shard ({error})")
                self.over = True
            case SourceUnavailableError():
                self._next_at = self._backoff(error)
            case _:
                raise error

    def close(self) -> None:
        """End the range's subscription, if it has one."""
        if self._pushed is not None:
            self._pushed.release(self._key.shard_id)
            self._pushed = None

    async def _receive(self, stream: Stream) -> Page:
        """Return the next event of the range's subscription, as a page."""
        if self._pushed is None or self._iterator is None:
            await self._check_trimmed(await self._open(self._polled))
            self._pushed = await self._open(stream)
            self._iterator = await self._pushed.get_iterator(
                self._key.shard_id, self._filter.after
            )
        return await self._pushed.get_records(self._iterator, PAGE_RECORDS)

    def _poll_instead(self, reason: str) -> None:
        """Poll what is left of the range, and let polling decide about errors."""
        logger.info("%s, %s: polling instead of fan-out: %s", *self._key, reason)
        self.close()
        self._subscribed = self._iterator = None
        self._next_at = self._pacing.starts_at(self._context.clock.now())

    async def _read(self, now: float) -> Page:
        after, iterators = self._filter.after, self._context.iterators
        source = await self._open(self._polled)
        if self._iterator is None and isinstance(after, Position):
            self._iterator = iterators.take(self._key, after, now)
        if self._iterator is None:
            self._iterator = await self._begin(source)
        limit = self._pacing.page_records(PAGE_RECORDS)
        return await source.get_records(self._iterator, limit, ReservedForAny())

    async def _begin(self, source: StreamSource) -> str:
        await self._check_trimmed(source)
        try:
            return await source.get_iterator(self._key.shard_id, self._filter.after)
        except TrimmedPositionError as error:
            await self._restart(source, error)
        return await source.get_iterator(self._key.shard_id, self._filter.after)

    async def _check_trimmed(self, source: StreamSource) -> None:
        """Report data loss if the first records of the range have expired."""
        # If they have expired, Kinesis raises no error, but begins with the oldest
        # existing record. If the range begins At a record, _check_beginning() makes the
        # check later.
        first = self._range.first
        seen = seen_at(first)
        if self._is_whole or seen is None or isinstance(first, At):
            return
        if await self._may_be_trimmed(source, seen) and not await holds_all_after(
            source, self._key, first
        ):
            hours = self._range.retention_seconds / 3600
            self._report_loss(f"the first expired after {hours:g} hours")
        self._is_whole = True

    async def _may_be_trimmed(self, source: StreamSource, seen: float) -> bool:
        """Return whether records that arrived at a time may have expired."""
        # Ask Kinesis for its time only if this machine's clock isn't exact enough to
        # decide this.
        retention, wall = self._range.retention_seconds, self._context.clock.wall()
        if not may_be_trimmed(seen, retention, wall + CLOCK_ERROR_SECONDS):
            return False
        now = (await source.describe()).now + 1  # ``now`` is in whole seconds
        is_new = now < self._range.expiring_until
        if is_new and not isinstance(self._range.first, After):
            return False
        return may_be_trimmed(seen, retention, now)

    async def _restart(self, source: StreamSource, error: TrimmedPositionError) -> None:
        """Choose where to continue if the record at the position has expired."""
        first, filter_ = self._range.first, self._filter
        if isinstance(first, After) and filter_.after == first.position:
            if not await self._may_be_trimmed(source, first.seen):
                # No record after the position arrived before this time, so none is
                # skipped.
                filter_.after = Start(type="AT_TIMESTAMP", timestamp=first.seen)
                return
        if not isinstance(first, At):
            self._report_loss(f"the first have expired ({error})")
        filter_.after = Start.TRIM_HORIZON

    def _check_beginning(self) -> None:
        """Report data loss if the range's first record is missing."""
        if not self._filter.is_first_missing:
            return
        self._filter.is_first_missing = False
        range_, now = self._range, self._context.clock.wall()
        age = now - (seen_at(range_.first) or 0.0)
        old = range_.retention_seconds - CLOCK_ERROR_SECONDS
        if now < range_.expiring_until and age > old:
            logger.warning(
                "the oldest records expired while the query began: %s, %s", *self._key
            )
            return
        self._report_loss("the first have expired")

    def _take(self, started: float, page: Page, rows: Rows) -> pa.RecordBatch | None:
        filter_, columns = self._filter, self._context.columns
        payload = rows.payload
        if self._subscribed is None:
            self._next_at = self._pacing.after_page(
                started,
                records=len(rows),
                payload_bytes=payload,
                millis_behind=page.millis_behind,
            )
        if len(rows):
            # While a page is decoded, its Base64 text and the columns are in memory.
            self.page_bytes = 3 * payload
        taken = filter_.take(rows)
        self._check_beginning()
        self._iterator = page.next_iterator
        self._check_end(page, rows)
        if taken.first == taken.stop:
            return None
        batch = rows.batch(self._key, columns, taken)
        if isinstance(rows, RecordRows) and rows.unopened:
            self._context.failure_log.record_corrupt_aggregates(rows.unopened)
        return batch

    def _check_end(self, page: Page, rows: Rows) -> None:
        """End the range if this was its last page. Report missing records as lost."""
        filter_ = self._filter
        if filter_.reached:
            self.over = True
            self._keep(page, rows)
        elif filter_.passed:
            self.over = True
            self._report_loss("the last are missing, but later records exist")
        elif page.next_iterator is None:
            self.over = True
            if filter_.last is not None:
                self._report_loss("the shard ends before the last")
        elif len(rows) or page.millis_behind:
            self._caught_up = 0
        elif self._subscribed is not None:
            self._poll_instead("an event without records, before the range's end")
        else:
            self._caught_up += 1
            if self._caught_up >= CAUGHT_UP_READS:
                self.over = True
                self._report_loss("the shard has no more records")

    def _keep(self, page: Page, rows: Rows) -> None:
        """Cache the iterator if it continues exactly after this range."""
        last, now = self._filter.last, self._context.clock.now()
        if (
            self._subscribed is None
            and page.next_iterator is not None
            and last is not None
            and last.sub_sequence_number is None
            and len(rows)
            and rows.number(len(rows) - 1) == last.sequence_number
        ):
            self._context.iterators.keep(self._key, last, page.next_iterator, now)

    def _backoff(self, error: SourceUnavailableError) -> float:
        """Return when to try again. Raise the error after GIVE_UP_SECONDS of errors.

        Time without valid credentials doesn't count.
        """
        context = self._context
        now, jitter = context.clock.now(), context.random.random()
        if error.lacks_credentials:
            self._answered_at = context.running()
        if context.running() - self._answered_at > GIVE_UP_SECONDS:
            raise error
        if isinstance(error, ShardThrottledError):
            return self._pacing.after_throttle(now, jitter)
        return self._pacing.after_failure(now, jitter)

    def _report_loss(self, why: str) -> None:
        last = self._filter.last
        if last is not None:
            why += f"; the batch ends at {last.sequence_number}"
        self._context.loss.report(*self._key, self._range.first, why)

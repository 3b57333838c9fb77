"""Fetches exactly one range of a shard, within Kinesis's limits, with retries."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesumer.aws.kinesis import KinesisSource
from kinesumer.core.pacing import BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS
from kinesumer.errors import (
    DataLossError,
    ExpiredIteratorError,
    ShardMissingError,
    ShardThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey, Start
from kinesumer.spark.columnar.rows import RecordRows, parse
from kinesumer.spark.offsets.model import After, At, End
from kinesumer.spark.planning.data_loss import holds_all_after, may_be_trimmed, seen_at
from kinesumer.spark.reading.range_filter import RangeFilter

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    import pyarrow as pa

    from kinesumer.model.records import Page
    from kinesumer.ports import Clock, StreamSource
    from kinesumer.spark.columnar.arrow import Columns
    from kinesumer.spark.columnar.rows import Rows
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.options.parser import ReadOptions
    from kinesumer.spark.planning.tasks import ShardRange
    from kinesumer.spark.runtime.shard_cache import IteratorCache, PaceCache

logger = logging.getLogger("kinesumer.spark")

CAUGHT_UP_SECONDS = 0.25
"""The period of reads at the shard's tip, where the rest of a range is to appear."""
GIVE_UP_SECONDS = 600.0
"""The task fails if Kinesis doesn't answer for this long."""
CAUGHT_UP_READS = 4
"""After so many empty pages at the shard's tip, no more records are expected."""
CLOCK_ERROR_SECONDS = 3600.0
"""The maximum error of an executor's clock."""
FIRST_LIMIT, MAX_RECORDS = 2_000, 10_000


class ReadContext:
    """Options, clock and caches that all ranges of a task share."""

    def __init__(
        self,
        clock: Clock,
        random: random.Random,
        iterators: IteratorCache,
        paces: PaceCache,
        options: ReadOptions,
        columns: Columns,
    ) -> None:
        self.clock, self.random = clock, random
        self.iterators, self.paces = iterators, paces
        self.options, self.columns = options, columns
        self.paused_seconds = 0.0
        """Seconds in which Spark blocked the loop, so that nothing could be fetched."""

    def running(self) -> float:
        """Return the time on a clock that stops while Spark blocks the loop."""
        return self.clock.now() - self.paused_seconds


class RangeFetcher:
    """Fetches one range, page by page."""

    def __init__(
        self,
        world: ReadContext,
        given: ShardRange,
        open_source: Callable[[], Awaitable[StreamSource]],
    ) -> None:
        self._context, self._range, self._open = world, given, open_source
        self._key = ShardKey(given.stream_arn, given.shard_id)
        self._cut = RangeFilter(given)
        self._iterator: str | None = None
        self._limit = FIRST_LIMIT
        self._caught_up = 0
        self._over = self._cut.reached
        self._failures = 0
        self._pace = world.paces.of(self._key)
        self._next_at = self._pace.starts_at(world.clock.now())
        self._answered = world.running()
        self._whole = False
        """True if it is known that no record at the beginning is missing."""
        self.page_bytes = given.estimated_bytes
        """Estimated bytes of the next page while it is decoded."""

    @property
    def over(self) -> bool:
        """True when the range has been read."""
        return self._over

    async def wait(self) -> None:
        """Wait until the next read is due."""
        delay = self._next_at - self._context.clock.now()
        if delay > 0:
            await asyncio.sleep(delay)

    async def turn(self) -> pa.RecordBatch | None:
        """Read one page; return the range's next rows, or None."""
        clock = self._context.clock
        started = clock.now()
        try:
            page, rows = await self._read(started)
        except ExpiredIteratorError:
            self._iterator = None
            return None
        except ShardMissingError as error:
            self._report_loss(f"Kinesis no longer knows the shard ({error})")
            self._over = True
            return None
        except SourceUnavailableError as error:
            self._next_at = self._backoff(error)
            return None
        self._answered, self._failures = self._context.running(), 0
        return self._take(started, page, rows)

    async def _read(self, now: float) -> tuple[Page, Rows]:
        after, iterators = self._cut.after, self._context.iterators
        deaggregate = self._context.options.deaggregate
        source = await self._open()
        if self._iterator is None and isinstance(after, Position):
            self._iterator = iterators.take(self._key, after, now)
        if self._iterator is None:
            self._iterator = await self._begin(source)
        if isinstance(source, KinesisSource):
            body = await source.get_body(self._iterator, self._limit)
            names = self._context.columns.names
            return parse(body, names, deaggregate=deaggregate)
        page = await source.get_records(self._iterator, self._limit)
        return page, RecordRows(page.records, deaggregate=deaggregate)

    async def _begin(self, source: StreamSource) -> str:
        """Return an iterator at the current position."""
        await self._check_trimmed(source)
        try:
            return await source.get_iterator(self._key.shard_id, self._cut.after)
        except TrimmedPositionError as error:
            await self._restart(source, error)
        return await source.get_iterator(self._key.shard_id, self._cut.after)

    async def _check_trimmed(self, source: StreamSource) -> None:
        """Report data loss if retention has passed the beginning of an old range.

        Kinesis raises no error then: it continues with the oldest record that it has. A
        range that begins at a record needs no check: that record arrives, or is lost.
        """
        first = self._range.first
        seen = seen_at(first)
        if self._whole or seen is None or isinstance(first, At):
            return
        if await self._may_be_trimmed(source, seen) and not await holds_all_after(
            source, self._key.shard_id, first
        ):
            hours = self._range.retention_seconds / 3600
            self._report_loss(f"retention, {hours:g} hours, has passed it")
        self._whole = True

    async def _may_be_trimmed(self, source: StreamSource, seen: float) -> bool:
        """Tell whether retention has passed a time, by Kinesis's clock.

        This machine's clock only saves the call where its error cannot matter.
        """
        retention, wall = self._range.retention_seconds, self._context.clock.wall()
        if not may_be_trimmed(seen, retention, wall + CLOCK_ERROR_SECONDS):
            return False
        now = (await source.describe()).now + 1  # a Date has whole seconds
        is_new = now < self._range.expiring_until
        if is_new and not isinstance(self._range.first, After):
            return False
        return may_be_trimmed(seen, retention, now)

    async def _restart(self, source: StreamSource, error: TrimmedPositionError) -> None:
        """Go on where a record was that has expired itself."""
        first, cut = self._range.first, self._cut
        if isinstance(first, After) and cut.after == first.position:
            if not await self._may_be_trimmed(source, first.seen):
                # What comes after it arrived later than what is known to lie before.
                cut.after = Start(type="AT_TIMESTAMP", timestamp=first.seen)
                return
        if not isinstance(first, At):
            self._report_loss(f"retention has passed it ({error})")
        cut.after = Start.TRIM_HORIZON

    def _check_beginning(self) -> None:
        """Find out if the record that the range begins with came."""
        if not self._cut.is_first_missing:
            return
        self._cut.is_first_missing = False
        given = self._range
        age = self._context.clock.wall() - (seen_at(given.first) or 0.0)
        is_new = self._context.clock.wall() < given.expiring_until
        if is_new and age > given.retention_seconds - CLOCK_ERROR_SECONDS:
            logger.warning(
                "the oldest records expired while the query began: %s, %s",
                given.stream_arn,
                given.shard_id,
            )
            return
        self._report_loss("retention has passed its first record")

    def _take(self, started: float, page: Page, rows: Rows) -> pa.RecordBatch | None:
        cut, columns = self._cut, self._context.columns
        payload = rows.payload
        period = self._period(page, payload)
        self._next_at = self._pace.after_page(started, period, payload)
        if len(rows):
            size = max(1, payload // len(rows))
            most = self._pace.share.page_bytes
            self._limit = max(1, min(MAX_RECORDS, most // size))
            self.page_bytes = 3 * payload
        taken = cut.take(rows)
        self._check_beginning()
        self._iterator = page.next_iterator
        self._check_end(page, rows)
        if taken.first == taken.stop:
            return None
        return rows.batch(self._key, columns, taken)

    def _period(self, page: Page, payload: int) -> float:
        """Return the seconds from the start of one read to the next."""
        options = self._context.options
        period = options.min_fetch_period
        if not page.millis_behind:
            period = max(period, CAUGHT_UP_SECONDS)
        return max(period, payload / (options.max_fetch_rate * 1e6))

    def _check_end(self, page: Page, rows: Rows) -> None:
        """End the range if this page was the last; report missing records."""
        cut = self._cut
        if cut.reached:
            self._over = True
            self._keep(page, rows)
        elif cut.passed:
            self._over = True
            self._report_loss("records up to there are gone, but later ones came")
        elif page.next_iterator is None:
            self._over = True
            if cut.last is not None:
                self._report_loss("the shard ends before it")
        elif len(rows) or page.millis_behind:
            self._caught_up = 0
        else:
            self._caught_up += 1
            if self._caught_up >= CAUGHT_UP_READS:
                self._over = True
                self._report_loss("the shard holds nothing more")

    def _keep(self, page: Page, rows: Rows) -> None:
        """Cache the iterator if it continues exactly after this range."""
        last, now = self._cut.last, self._context.clock.now()
        if (
            page.next_iterator is not None
            and last is not None
            and last.sub_sequence_number is None
            and len(rows)
            and rows.number(len(rows) - 1) == last.sequence_number
        ):
            self._context.iterators.keep(self._key, last, page.next_iterator, now)

    def _backoff(self, error: SourceUnavailableError) -> float:
        """Return the time of the next try. Raise the error if it lasts too long."""
        world = self._context
        now = world.clock.now()
        if world.running() - self._answered > GIVE_UP_SECONDS:
            raise error
        if isinstance(error, ShardThrottledError):
            period, jitter = world.options.min_fetch_period, world.random.random()
            return self._pace.after_throttle(now, period, jitter)
        longest = BACKOFF_SECONDS * 2.0 ** min(self._failures, 9)
        most = min(BACKOFF_LIMIT_SECONDS, longest)
        self._failures += 1
        jitter = world.random.random() * most
        return now + max(world.options.min_fetch_period, jitter)

    def _report_loss(self, why: str) -> None:
        given = self._range
        message = (
            f"{given.stream_arn}, {given.shard_id}: records after "
            f"{_describe(given.first)} up to {_describe(given.last)} "
            f"can't all be read: {why}; they are lost to this query. To go on with "
            "what is left, set the option failOnDataLoss=false; to read the stream "
            "anew, start with a new checkpoint"
        )
        if self._context.options.fail_on_data_loss:
            raise DataLossError(message)
        logger.error("%s", message)


def _describe(place: ShardPosition) -> str:
    match place:
        case At(sequence_number=number):
            return f"the beginning of {number}"
        case After(position=position):
            sub = position.sub_sequence_number
            part = "" if sub is None else f", part {sub}"
            return f"{position.sequence_number}{part}"
        case End():
            return "the shard's end"
        case Start(timestamp=None):
            return "the shard's beginning"
        case Start(timestamp=timestamp):
            return f"the time {timestamp}"

"""Read shards for operators: limited calls, and samples of lags and arrival rates."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.core.batch_ranges import MAX_ROWS_PER_SECOND
from kinesumer.errors import (
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    TransientError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import DEFAULT_COMMIT_MS, ShardRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ops.group.connect import NO_ROLES, RETRY_SECONDS, Roles
from kinesumer.ops.group.snapshot import COMMIT_MILLIS
from kinesumer.ports import StreamSource
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import Retries, gather_or_cancel

K = TypeVar("K")
T = TypeVar("T")

PARALLEL_READS = 16
RETRIES = Retries(max_attempts=6, max_seconds=RETRY_SECONDS)
# Consumers share a shard's five reads and 2 MB per second. At this interval and with
# pages of SHARED_PAGE_BYTES, a command takes two reads and half of the bytes.
READ_INTERVAL_SECONDS = 0.5
MAX_READS = 16  # of a shard for one answer: they take eight seconds
# Clients store positions at intervals, so even a steady lag varies this much.
NOISE_MILLIS = DEFAULT_COMMIT_MS + COMMIT_MILLIS
# The size of one sample: a small part of the 2 MB/s that a shard's readers share.
SAMPLE_BYTES = 256 * 1024
SAMPLE_RECORDS = int(MAX_ROWS_PER_SECOND)
DEFAULT_RECORD_BYTES = 1024
TIP_SECONDS = 10.0  # the current rate is measured over this time
# Errors that affect a single shard.
SHARD_ERRORS = (
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)


class PacedReader:
    """Makes the reads of one command, only some at a time and not too many per shard.

    All readers of a shard share five calls a second, so throttling is expected.
    ``interval_seconds`` is the shortest time between two reads of one shard.
    """

    def __init__(self, interval_seconds: float = 0.0) -> None:
        self._interval = interval_seconds
        self._next: dict[ShardKey, float] = {}
        self._limit = asyncio.Semaphore(PARALLEL_READS)
        # By stream, until a read is answered: the last one without an answer, its time.
        self._outages: dict[str, tuple[SourceUnavailableError, float]] = {}
        # The number of throttled reads of each shard.
        self.throttled: Counter[ShardKey] = Counter()

    async def call(self, key: ShardKey, request: Callable[[], Awaitable[Page]]) -> Page:
        """Return the result of a read of a shard, at the shard's next turn.

        Throttled and failed requests are made again. Raises the request's errors.
        """

        def count(error: TransientError) -> None:
            self.throttled[key] += isinstance(error, SourceThrottledError)

        await self._wait_turn(key)
        async with self._limit:
            self._require_no_outage(key.stream_arn)
            try:
                page = await RETRIES.call(request, on_failure=count)
            except SourceThrottledError:
                raise  # throttling shows that the stream is available
            except SourceUnavailableError as error:
                self._outages[key.stream_arn] = error, time.monotonic()
                raise
            self._outages.pop(key.stream_arn, None)
            return page

    def _require_no_outage(self, arn: str) -> None:
        # Without this check, a command would wait for each of a thousand shards.
        error, at = self._outages.get(arn, (None, 0.0))
        if error is not None and time.monotonic() - at < RETRY_SECONDS:
            raise SourceUnavailableError(
                f"not read, because another shard gave no answer: {error}"
            )

    async def _wait_turn(self, key: ShardKey) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next.get(key, now))
        self._next[key] = turn + self._interval
        await asyncio.sleep(turn - now)


async def for_each_stream(
    clients: ClientFactory,
    arns: Iterable[str],
    work: Callable[[str, StreamSource], Awaitable[None]],
    roles: Roles = NO_ROLES,
) -> dict[str, KinesumerError]:
    """Run ``work`` for all streams at once; return the errors by ARN."""

    async def run(arn: str) -> KinesumerError | None:
        try:
            await work(arn, await open_polled_source(clients, roles.stream(arn)))
        except KinesumerError as error:
            return error
        return None

    errors = await gather_by_key({arn: run(arn) for arn in arns})
    return {arn: error for arn, error in errors.items() if error is not None}


async def gather_by_key(calls: Mapping[K, Coroutine[Any, Any, T]]) -> dict[K, T]:
    """Return the result of each call by its key. The first error cancels the others."""
    results = await gather_or_cancel(calls.values())
    return dict(zip(calls, results, strict=True))


# --- samples --------------------------------------------------------------------------


class LagSample(NamedTuple):
    """The lag of one shard at one time."""

    at: float  # seconds on this machine's monotonic clock
    millis: int | None  # the next record's distance to the tip; None if expired
    after: Position | Start  # the read starts here
    records: int | None = None  # the number of unread records; None if not counted
    exact: bool = False  # whether records were counted rather than estimated
    problem: str = ""  # why the shard couldn't be read, or what is lost


class ArrivalSample(NamedTuple):
    """The records that arrived in a shard within some time."""

    records: int
    size: int  # the bytes of the records' data
    seconds: float

    @property
    def records_per_second(self) -> float:
        """The rate, limited to Kinesis's maximum; a burst may exceed it in a sample."""
        if self.records > MAX_ROWS_PER_SECOND * self.seconds:
            return MAX_ROWS_PER_SECOND
        return self.records / self.seconds if self.records else 0.0

    @property
    def bytes_per_second(self) -> float:
        """The number of bytes that arrive per second."""
        mean = self.size / self.records if self.records else 0.0
        return self.records_per_second * mean


def sample_page(page: Page, since: float, now: float) -> ArrivalSample:
    """Return a sample of the records of a page that arrived at ``since`` or later.

    The page was read at ``now``.
    """
    size = sum(len(record.data) for record in page.records)
    return ArrivalSample(len(page.records), size, page_end(page, now) - since)


def _page_start(page: Page, now: float) -> float:
    """Return when a page's first record arrived; the page's end without records."""
    arrived = page.records[0].approximate_arrival_timestamp if page.records else None
    return page_end(page, now) if arrived is None else arrived


def page_end(page: Page, now: float) -> float:
    """Return the time until which a page that was read at ``now`` has all records.

    The time of the page's last record is exact. ``now`` may be a second late or early,
    since Kinesis reports its time in whole seconds.
    """
    last = page.records[-1].approximate_arrival_timestamp if page.records else None
    if last is None or page.is_at_tip:
        return now - page.millis_behind / 1000
    return last


def page_millis_behind(page: Page, now: float) -> int:
    """Return the milliseconds for which a page's first record has waited.

    Kinesis reports how far the page's last record is behind: 0 for the only unread
    record, however old that record is.
    """
    waited = round((now - _page_start(page, now)) * 1000)
    return max(page.millis_behind, waited)


def sample_limit(record_bytes: float | None, most_bytes: int = SAMPLE_BYTES) -> int:
    """Return how many records of this size to request; None if the size is unknown."""
    size = DEFAULT_RECORD_BYTES if record_bytes is None else max(record_bytes, 1)
    return max(1, min(SAMPLE_RECORDS, int(most_bytes / size)))


def _following_limit(page: Page) -> int:
    """Return how many records to request after a page, by the size of its records."""
    sizes = (len(record.data) for record in page.records)
    return sample_limit(max(sizes, default=None))


def estimate_records(seconds: float, samples: Sequence[ArrivalSample]) -> int:
    """Estimate how many records arrived within some time, from samples spread evenly.

    Between two samples, the rate is assumed to change evenly.
    """
    rates = [sample.records_per_second for sample in samples]
    mean = sum(a + b for a, b in pairwise(rates)) / (2 * (len(rates) - 1))
    return round(mean * seconds)


class ReadPoint(NamedTuple):
    """The place in a shard at which reading begins."""

    page: Page  # the first page from this place; empty at the shard's tip
    at: float  # the first record's arrival, in Unix time; the current time at the tip
    pages: ShardPages  # the following pages

    @property
    def sequence_number(self) -> int | None:
        """The first record's sequence number; None at the tip."""
        records = self.page.records
        return int(records[0].sequence_number) if records else None


class ShardSampler:
    """Reads samples of one shard."""

    def __init__(
        self, reader: PacedReader, source: StreamSource, key: ShardKey, now: float
    ) -> None:
        self._reader, self._source, self._key = reader, source, key
        self._offset = now - time.monotonic()

    def now(self) -> float:
        """Return Kinesis's time now: the given time plus the time since then."""
        return time.monotonic() + self._offset

    def pages(self, after: Position | Start, **options: Any) -> ShardPages:
        """Return the pages after a position; ``options`` are those of the pages."""
        call = partial(self._reader.call, self._key)
        # Estimates may end at a tip that another reader would have confirmed.
        place = self._source, self._key, after, self.now()
        return ShardPages(*place, call, believes_tip=True, **options)

    async def read(self, after: Position | Start) -> ReadPoint:
        """Read a page with one record. Raises the errors of ``ShardPages.next()``."""
        pages = self.pages(after)
        page = await pages.next(1)
        while page.may_be_at_tip:
            page = await pages.next(1)
        return self._point(page, pages)

    def _point(self, page: Page, pages: ShardPages) -> ReadPoint:
        return ReadPoint(page, _page_start(page, self.now()), pages)

    async def read_first(self, after: Position | Start) -> ReadPoint:
        """Return the first page that has a record, or is at the tip."""
        pages = self.pages(after)
        return self._point(await pages.first(), pages)

    async def since(self, timestamp: float) -> ArrivalSample:
        """Return a sample of the records that arrived at or after a time."""
        start = Start(type="AT_TIMESTAMP", timestamp=timestamp)
        page, _, pages = await self.read(start)
        if not page.is_at_tip:
            more = await pages.next(_following_limit(page))
            page = more._replace(records=[*page.records, *more.records])
        return sample_page(page, timestamp, self.now())

    async def arrivals(self) -> ArrivalSample:
        """Return the records that arrived in the last seconds."""
        return await self.since(self.now() - TIP_SECONDS)

    async def lag(self, row: ShardRow, *, count: bool = False) -> LagSample:
        """Sample the lag by reading one record after a row's position.

        ``count`` also counts or estimates the unread records, by a few more reads.
        """
        after = row.position or row.start
        try:
            first = await self.read(after)
            at = time.monotonic()
            millis = page_millis_behind(first.page, self.now())
            if not (count or first.page.is_at_tip):
                return LagSample(at, millis, after)
            # Beside the page of one record, one more is counted.
            records, exact = await self.count(first, None, 2)
        except SHARD_ERRORS as error:
            return LagSample(time.monotonic(), None, after, problem=str(error))
        return LagSample(at, millis, after, records, exact)

    async def count(
        self, first: ReadPoint, last: ReadPoint | None, pages: int
    ) -> tuple[int, bool]:
        """Return the number of records between two points, and whether it is exact.

        Without ``last``, count up to the tip. If so many pages don't reach the end, the
        number of further records is estimated from the rates at the first point, in the
        middle of the rest, and at its end.
        """
        end = None if last is None else last.sequence_number
        page, counted = first.page, 0
        for place in range(pages):
            if place:
                page = await first.pages.next(_following_limit(page))
            numbers = [int(record.sequence_number) for record in page.records]
            before = len([number for number in numbers if end is None or number < end])
            counted += before
            if page.is_at_tip or before < len(numbers):
                return counted, True
        now = self.now()
        until = now if last is None or end is None else last.at
        reached = page_end(page, now)
        seconds = max(until - reached, 0.0)
        samples = [
            ArrivalSample(counted, 0, reached - first.at),
            await self.since(until - seconds / 2),
            await self.since(until - TIP_SECONDS),
        ]
        return counted + estimate_records(seconds, samples), False


class Samples(NamedTuple, Generic[T]):
    """Measurements of the shards of several streams."""

    values: dict[ShardKey, T]
    problems: dict[str, KinesumerError]  # errors of unreadable streams, by ARN
    retention_hours: dict[str, int]  # how long streams keep records, by ARN


async def sample_shards(
    clients: ClientFactory,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles,
    measure: Callable[[ShardSampler, ShardRow], Coroutine[Any, Any, T]],
    reader: PacedReader | None = None,
) -> Samples[T]:
    """Measure every unfinished shard; report unreadable streams as problems."""
    reader = reader or PacedReader()
    values: dict[ShardKey, T] = {}
    retention_hours: dict[str, int] = {}

    async def sample_stream(arn: str, source: StreamSource) -> None:
        info = await source.describe()
        retention_hours[arn] = info.retention_hours
        calls = {
            row.key: measure(ShardSampler(reader, source, row.key, info.now), row)
            for row in shards[arn]
            if not row.ended
        }
        values.update(await gather_by_key(calls))

    problems = await for_each_stream(clients, shards, sample_stream, roles)
    return Samples(values, problems, retention_hours)

"""Test the pacing and retries of operators' reads, and estimates from samples."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.core.batch_ranges import MAX_ROWS_PER_SECOND
from kinesumer.errors import (
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ops.group import shard_reads
from kinesumer.ops.group.lag import find_trend
from kinesumer.ops.group.shard_reads import (
    PARALLEL_READS,
    RETRIES,
    ArrivalSample,
    LagSample,
    PacedReader,
    ShardSampler,
    estimate_records,
    page_millis_behind,
    sample_limit,
    sample_page,
)
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import gather_or_cancel
from tests.support.doctor import KEYS, lag, row

KEY = ShardKey("orders", "shardId-0")
PAGE = Page([], "next", 0)
MAX_READS = int(RETRIES.max_attempts)
UNAVAILABLE = SourceUnavailableError("timed out")


class Source:
    """A source whose reads raise the given errors, one each, and then succeed."""

    def __init__(self, *faults: KinesumerError) -> None:
        self.faults = list(faults)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        return "here"

    async def get_records(self, iterator: str, limit: int) -> Page:
        if self.faults:
            raise self.faults.pop(0)
        return PAGE


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    retries = RETRIES._replace(backoff=Backoff(0.0, 0.0))
    monkeypatch.setattr(shard_reads, "RETRIES", retries)


async def read(source: Any, reader: PacedReader, key: ShardKey = KEY) -> Page:
    call = partial(reader.call, key)
    return await ShardPages(source, key, Start.LATEST, 0.0, call).next(1)


async def test_throttled_reads_are_retried_and_counted() -> None:
    reader = PacedReader()
    faults = SourceThrottledError("slow down"), SourceUnavailableError("503")
    assert await read(Source(*faults), reader) == PAGE
    assert reader.throttled == {KEY: 1}


async def test_it_gives_up_in_the_end() -> None:
    faults = [SourceThrottledError("slow down")] * MAX_READS
    with pytest.raises(SourceThrottledError):
        await read(Source(*faults), PacedReader())
    assert await read(Source(*faults[1:]), PacedReader()) == PAGE


async def test_reads_without_an_answer_end_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_reads, "RETRIES", RETRIES._replace(max_seconds=0.0))
    source = Source(*[UNAVAILABLE] * 2)
    with pytest.raises(SourceUnavailableError):
        await read(source, PacedReader())
    assert source.faults == [UNAVAILABLE]


async def test_an_outage_of_a_thousand_shards_is_detected_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source: Any = Source(*[UNAVAILABLE] * 10_000)
    reader = PacedReader()
    keys = [ShardKey("orders", f"shardId-{n}") for n in range(1_000)]
    calls = (read(source, reader, key) for key in keys)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, SourceUnavailableError) for each in results)
    assert 10_000 - len(source.faults) <= 2 * PARALLEL_READS * MAX_READS
    assert "gave no answer: timed out" in str(results[-1])
    assert await read(Source(), reader, ShardKey("payments", "shardId-0")) == PAGE
    monkeypatch.setattr(shard_reads, "RETRY_SECONDS", 0.0)
    assert await read(Source(), reader) == PAGE


async def test_the_first_error_ends_concurrent_reads() -> None:
    ended = asyncio.Event()

    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(SourceUnavailableError):
        await gather_or_cancel(
            [long(), read(Source(*[UNAVAILABLE] * 6), PacedReader())]
        )
    assert ended.is_set()


async def test_reads_of_one_shard_keep_their_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds))

    monkeypatch.setattr("asyncio.sleep", sleep)
    reader = PacedReader(interval_seconds=60.0)
    for _ in range(3):
        await read(Source(), reader)
    await read(Source(), reader, KEY._replace(shard_id="1"))
    assert slept == [0, 60, 120, 0]


THERE = Start.TRIM_HORIZON


def page(records: int, millis_behind: int, *, ends: bool = False) -> Page:
    made = [Record(str(number), b"12345678") for number in range(records)]
    return Page(made, None if ends else "next", millis_behind)


def test_a_sample_covers_the_time_from_where_it_began_to_where_the_page_ends() -> None:
    taken = sample_page(page(100, 40_000), since=50.0, now=100.0)
    assert taken == ArrivalSample(100, 800, 10.0)
    assert taken.records_per_second == 10.0
    assert taken.bytes_per_second == 80.0


def test_the_records_times_count_rather_than_a_clock_in_whole_seconds() -> None:
    """Otherwise a shard at a third of its limit would appear hot."""
    begin, late = 50.0, 0.9
    records = [Record(str(n), b"12345678", "", begin + n / 100) for n in range(51)]
    taken = sample_page(Page(records, "next", 40_000), begin, now=90.5 - late)
    assert taken.seconds == 0.5
    # At the tip, no record may have arrived for some time.
    assert sample_page(Page(records, "next", 0), begin, now=60.0).seconds == 10.0


async def test_a_counted_lag_begins_at_the_arrival_of_its_first_record() -> None:
    """``Source`` answers as if one record had arrived every 10 ms for 100 s."""
    now = 1000.0

    class Source:
        async def get_iterator(self, _: str, after: Position | Start) -> str:
            begin = after.timestamp if isinstance(after, Start) else now - 100
            return str(begin)

        async def get_records(self, iterator: str, limit: int) -> Page:
            return self.page(float(iterator), limit)

        def page(self, begin: float, count: int) -> Page:
            times = [begin + number / 100 for number in range(count)]
            records = [Record("1", b"12345678", "", at) for at in times]
            end = begin + count / 100
            return Page(records, str(end), round(1000 * (now - times[-1])))

    late = 0.9
    source: Any = Source()
    sampler = ShardSampler(PacedReader(), source, KEYS[0], now - late)
    counted = await sampler.lag(row(0, position=Position("100")), count=True)
    assert counted.records == pytest.approx(10_000, rel=0.03)


def test_a_rate_is_capped_at_the_limit_of_kinesis() -> None:
    assert ArrivalSample(900, 9000, 0.0).records_per_second == MAX_ROWS_PER_SECOND
    assert ArrivalSample(0, 0, 0.0).bytes_per_second == 0.0


@pytest.mark.parametrize(
    ("record_bytes", "records"),
    [(None, 256), (100, 1000), (64 * 1024, 4), (1 << 20, 1), (0, 1000)],
)
def test_large_records_are_sampled_in_small_numbers(
    record_bytes: float | None, records: int
) -> None:
    assert sample_limit(record_bytes) == records


def test_rates_between_samples_are_interpolated() -> None:
    assert estimate_records(60.0, [ArrivalSample(100, 0, 10.0)] * 3) == 600
    rising = [ArrivalSample(records, 0, 1.0) for records in (0, 10, 20)]
    assert estimate_records(10.0, rising) == 100


@pytest.mark.parametrize(
    ("read", "at_tip"),
    [
        (page(3, 0), True),
        (page(3, 5), False),
        (page(0, 5), False),
        (page(3, 5, ends=True), True),
    ],
)
def test_nothing_follows_a_page_at_the_tip_or_at_the_shards_end(
    read: Page, at_tip: bool
) -> None:
    assert read.is_at_tip is at_tip


@pytest.mark.parametrize(
    ("before", "after", "trend"),
    [
        (lag(0, 1_000), lag(10, 5_000, THERE), ("caught up", 400.0, 0.0)),
        (lag(0, 120_000), lag(10, 100_000, THERE), ("falling", -2000.0, 50.0)),
        (lag(0, 50_000), lag(10, 57_000, THERE), ("growing", 700.0, None)),
        # Without progress, a lag grows by a second each second.
        (lag(0, 50_000), lag(10, 60_000), ("stalled", 1000.0, None)),
        # A change as small as that of one commit counts as no change.
        (lag(0, 50_000), lag(60, 47_000, THERE), ("steady", -50.0, None)),
        (None, lag(10, 60_000), ("unknown", None, None)),
        (lag(0, None), lag(10, 60_000), ("unknown", None, None)),
        # If the next record has expired, the lag is unknown.
        (lag(0, 50_000), lag(10, None), ("unknown", None, None)),
    ],
)
def test_each_trend(
    before: LagSample | None, after: LagSample, trend: tuple[str, float, float]
) -> None:
    assert find_trend(before, after) == trend


def test_a_lag_counts_as_caught_up_only_if_it_is_expected() -> None:
    before, after = lag(0, 3_000), lag(10, 13_000)
    assert find_trend(before, after, 0).trend == "stalled"
    assert find_trend(before, after, 61_000).trend == "caught up"


def test_a_lag_is_the_age_of_the_first_record_that_waits() -> None:
    waiting = Page([Record("1", b"", None, 70.0), Record("2", b"", None, 90.0)], "n", 0)
    assert page_millis_behind(waiting, now=100.0) == 30_000
    later = waiting._replace(millis_behind=40_000)
    assert page_millis_behind(later, now=100.0) == 40_000
    assert page_millis_behind(page(0, 5), now=100.0) == 5
    assert page_millis_behind(page(1, 5), now=100.0) == 5


async def test_an_empty_page_of_a_table_is_no_lag_until_the_next_ones_tell() -> None:
    class Table(Source):
        """Answers empty pages, of which only the fourth says that it is the tip."""

        def __init__(self) -> None:
            super().__init__()
            self.behind = [1, 1, 1, 0]

        async def get_records(self, iterator: str, limit: int) -> Page:
            return Page([], "next", self.behind.pop(0))

    source: Any = Table()
    sampler = ShardSampler(PacedReader(0.0), source, KEYS[0], 1000.0)
    sample = await sampler.lag(row(0))
    assert (sample.millis, sample.problem, source.behind) == (0, "", [])

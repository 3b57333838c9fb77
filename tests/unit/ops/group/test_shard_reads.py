"""Test the pacing, retries and outages of operators' reads."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.errors import (
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ops.group import shard_reads
from kinesumer.ops.group.shard_reads import (
    PARALLEL_READS,
    RETRIES,
    PacedReader,
)
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import gather_or_cancel

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

"""How operators' commands ask Kinesis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model import Page, ShardKey, Start
from kinesumer.operations import asking
from kinesumer.operations.asking import TRIES, Asking

if TYPE_CHECKING:
    from kinesumer.model import Position

KEY = ShardKey("orders", "shardId-0")
PAGE = Page([], "next", 0)


class Source:
    """Fails as it is told, then answers."""

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
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 0.0)


async def read(source: Any, asked: Asking) -> Page:
    return await asked.read(source, KEY, Start.LATEST, 1)


async def test_what_is_refused_for_now_is_asked_again_and_counted() -> None:
    asked = Asking()
    faults = SourceThrottledError("slow down"), SourceUnavailableError("503")
    assert await read(Source(*faults), asked) == PAGE
    assert asked.throttled == {KEY: 1}


async def test_it_gives_up_in_the_end() -> None:
    faults = [SourceThrottledError("slow down")] * TRIES
    with pytest.raises(SourceThrottledError):
        await read(Source(*faults), Asking())
    assert await read(Source(*faults[1:]), Asking()) == PAGE


async def test_an_expired_iterator_is_the_askers_matter() -> None:
    source: Any = Source(ExpiredIteratorError("too old"))
    with pytest.raises(ExpiredIteratorError):
        await Asking().read_on(source, KEY, "here", 1)


async def test_reads_of_one_shard_keep_their_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds))

    monkeypatch.setattr("asyncio.sleep", sleep)
    asked = Asking(pace_seconds=60.0)
    for _ in range(3):
        await read(Source(), asked)
    await asked.read(Source(), KEY._replace(shard_id="1"), Start.LATEST, 1)  # type: ignore[arg-type]
    assert slept == [0, 60, 120, 0]

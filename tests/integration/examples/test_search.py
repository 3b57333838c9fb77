"""Run the recipe for a search index against a stand-in for the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesumer import Position
from kinesumer.testing import EmbeddedAws, record
from tests.support.clock import wait_until
from tests.support.crowd import load, running_app
from tests.support.search_engine import SearchEngine, serve_search


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchEngine]:
    with serve_search() as engine:
        monkeypatch.setenv("SEARCH_URL", engine.url)
        yield engine


async def index(engine: SearchEngine, *numbers: int) -> None:
    """Pass versions of one order in one batch: their totals are their numbers."""
    orders = [
        record(
            json.dumps({"id": "a", "customer": "ann", "total": number}).encode(),
            sequence_number=str(number),
        )
        for number in numbers
    ]
    async with load("search/app.py").app.test() as test:
        await test.feed("orders", *orders)


def totals(engine: SearchEngine) -> list[float]:
    """Return the total of each write of the index, in order."""
    return [source["total"] for _, source in engine.writes]


async def test_the_last_version_of_a_batch_is_indexed(engine: SearchEngine) -> None:
    await index(engine, 1, 2)
    await index(engine, 9, 10)
    document = {"id": "a", "customer": "ann", "total": 10, "position": "10"}
    assert engine.documents() == {"a": document}
    assert totals(engine) == [2, 10]


async def test_older_and_repeated_versions_are_skipped(engine: SearchEngine) -> None:
    await index(engine, 10)
    await index(engine, 9)
    await index(engine, 10)
    assert totals(engine) == [10]


@pytest.mark.parametrize("before", [None, 1])
async def test_a_late_write_does_not_replace_a_newer_one(
    engine: SearchEngine, before: int | None
) -> None:
    if before is not None:
        await index(engine, before)
    # The shard's next owner writes while a former one is between its two requests.
    engine.meanwhile = lambda: engine.index("a", {"total": 3, "position": "3"})
    await index(engine, 2)
    assert totals(engine)[-1] == 3


async def test_a_newer_write_replaces_one_that_came_meanwhile(
    engine: SearchEngine,
) -> None:
    engine.meanwhile = lambda: engine.index("a", {"total": 2, "position": "2"})
    await index(engine, 3)
    assert totals(engine) == [2, 3]


async def test_a_document_that_is_refused_is_an_error(engine: SearchEngine) -> None:
    engine.refused = {"a"}
    with pytest.raises(Exception, match="mapper_parsing_exception"):
        await index(engine, 1)


@pytest.mark.process
def test_no_order_becomes_a_dead_letter_because_the_engine_is_busy(
    kinesumer_aws: EmbeddedAws, engine: SearchEngine, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b'{"id": "a", "customer": "ann", "total": 1}', "a")
    engine.busy = 6  # one more than there are attempts by default
    with running_app("search", "app:app", DEAD_LETTERS=str(letters)):
        wait_until(engine.documents, "the order is indexed")
    assert engine.busy == 0
    assert not letters.exists()


@pytest.mark.process
def test_the_index_follows_the_stream_and_never_goes_back(
    kinesumer_aws: EmbeddedAws, engine: SearchEngine, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    variables = {"DEAD_LETTERS": str(letters)}
    kinesumer_aws.create_stream("orders", shards=2)
    engine.refused = {"bad"}

    def put(id: str, total: int) -> None:
        order = {"id": id, "customer": "ann", "total": total}
        kinesumer_aws.put("orders", json.dumps(order).encode(), id)

    def indexed() -> dict[str, float]:
        return {id: each["total"] for id, each in engine.documents().items()}

    for total in range(1, 4):
        for id in ("a", "b", "bad", "c"):
            put(id, total)
    with running_app("search", "app:app", **variables):
        wait_until(lambda: indexed() == {"a": 3, "b": 3, "c": 3}, "all are indexed")
        [shard] = {kinesumer_aws.put("orders", b"{}", "a")[0]}
        kinesumer_aws.split("orders", shard)
        put("a", 4)
        wait_until(lambda: indexed() == {"a": 4, "b": 3, "c": 3}, "a child is read")
        wait_until(lambda: len(letters.read_text().splitlines()) == 4, "dead letters")
    # The same records again, as after a crash before the positions were stored.
    seek = ["seek", "--app", "search", "--to", "TRIM_HORIZON", "--all", "--yes"]
    command = [sys.executable, "-m", "kinesumer.ops.cli", *seek]
    subprocess.run(command, check=True, capture_output=True)
    engine.refused = set()
    with running_app("search", "app:app", **variables):
        wait_until(lambda: indexed() == {"a": 4, "b": 3, "c": 3, "bad": 3})
    for id in indexed():
        positions = [
            Position.of_text(source["position"])
            for each, source in engine.writes
            if each == id
        ]
        assert positions == sorted(set(positions))

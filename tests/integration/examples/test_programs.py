"""Run the examples without asyncio, with a handler, and in a web service."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.crowd import lines, load, running


@pytest.mark.process
def test_sigterm_ends_the_loop(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", shards=2)
    kinesumer_aws.put("orders", b"one", "key")
    with running("blocking/consume.py", "billing", "orders") as process:
        [line] = lines(process, 1)
        assert line.split()[-1] == "one"


@pytest.mark.process
def test_good_orders_are_paid_and_bad_ones_are_kept(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b'{"customer": "ann", "total": 7}', "ann")
    kinesumer_aws.put("orders", b"no JSON", "bob")
    kinesumer_aws.put("orders", b'{"customer": "cid"}', "cid")
    kinesumer_aws.put("orders", b'{"customer": "dan", "total": 9}', "dan")
    command = ("handlers/consume.py", "billing", "orders")
    with running(*command, DEAD_LETTERS=str(letters)) as process:
        printed = lines(process, 6)
        while not letters.exists() or len(letters.read_text().splitlines()) < 2:
            assert process.poll() is None
    assert "ann pays 7" in printed
    assert printed.count("cid fails: KeyError('total')") == 3
    assert "dan pays 9" in printed
    assert sum(text.startswith("bob fails: JSONDecodeError(") for text in printed) == 1
    assert kept(letters) == {("bob", 1), ("cid", 3)}


@pytest.mark.process
def test_each_stream_has_its_own_typed_handler(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    letters = tmp_path / "letters.jsonl"
    for stream, data in (
        ("orders", b'{"customer": "ann", "total": 7}'),
        ("payments", b'{"customer": "ann", "amount": 7}'),
    ):
        kinesumer_aws.create_stream(stream, shards=1)
        kinesumer_aws.put(stream, b'{"customer": "bob"}', f"bad {stream}")
        kinesumer_aws.put(stream, data, "ann")
    command = ("handlers/streams.py", "billing")
    with running(*command, DEAD_LETTERS=str(letters)) as process:
        assert {*lines(process, 2)} == {"ann orders for 7", "ann pays 7"}
    assert kept(letters) == {("bad orders", 1), ("bad payments", 1)}


def kept(letters: Path) -> set[tuple[str, int]]:
    """Return the partition key and the attempts of each dead letter."""
    found = map(json.loads, letters.read_text().splitlines())
    return {(letter["partition_key"], letter["attempts"]) for letter in found}


@pytest.mark.process
def test_polars_and_duckdb_read_the_tables_of_batches(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for data in (b'{"customer": "ann", "total": 7.5}', b"no JSON"):
        kinesumer_aws.put("orders", data, "ann")
    with running("arrow/consume.py", "billing", "orders") as process:
        assert lines(process, 2) == [
            "polars: {'ann': 7.5}",
            "duckdb: [('shardId-000000000000', 1, 7.5)]",
        ]


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Run the web service, and yield an HTTP client for it."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        yield client


async def test_a_service_consumes_while_it_answers_and_hands_over_at_its_end(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    for _ in range(2):
        # The second server continues where the first one has ended.
        kinesumer_aws.put("orders", b"data", "one")
        module = load("fastapi/app.py")
        async with serving(module.app) as client:
            while (await client.get("/orders/one")).json() < 1:
                await asyncio.sleep(0.05)
            assert (await client.get("/health")).json() == "consuming"
            [lag] = (await client.get("/lag")).json().values()
            assert lag["records_uncommitted"] <= 1
        assert module.app.state.consuming.done()
        assert module.orders == {"one": 1}


async def test_a_service_ends_when_it_cannot_consume(
    kinesumer_aws: EmbeddedAws,
) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    with pytest.raises(Exception, match="orders"):
        async with serving(load("fastapi/app.py").app) as client:
            await ended.wait()
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()) == (503, "consuming has ended")
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

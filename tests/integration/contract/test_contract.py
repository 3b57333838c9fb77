"""Test that every backend has the properties that we rely on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kinesumer.model.streams import HASH_KEYS
from kinesumer.ports import StateStore
from kinesumer.testing.trial.acceptance.check import Check
from kinesumer.testing.trial.acceptance.contract.consumers import CONSUMER_CHECKS
from kinesumer.testing.trial.acceptance.contract.shard_ends import END_CHECKS
from kinesumer.testing.trial.acceptance.contract.source import SOURCE_CHECKS, tiles
from kinesumer.testing.trial.acceptance.contract.store import (
    STORE_CHECKS,
    Stores,
)
from kinesumer.testing.trial.acceptance.contract.table_shard_ends import (
    TABLE_END_CHECKS,
)
from kinesumer.testing.trial.acceptance.contract.table_source import TABLE_CHECKS
from kinesumer.testing.trial.acceptance.resources import Streams
from kinesumer.testing.trial.acceptance.run import CONSUMERS, STORE, STREAMS
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables
from tests.integration.contract.conftest import Backend, passes

TABLE_STREAMS = "table streams"
# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARDS = 1100  # too many for one page, and for the acceptance run on an account
TOO_MANY_FOR = {
    "ministack": "its listing can't be continued",
    "kinesis-local": "it creates 1,000 shards at most",
    "endpoint": "accounts have 500 shards or fewer by default",
}


def each(part: str, checks: Iterable[Check[Any]]) -> list[Any]:
    """Return the parameters of a test: each check, and its part of the contract."""
    return [pytest.param(part, check, id=check.name) for check in checks]


@pytest.mark.parametrize(("part", "check"), each(STORE, STORE_CHECKS))
async def test_a_state_store_has_this_property(
    part: str,
    check: Check[[Stores]],
    store: StateStore,
    absent_store: StateStore,
    name: str,
) -> None:
    await passes(check.run(Stores(store, absent_store, name)))


@pytest.mark.parametrize(
    ("part", "check"),
    [
        *each(STREAMS, [*SOURCE_CHECKS, *END_CHECKS]),
        *each(CONSUMERS, CONSUMER_CHECKS),
    ],
)
async def test_a_stream_has_this_property(
    part: str, check: Check[[Streams, str]], streams: Streams, name: str
) -> None:
    await passes(check.run(streams, name))


@pytest.mark.parametrize(
    ("part", "check"), each(TABLE_STREAMS, [*TABLE_CHECKS, *TABLE_END_CHECKS])
)
async def test_a_tables_stream_has_this_property(
    part: str,
    check: Check[[StreamedTables, str]],
    streamed_tables: StreamedTables,
    name: str,
) -> None:
    await passes(check.run(streamed_tables, name))


async def test_more_shards_than_a_page_holds_are_listed(
    kinesis: Backend, streams: Streams, name: str
) -> None:
    if reason := TOO_MANY_FOR.get(kinesis.name):
        pytest.skip(f"{kinesis.name}: {reason}")
    await streams.create(name, SHARDS)
    shards = await (await streams.source(name)).list_shards()
    assert len({shard.shard_id for shard in shards}) == SHARDS
    assert tiles(shards, 0, HASH_KEYS - 1)

"""Test listings that are too large for the acceptance run on an account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.trial.acceptance.contract.streams import tiles

if TYPE_CHECKING:
    from kinesumer.testing.trial.acceptance.contract.streams import Streams
    from tests.integration.contract.conftest import Backend

SHARDS = 1100
TOO_MANY_FOR = {
    "ministack": "its listing can't be continued",
    "kinesis-local": "it creates 1,000 shards at most",
    "endpoint": "accounts have 500 shards or fewer by default",
}


@pytest.mark.asyncio(loop_scope="module")
async def test_more_shards_than_a_page_holds_are_listed(
    kinesis: Backend, streams: Streams, name: str
) -> None:
    if reason := TOO_MANY_FOR.get(kinesis.name):
        pytest.skip(f"{kinesis.name}: {reason}")
    await streams.create(name, SHARDS)
    shards = await (await streams.source(name)).list_shards()
    assert len({shard.shard_id for shard in shards}) == SHARDS
    assert tiles(shards, 0, HASH_KEYS - 1)

"""Test which rows are found for a range of hash keys that includes both ends."""

from __future__ import annotations

import pytest

from kinesumer.coordination.store_queries import read_range
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey
from kinesumer.wire import shard_writes
from tests.support.world import APP, ARN, World, shard_row


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (0, HASH_KEYS - 1, ["low", "middle", "high"]),
        (0, 6, ["low"]),
        (0, 7, ["low", "middle"]),
        (7, 7, ["middle"]),
        (8, HASH_KEYS - 1, ["high"]),
        (8, 9, []),
    ],
)
async def test_a_range_holds_the_shards_that_start_in_it(
    world: World, first: int, last: int, found: list[str]
) -> None:
    places = {"low": (0, 6), "middle": (7, 7), "high": (HASH_KEYS // 2, HASH_KEYS - 1)}
    for name, (low, high) in places.items():
        row = shard_row()._replace(
            key=ShardKey(ARN, f"shardId-{name}"), first_hash=low, last_hash=high
        )
        await world.table.write(shard_writes.create_shard(APP, row))
    rows = await read_range(world.context(), (Interval(ARN, first, last),))
    assert [row.key.shard_id.removeprefix("shardId-") for row in rows] == found

"""A row of a shard that Kinesis has never had: seeks end, and name it."""

from __future__ import annotations

import pytest

from kinesumer.errors import KinesumerError
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start
from tests.support.operator import Desk
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.hands import put, shard_keys


@in_virtual_time
async def test_a_seek_beside_a_row_of_no_shard_ends_and_names_it(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    [key] = shard_keys(world).values()
    before = await world.table.get(key)
    assert before is not None
    stray = Key(f"shard#{APP}#{ARN}", f"{key.sk.partition('/')[0]}/shardId-typo")
    put(world, {**before, "sk": stray.sk})
    with pytest.raises(KinesumerError, match="omitted shard shardId-typo for two"):
        await desk.seek(Start.TRIM_HORIZON)
    assert await world.table.get(key) == before

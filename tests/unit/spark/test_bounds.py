"""Test that a query begins and ends at the positions that a user gives."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import After, Position, StreamOffset
from kinesumer.model.streams import Start
from tests.support.spark_query import World, simulated


@simulated(2)
async def test_a_query_continues_after_a_users_positions(world: World) -> None:
    rows = await world.stream_in(100, seconds=100)
    await asyncio.sleep(1)
    by_shard = [row for row in rows if row[0] == "shardId-000000000001"]
    others = [row for row in rows if row[0] == "shardId-000000000000"]
    position = After(Position(by_shard[9][1]), 0.0)
    offset = {"orders": StreamOffset(0.0, {"shardId-000000000001": position})}
    query = world.query(starting_positions=offset)
    await query.drain()
    assert sorted(query.rows) == sorted(others + by_shard[10:])


@pytest.mark.parametrize("option", ["starting_positions", "ending"])
@pytest.mark.parametrize(
    ("name", "age", "shard", "error"),
    [
        ("oders", 0, "shardId-000000000000", "Position names oders"),
        ("arn:aws:kinesis:us-east-1:9:stream/orders", 0, "s", "Position names arn:"),
        ("orders", 0, "shardId-9", "has no shard shardId-9"),
        ("orders", 1, "shardId-000000000000", "was recreated"),
    ],
)
@simulated()
async def test_positions_that_the_streams_do_not_have_are_refused(
    world: World, option: str, name: str, age: int, shard: str, error: str
) -> None:
    created_at = world.kinesis.create_stream("orders").created_at
    world.put(5)
    position = StreamOffset(
        created_at - age if age else 0.0, {shard: After(Position("7"), 0.0)}
    )
    query = world.query(starting=Start.TRIM_HORIZON, **{option: {name: position}})
    with pytest.raises(ConfigurationError, match=error):
        if option == "ending":
            await query.driver.bounded()
        else:
            await query.trigger()

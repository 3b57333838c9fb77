"""Test which rows are found for a stream's name, and for a range of hash keys."""

from __future__ import annotations

import pytest

from kinesumer.coordination.store_queries import find_stream, read_range
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.wire import shard_writes, writes
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


TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/customers/stream"
LABELS = ["2026-01-31", "2026-02-01", "2026-01-01"]


async def store_streams(world: World, *arns: str) -> None:
    for created_at, arn in enumerate(arns):
        row = StreamRow(arn, float(created_at), Start.LATEST)
        await world.table.write(writes.create_stream(APP, row))


async def test_by_its_tables_name_the_latest_stream_is_found(world: World) -> None:
    kinesis = "arn:aws:kinesis:us-east-1:123456789012:stream/customers"
    await store_streams(world, *(f"{TABLE}/{label}" for label in LABELS), kinesis)
    context = world.context()
    found = await find_stream(context, "table/customers")
    assert found.arn == f"{TABLE}/{LABELS[-1]}"
    assert (await find_stream(context, f"{TABLE}/{LABELS[0]}")).created_at == 0
    assert (await find_stream(context, "customers")).arn == kinesis


async def test_streams_of_two_tables_with_one_name_are_told_apart(world: World) -> None:
    other = TABLE.replace("us-east-1", "eu-west-1")
    await store_streams(world, f"{TABLE}/x", f"{other}/x")
    with pytest.raises(ConfigurationError, match="several streams are called table/"):
        await find_stream(world.context(), "table/customers")

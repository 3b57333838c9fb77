"""Test splitting and merging shards, and listing them by pages and filters."""

from __future__ import annotations

from typing import Any

from kinesumer.testing import EmbeddedAws

DAY = 86_400


async def ids(kinesis: Any, **which: Any) -> list[int]:
    answer = await kinesis.list_shards(StreamName="orders", **which)
    return [int(shard["ShardId"][-12:]) for shard in answer["Shards"]]


def name(index: int) -> str:
    return f"shardId-{index:012d}"


async def test_uniform_scaling_leaves_short_lived_shards_between(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", 2)
    answer = await kinesis.update_shard_count(
        StreamName="orders", TargetShardCount=3, ScalingType="UNIFORM_SCALING"
    )
    assert (answer["CurrentShardCount"], answer["TargetShardCount"]) == (2, 3)
    opened = await ids(kinesis, ShardFilter={"Type": "AT_LATEST"})
    every = await ids(kinesis)
    assert len(opened) == 3
    assert len(every) > 2 + 3


async def test_a_token_keeps_the_filter_and_expires(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    aws.create_stream("orders", 4)
    aws.split("orders", name(1))
    first = await kinesis.list_shards(
        StreamName="orders", MaxResults=2, ShardFilter={"Type": "AT_LATEST"}
    )
    rest = await kinesis.list_shards(NextToken=first["NextToken"])
    listed = [int(s["ShardId"][-12:]) for s in first["Shards"] + rest["Shards"]]
    assert listed == [0, 2, 3, 4, 5]
    call = kinesis.list_shards(StreamName="orders", NextToken=first["NextToken"])
    assert (await refused(call)).code == "InvalidArgumentException"
    aws.advance(301)
    call = kinesis.list_shards(NextToken=first["NextToken"])
    assert (await refused(call)).code == "ExpiredNextTokenException"
    call = kinesis.list_shards(NextToken="nonsense")
    assert (await refused(call)).code == "InvalidArgumentException"


async def test_filters_choose_by_time(aws: EmbeddedAws, kinesis: Any) -> None:
    aws.create_stream("orders", 2)
    created = aws._state.clock.now()
    aws.advance(100)
    aws.split("orders", name(0))
    aws.advance(100)
    aws.merge("orders", name(3), name(1))

    async def listed(kind: str, after: float | None = None) -> list[int]:
        which: dict[str, Any] = {"Type": kind}
        if after is not None:
            which["Timestamp"] = created + after
        return await ids(kinesis, ShardFilter=which)

    assert await listed("AT_LATEST") == [2, 4]
    assert await listed("AT_TRIM_HORIZON") == [0, 1]
    assert await listed("FROM_TRIM_HORIZON") == [0, 1, 2, 3, 4]
    assert await listed("AT_TIMESTAMP", 50) == [0, 1]
    assert await listed("AT_TIMESTAMP", 150) == [1, 2, 3]
    assert await listed("FROM_TIMESTAMP", 150) == [1, 2, 3, 4]
    after = {"Type": "AFTER_SHARD_ID", "ShardId": name(2)}
    assert await ids(kinesis, ShardFilter=after) == [3, 4]
    assert await ids(kinesis, ExclusiveStartShardId=name(3)) == [4]

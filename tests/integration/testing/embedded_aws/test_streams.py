"""Test creating, changing and deleting streams over HTTP, and listing their shards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws, Limits
from tests.integration.testing.embedded_aws.conftest import iterator, refused


async def test_tags_are_added_at_creation_and_later(kinesis: Any) -> None:
    await kinesis.create_stream(StreamName="orders", ShardCount=1, Tags={"a": "1"})
    await kinesis.add_tags_to_stream(StreamName="orders", Tags={"a": "2", "b": "3"})
    answer = await kinesis.list_tags_for_stream(StreamName="orders")
    tags = [{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
    assert answer["Tags"] == tags


async def test_a_name_is_taken_in_its_account_and_region_only(
    aws: EmbeddedAws, connect: Any
) -> None:
    aws.create_stream("orders")
    elsewhere = await connect("kinesis", region="eu-west-1")
    await elsewhere.create_stream(StreamName="orders", ShardCount=1)
    other = await connect("kinesis", aws.account("111122223333"))
    await other.create_stream(StreamName="orders", ShardCount=1)


async def test_slow_changes_show_their_status_on_the_way() -> None:
    limits = Limits(creating_seconds=5, updating_seconds=5, deleting_seconds=5)
    async with EmbeddedAws(limits=limits, table=None) as aws:
        aws.stop_clock()
        aws.create_stream("orders")
        with aws._opened("orders") as (stream, _):
            assert stream.status == "CREATING"
        aws.advance(5)
        assert aws.open_shards("orders") == ["shardId-000000000000"]
        now = aws._state.clock.now()
        stream.change(now, lambda at: stream.rescale(2, at))
        assert stream.status == "UPDATING"
        assert len(stream.open) == 1
        aws.put("orders", b"still open")
        aws.advance(5)
        assert len(aws.open_shards("orders")) == 2
        aws.delete_stream("orders")
        assert stream.status == "DELETING"


async def test_a_stream_that_changes_refuses_the_next_change(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.limits = Limits(creating_seconds=5, updating_seconds=5)
    aws.create_stream("orders", 2)
    call = kinesis.list_shards(StreamName="orders")
    assert (await refused(call)).code == "ResourceInUseException"
    call = kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    assert (await refused(call)).code == "ResourceNotFoundException"
    aws.advance(5)
    await kinesis.update_shard_count(
        StreamName="orders", TargetShardCount=4, ScalingType="UNIFORM_SCALING"
    )
    answer = await kinesis.describe_stream_summary(StreamName="orders")
    summary = answer["StreamDescriptionSummary"]
    assert (summary["StreamStatus"], summary["OpenShardCount"]) == ("UPDATING", 2)
    assert summary["StreamModeDetails"] == {"StreamMode": "PROVISIONED"}
    call = kinesis.split_shard(
        StreamName="orders",
        ShardToSplit="shardId-000000000000",
        NewStartingHashKey="1000",
    )
    assert (await refused(call)).code == "ResourceInUseException"


async def test_streams_are_listed_in_pages(aws: EmbeddedAws, kinesis: Any) -> None:
    for name in ("c", "a", "b"):
        aws.create_stream(name)
    first = await kinesis.list_streams(Limit=2)
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    rest = await kinesis.list_streams(NextToken=first["NextToken"])
    assert (rest["StreamNames"], rest["HasMoreStreams"]) == (["c"], False)


async def test_control_calls_are_limited_per_account(
    aws: EmbeddedAws, kinesis: Any, connect: Any
) -> None:
    aws.create_stream("orders")
    for _ in range(20):
        await kinesis.describe_stream_summary(StreamName="orders")
    call = kinesis.describe_stream_summary(StreamName="orders")
    assert (await refused(call)).code == "LimitExceededException"
    aws.create_stream("orders", account="111122223333")
    other = await connect("kinesis", aws.account("111122223333"))
    await other.describe_stream_summary(StreamName="orders")
    aws.advance(1)
    await kinesis.describe_stream_summary(StreamName="orders")


async def test_an_accounts_limits_count_its_open_shards(
    aws: EmbeddedAws, kinesis: Any, connect: Any
) -> None:
    aws.create_stream("orders", 3)
    aws.create_stream("clicks", mode="ON_DEMAND")
    aws.split("orders", aws.open_shards("orders")[0])
    limits = await kinesis.describe_limits()
    assert limits["OpenShardCount"] == 4 + len(aws.open_shards("clicks"))
    assert limits["ShardLimit"] == Limits().shards_per_account
    assert limits["OnDemandStreamCount"] == 1
    other = await connect("kinesis", aws.account("111122223333"))
    assert (await other.describe_limits())["OpenShardCount"] == 0


@pytest.mark.parametrize(
    ("region", "partition"),
    [("eusc-de-east-1", "aws-eusc"), ("cn-north-1", "aws-cn"), ("us-west-2", "aws")],
)
def test_arns_are_of_their_regions_partition(
    aws: EmbeddedAws, region: str, partition: str
) -> None:
    arn = aws.create_stream("orders", region=region)
    assert arn == f"arn:{partition}:kinesis:{region}:000000000000:stream/orders"
    aws.put(arn, b"x", "key")


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
    aws: EmbeddedAws, kinesis: Any
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


ON_DEMAND = {"StreamMode": "ON_DEMAND"}


async def strategy(kinesis: Any, stream: str = "orders") -> str | None:
    answer = await kinesis.describe_stream_summary(StreamName=stream)
    found: str | None = answer["StreamDescriptionSummary"].get(
        "RecordDistributionStrategy"
    )
    return found


async def switch(kinesis: Any, arn: str, to: str) -> None:
    await kinesis.update_stream_record_distribution_strategy(
        StreamARN=arn, RecordDistributionStrategy=to
    )


async def shards_of(kinesis: Any, records: list[Any]) -> Counter[str]:
    answer = await kinesis.put_records(StreamName="orders", Records=records)
    return Counter(result["ShardId"] for result in answer["Records"])


async def test_only_streams_on_demand_have_a_strategy(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    assert await strategy(kinesis) is None
    for name, given, expected in (
        ("plain", {}, "USER_PARTITION_KEY"),
        ("auto", {"RecordDistributionStrategy": "AUTO"}, "AUTO"),
    ):
        await kinesis.create_stream(
            StreamName=name, StreamModeDetails=ON_DEMAND, **given
        )
        assert await strategy(kinesis, name) == expected


async def test_a_switch_takes_effect_at_once_and_ends_with_the_mode(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders", mode="ON_DEMAND")
    for to in ("AUTO", "USER_PARTITION_KEY", "AUTO"):
        await switch(kinesis, arn, to)
        assert await strategy(kinesis) == to
    aws.change_stream("orders", distribution="USER_PARTITION_KEY")
    assert await strategy(kinesis) == "USER_PARTITION_KEY"
    await switch(kinesis, arn, "AUTO")
    for mode in ("PROVISIONED", "ON_DEMAND"):
        await kinesis.update_stream_mode(
            StreamARN=arn, StreamModeDetails={"StreamMode": mode}
        )
    assert await strategy(kinesis) == "USER_PARTITION_KEY"


async def test_auto_spreads_records_evenly_whatever_their_keys(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", 4, mode="ON_DEMAND", distribution="AUTO")
    same = {"Data": b"x", "PartitionKey": "key", "ExplicitHashKey": "0"}
    for records in ([same] * 20, [{"Data": b"x"}] * 20):
        found = await shards_of(kinesis, records)
        assert list(found.values()) == [5, 5, 5, 5]
    places = {aws.put("orders", b"x", key)[0] for key in ("key", None, "key", None)}
    assert len(places) == 4


async def test_a_record_keeps_its_key_or_has_none(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", mode="ON_DEMAND", distribution="AUTO")
    await kinesis.put_record(StreamName="orders", Data=b"1")
    await kinesis.put_record(StreamName="orders", Data=b"2", PartitionKey="key")
    answer = await kinesis.get_records(ShardIterator=await iterator(kinesis))
    assert [r.get("PartitionKey") for r in answer["Records"]] == [None, "key"]

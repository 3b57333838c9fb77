"""Test creating, describing, listing, changing and deleting streams over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws, Limits


async def test_a_new_stream_describes_itself(aws: EmbeddedAws, kinesis: Any) -> None:
    await kinesis.create_stream(StreamName="orders", ShardCount=3)
    answer = await kinesis.describe_stream_summary(StreamName="orders")
    summary = answer["StreamDescriptionSummary"]
    assert summary["StreamARN"] == (
        "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    )
    assert summary["StreamStatus"] == "ACTIVE"
    assert summary["OpenShardCount"] == 3
    assert summary["RetentionPeriodHours"] == 24
    assert summary["MaxRecordSizeInKiB"] == 1024
    assert summary["StreamModeDetails"] == {"StreamMode": "PROVISIONED"}
    assert summary["StreamCreationTimestamp"].utcoffset() is not None


async def test_tags_are_added_at_creation_and_later(kinesis: Any) -> None:
    await kinesis.create_stream(StreamName="orders", ShardCount=1, Tags={"a": "1"})
    await kinesis.add_tags_to_stream(StreamName="orders", Tags={"a": "2", "b": "3"})
    answer = await kinesis.list_tags_for_stream(StreamName="orders")
    tags = [{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
    assert answer["Tags"] == tags


async def test_a_name_is_taken_once_per_account_and_region(
    aws: EmbeddedAws, kinesis: Any, connect: Any, refused: Any
) -> None:
    aws.create_stream("orders")
    call = kinesis.create_stream(StreamName="orders", ShardCount=1)
    assert (await refused(call)).code == "ResourceInUseException"
    elsewhere = await connect("kinesis", region="eu-west-1")
    await elsewhere.create_stream(StreamName="orders", ShardCount=1)
    other = await connect("kinesis", aws.account("111122223333"))
    await other.create_stream(StreamName="orders", ShardCount=1)


async def test_slow_changes_show_their_status_on_the_way(refused: Any) -> None:
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
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    aws._state.kinesis.limits = Limits(creating_seconds=5, updating_seconds=5)
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
    assert answer["StreamDescriptionSummary"]["StreamStatus"] == "UPDATING"
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
    aws: EmbeddedAws, kinesis: Any, connect: Any, refused: Any
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

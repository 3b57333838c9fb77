"""Test the shards of tables' streams, their faults and permissions, over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kinesumer.testing import AwsError, EmbeddedAws, TableStreamSettings
from tests.integration.testing.embedded_aws.conftest import refused
from tests.support.streamed_table import (
    DAY_SECONDS,
    create_table,
    item,
    iterator_of,
    shards_of,
)

# --- shards ---------------------------------------------------------------------------


async def test_shards_roll_over_after_four_hours(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    for number in range(3):
        await dynamodb.put_item(TableName="orders", Item=item(line=number))
        aws.advance(4 * 3600)
    first, second, third, last = await shards_of(streams, arn)
    assert "ParentShardId" not in first
    for parent, child in ((first, second), (second, third), (third, last)):
        assert child["ParentShardId"] == parent["ShardId"]
    for shard in (first, second, third):
        numbers = shard["SequenceNumberRange"]
        begin = await iterator_of(
            streams,
            arn,
            shard["ShardId"],
            "AT_SEQUENCE_NUMBER",
            SequenceNumber=numbers["StartingSequenceNumber"],
        )
        page = await streams.get_records(ShardIterator=begin)
        (record,) = page["Records"]
        number = record["dynamodb"]["SequenceNumber"]
        assert number == numbers["EndingSequenceNumber"]
        assert "NextShardIterator" not in page
    assert "EndingSequenceNumber" not in last["SequenceNumberRange"]


async def test_items_of_a_key_stay_in_the_lineage_of_its_partition(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    aws.table_streams.settings = TableStreamSettings(partitions=4)
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    assert len(aws.table_streams.open_shards("orders")) == 4
    for generation in range(3):
        for key in range(20):
            put = item(str(key), generation)
            await dynamodb.put_item(TableName="orders", Item=put)
        aws.advance(1)
        opened = aws.table_streams.roll_over("orders")
        assert len(opened) == 4
    parents = {
        shard["ShardId"]: shard.get("ParentShardId")
        for shard in await shards_of(streams, arn)
    }
    places: dict[str, list[str]] = {}
    for shard in sorted(parents):
        first = await iterator_of(streams, arn, shard)
        page = await streams.get_records(ShardIterator=first)
        for record in page["Records"]:
            key = record["dynamodb"]["Keys"]["id"]["S"]
            places.setdefault(key, []).append(shard)
    assert len(places) == 20
    for first, second, third in places.values():
        assert parents[third] == second
        assert parents[second] == first


async def test_a_split_is_found_by_the_filter_of_children(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    (parent,) = aws.table_streams.open_shards("orders")
    children = aws.table_streams.split("orders", parent)
    answer = await streams.describe_stream(
        StreamArn=arn, ShardFilter={"Type": "CHILD_SHARDS", "ShardId": parent}
    )
    found = answer["StreamDescription"]["Shards"]
    assert sorted(shard["ShardId"] for shard in found) == sorted(children)
    with pytest.raises(AwsError, match="closed"):
        aws.table_streams.split("orders", parent)


async def test_a_closed_shard_expires_after_a_day(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    (first,) = aws.table_streams.open_shards("orders")
    aws.table_streams.roll_over("orders")
    aws.advance(DAY_SECONDS + 1)
    assert first not in {shard["ShardId"] for shard in await shards_of(streams, arn)}
    asked = iterator_of(streams, arn, first)
    assert (await refused(asked)).code == "ResourceNotFoundException"


# --- permissions and faults -----------------------------------------------------------


async def test_a_caller_needs_permission_for_the_stream(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    table = await create_table(dynamodb)
    arn = table["LatestStreamArn"]
    aws.restrict(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["dynamodb:DescribeStream", "dynamodb:GetShardIterator"],
                    "Resource": f"{table['TableArn']}/stream/*",
                }
            ],
        }
    )
    (shard,) = await shards_of(streams, arn)
    first = await iterator_of(streams, arn, shard["ShardId"])
    denied = await refused(streams.get_records(ShardIterator=first))
    assert denied.code == "AccessDeniedException"
    assert "dynamodb:GetRecords" in denied.message
    assert arn in denied.message


async def test_another_account_has_no_access_to_the_stream(
    aws: EmbeddedAws, dynamodb: Any, connect: Callable[..., Awaitable[Any]]
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    stranger = await connect("dynamodbstreams", aws.account("111122223333"))
    denied = await refused(stranger.describe_stream(StreamArn=arn))
    assert denied.code == "AccessDeniedException"
    assert (await stranger.list_streams())["Streams"] == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"kind": "throttle"}, "LimitExceededException"),
        ({"kind": "error"}, "InternalServerError"),
        ({"kind": "expired_iterator"}, "ExpiredIteratorException"),
        (
            {"kind": "error", "code": "TrimmedDataAccessException"},
            "TrimmedDataAccessException",
        ),
    ],
)
async def test_reads_fail_on_demand(
    aws: EmbeddedAws, dynamodb: Any, streams: Any, fault: dict[str, Any], code: str
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    first = await iterator_of(streams, arn, *aws.table_streams.open_shards("orders"))
    aws.fault(
        **fault,
        service="dynamodbstreams",
        operation="GetRecords",
        resource="orders",
        count=1,
    )
    refusal = await refused(streams.get_records(ShardIterator=first))
    assert refusal.code == code
    assert (await streams.get_records(ShardIterator=first))["Records"] == []


async def test_a_page_is_empty_or_ends_early_on_demand(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    await dynamodb.put_item(TableName="orders", Item=item())
    first = await iterator_of(streams, arn, *aws.table_streams.open_shards("orders"))
    aws.fault("empty_page", count=1)
    empty = await streams.get_records(ShardIterator=first)
    assert empty["Records"] == []
    following = empty["NextShardIterator"]
    aws.fault("no_iterator", count=1)
    ended = await streams.get_records(ShardIterator=following)
    assert len(ended["Records"]) == 1
    assert "NextShardIterator" not in ended


async def test_a_fault_of_the_tables_spares_their_streams(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create_table(dynamodb)
    aws.fault("throttle", service="dynamodb")
    assert len((await streams.list_streams())["Streams"]) == 1
    aws.clear_faults()
    aws.fault("throttle", service="dynamodbstreams")
    await dynamodb.describe_table(TableName="orders")
    throttled = await refused(streams.list_streams())
    assert throttled.code == "ThrottlingException"


async def test_requests_are_logged_with_stream_and_shard(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    (shard,) = aws.table_streams.open_shards("orders")
    await iterator_of(streams, arn, shard)
    last = aws.journal.latest[-1]
    assert (last.service, last.operation) == ("dynamodbstreams", "GetShardIterator")
    assert (last.resource, last.shard) == (arn, shard)


async def test_an_unknown_stream_or_operation_is_refused(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create_table(dynamodb))["LatestStreamArn"]
    absent = await refused(streams.describe_stream(StreamArn=arn + "0"))
    assert absent.code == "ResourceNotFoundException"
    invalid = await refused(streams.get_records(ShardIterator="nonsense"))
    assert invalid.code == "ValidationException"
    with pytest.raises(AwsError, match="does not have an enabled stream"):
        aws.table_streams.open_shards("absent")

"""Test DynamoDB Streams of the embedded AWS with AWS's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import boto3
import pytest
import pytest_asyncio

from kinesumer.testing import AwsError, EmbeddedAws, TableStreamSettings, background
from tests.integration.testing.embedded_aws.conftest import refused

SPECIFICATION = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
DAY_SECONDS = 86_400


@pytest_asyncio.fixture(loop_scope="module")
async def streams(connect: Callable[..., Awaitable[Any]]) -> Any:
    """Return a DynamoDB Streams client of the default account."""
    return await connect("dynamodbstreams")


async def create(
    dynamodb: Any, view: str | None = "NEW_AND_OLD_IMAGES", name: str = "orders"
) -> dict[str, Any]:
    """Create a table with a stream, and return the table's description."""
    stream: dict[str, Any] = {"StreamEnabled": view is not None}
    if view is not None:
        stream["StreamViewType"] = view
    answer = await dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": "id", "AttributeType": "S"},
            {"AttributeName": "line", "AttributeType": "N"},
        ],
        KeySchema=[
            {"AttributeName": "id", "KeyType": "HASH"},
            {"AttributeName": "line", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=stream,
    )
    description: dict[str, Any] = answer["TableDescription"]
    return description


def item(key: str = "a", line: int = 1, **values: Any) -> dict[str, Any]:
    return {"id": {"S": key}, "line": {"N": str(line)}, **values}


async def shards(streams: Any, arn: str) -> list[dict[str, Any]]:
    answer = await streams.describe_stream(StreamArn=arn)
    found: list[dict[str, Any]] = answer["StreamDescription"]["Shards"]
    return found


async def iterator(
    streams: Any, arn: str, shard: str, kind: str = "TRIM_HORIZON", **place: Any
) -> str:
    answer = await streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard, ShardIteratorType=kind, **place
    )
    text: str = answer["ShardIterator"]
    return text


async def read(streams: Any, arn: str) -> list[dict[str, Any]]:
    """Return all records of a stream, shard by shard."""
    records = []
    for shard in await shards(streams, arn):
        first = await iterator(streams, arn, shard["ShardId"])
        records += (await streams.get_records(ShardIterator=first))["Records"]
    return records


async def changes(streams: Any, aws: EmbeddedAws) -> list[tuple[str, str]]:
    """Return the kind of change and the partition key of all records."""
    records = await read(streams, aws.table_streams.arn("orders"))
    return [
        (record["eventName"], record["dynamodb"]["Keys"]["id"]["S"])
        for record in records
    ]


# --- the table ------------------------------------------------------------------------


async def test_a_table_describes_its_stream(dynamodb: Any, streams: Any) -> None:
    created = await create(dynamodb, "NEW_IMAGE")
    described = (await dynamodb.describe_table(TableName="orders"))["Table"]
    for table in (created, described):
        assert table["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
        arn, label = table["LatestStreamArn"], table["LatestStreamLabel"]
        assert arn == f"{table['TableArn']}/stream/{label}"
    found = (await streams.describe_stream(StreamArn=arn))["StreamDescription"]
    assert found["StreamStatus"] == "ENABLED"
    assert found["StreamViewType"] == "NEW_IMAGE"
    assert found["TableName"] == "orders"
    assert found["KeySchema"] == table["KeySchema"]
    assert found["CreationRequestDateTime"].timestamp() > 0


async def test_a_table_without_a_stream_has_none(dynamodb: Any, streams: Any) -> None:
    table = await create(dynamodb, None)
    await dynamodb.put_item(TableName="orders", Item=item())
    assert "LatestStreamArn" not in table
    assert (await streams.list_streams())["Streams"] == []


async def test_a_stream_that_is_enabled_again_has_a_new_arn(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb, None)

    async def update(**specification: Any) -> dict[str, Any]:
        answer = await dynamodb.update_table(
            TableName="orders", StreamSpecification=specification
        )
        table: dict[str, Any] = answer["TableDescription"]
        return table

    first = (await update(**SPECIFICATION))["LatestStreamArn"]
    assert (await refused(update(**SPECIFICATION))).code == "ValidationException"
    await dynamodb.put_item(TableName="orders", Item=item("a"))
    disabled = await update(StreamEnabled=False)
    assert "StreamSpecification" not in disabled
    assert disabled["LatestStreamArn"] == first
    assert (await refused(update(StreamEnabled=False))).code == "ValidationException"
    await dynamodb.put_item(TableName="orders", Item=item("b"))
    second = (await update(**SPECIFICATION))["LatestStreamArn"]
    await dynamodb.put_item(TableName="orders", Item=item("c"))
    assert first != second
    assert [r["dynamodb"]["Keys"]["id"]["S"] for r in await read(streams, first)] == [
        "a"
    ]
    assert await changes(streams, aws) == [("INSERT", "c")]
    aws.advance(DAY_SECONDS + 1)
    gone = await refused(streams.describe_stream(StreamArn=first))
    assert gone.code == "ResourceNotFoundException"


@pytest.mark.parametrize(
    "specification",
    [
        {"StreamEnabled": True},
        {"StreamEnabled": False, "StreamViewType": "KEYS_ONLY"},
        {"StreamEnabled": True, "StreamViewType": "EVERYTHING"},
    ],
)
async def test_an_invalid_specification_is_refused(
    dynamodb: Any, specification: dict[str, Any]
) -> None:
    await create(dynamodb, None)
    update = dynamodb.update_table(
        TableName="orders", StreamSpecification=specification
    )
    assert (await refused(update)).code == "ValidationException"


async def test_a_deleted_table_leaves_its_stream(dynamodb: Any, streams: Any) -> None:
    first = (await create(dynamodb))["LatestStreamArn"]
    await dynamodb.put_item(TableName="orders", Item=item())
    await dynamodb.delete_table(TableName="orders")
    second = (await create(dynamodb))["LatestStreamArn"]
    assert second != first
    assert len(await read(streams, first)) == 1
    assert await read(streams, second) == []


# --- writes ---------------------------------------------------------------------------


async def test_each_write_that_changes_an_item_has_a_record(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    one, two = item(n={"N": "1"}), item(n={"N": "2"})
    key = {name: one[name] for name in ("id", "line")}
    update = {
        "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": {"N": "2"}},
    }
    await dynamodb.put_item(TableName="orders", Item=one)
    await dynamodb.put_item(TableName="orders", Item=one)  # changes nothing
    await dynamodb.update_item(TableName="orders", Key=key, **update)
    await dynamodb.update_item(TableName="orders", Key=key, **update)  # nor does this
    await dynamodb.delete_item(TableName="orders", Key=key)
    await dynamodb.delete_item(TableName="orders", Key=key)  # nor this
    await dynamodb.update_item(TableName="orders", Key=key, **update)
    records = await read(streams, aws.table_streams.arn("orders"))
    images = [
        (
            record["eventName"],
            record["dynamodb"].get("OldImage"),
            record["dynamodb"].get("NewImage"),
        )
        for record in records
    ]
    assert images == [
        ("INSERT", None, one),
        ("MODIFY", one, two),
        ("REMOVE", two, None),
        ("INSERT", None, two),
    ]
    assert {str(record["dynamodb"]["Keys"]) for record in records} == {str(key)}
    assert len({record["eventID"] for record in records}) == 4


async def test_values_of_all_types_are_in_the_images(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    values = item(
        text={"S": "grün"},
        data={"B": b"\x00\xff"},
        yes={"BOOL": True},
        nothing={"NULL": True},
        texts={"SS": ["a", "b"]},
        numbers={"NS": ["1", "2.5"]},
        blobs={"BS": [b"1", b"2"]},
        nested={"M": {"list": {"L": [{"B": b"x"}, {"M": {}}]}}},
    )
    await dynamodb.put_item(TableName="orders", Item=values)
    (record,) = await read(streams, aws.table_streams.arn("orders"))
    assert record["dynamodb"]["NewImage"] == values
    found = await dynamodb.get_item(TableName="orders", Key=item())
    assert found["Item"] == values


async def test_a_batch_has_a_record_for_each_change(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    await dynamodb.put_item(TableName="orders", Item=item("old"))
    await dynamodb.put_item(TableName="orders", Item=item("same"))
    writes = [
        {"PutRequest": {"Item": item("new")}},
        {"PutRequest": {"Item": item("same")}},
        {"DeleteRequest": {"Key": item("old")}},
        {"DeleteRequest": {"Key": item("missing")}},
    ]
    await dynamodb.batch_write_item(RequestItems={"orders": writes})
    assert await changes(streams, aws) == [
        ("INSERT", "old"),
        ("INSERT", "same"),
        ("INSERT", "new"),
        ("REMOVE", "old"),
    ]


def transaction(condition: str) -> list[dict[str, Any]]:
    return [
        {"Put": {"TableName": "orders", "Item": item("put")}},
        {"Delete": {"TableName": "orders", "Key": item("old")}},
        {
            "Update": {
                "TableName": "orders",
                "Key": item("updated"),
                "UpdateExpression": "SET n = :n",
                "ExpressionAttributeValues": {":n": {"N": "1"}},
                "ConditionExpression": condition,
            }
        },
    ]


async def test_a_transaction_has_records_only_if_it_succeeds(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    await dynamodb.put_item(TableName="orders", Item=item("old"))
    failing = transaction("attribute_exists(n)")
    error = await refused(dynamodb.transact_write_items(TransactItems=failing))
    assert error.code == "TransactionCanceledException"
    assert await changes(streams, aws) == [("INSERT", "old")]
    passing = transaction("attribute_not_exists(n)")
    await dynamodb.transact_write_items(TransactItems=passing)
    assert await changes(streams, aws) == [
        ("INSERT", "old"),
        ("INSERT", "put"),
        ("REMOVE", "old"),
        ("INSERT", "updated"),
    ]


async def test_a_write_that_fails_has_no_record(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    put = dynamodb.put_item(
        TableName="orders", Item=item(), ConditionExpression="attribute_exists(id)"
    )
    assert (await refused(put)).code == "ConditionalCheckFailedException"
    assert await changes(streams, aws) == []


@pytest.mark.parametrize("exists", [False, True])
async def test_an_update_that_fails_halfway_changes_nothing(
    aws: EmbeddedAws, dynamodb: Any, streams: Any, exists: bool
) -> None:
    await create(dynamodb)
    if exists:
        await dynamodb.put_item(TableName="orders", Item=item(n={"N": "1"}))
    update = dynamodb.update_item(
        TableName="orders",
        Key=item(),
        UpdateExpression="SET n = :n, large = :text",
        ExpressionAttributeValues={":n": {"N": "2"}, ":text": {"S": "x" * 410_000}},
    )
    assert (await refused(update)).code == "ValidationException"
    found = await dynamodb.get_item(TableName="orders", Key=item())
    assert found.get("Item") == (item(n={"N": "1"}) if exists else None)
    assert await changes(streams, aws) == [("INSERT", "a")] * exists


async def test_a_statement_in_partiql_has_a_record(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    await dynamodb.execute_statement(
        Statement="INSERT INTO orders value {'id': 'a', 'line': 1}"
    )
    await dynamodb.execute_statement(Statement="DELETE FROM orders WHERE id = 'a'")
    assert await changes(streams, aws) == [("INSERT", "a"), ("REMOVE", "a")]


async def test_an_expired_item_is_deleted_by_dynamodb(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create(dynamodb)
    with pytest.raises(AwsError, match="TimeToLive is disabled"):
        aws.table_streams.delete_expired_items("orders")
    await dynamodb.update_time_to_live(
        TableName="orders",
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"},
    )
    await dynamodb.put_item(TableName="orders", Item=item("past", until={"N": "5"}))
    await dynamodb.put_item(TableName="orders", Item=item("text", until={"S": "5"}))
    await dynamodb.put_item(TableName="orders", Item=item("never"))
    later = {"N": "99999999999"}
    await dynamodb.put_item(TableName="orders", Item=item("later", until=later))
    assert aws.table_streams.delete_expired_items("orders") == 1
    assert aws.table_streams.delete_expired_items("orders") == 0
    *_, removed = await read(streams, aws.table_streams.arn("orders"))
    assert removed["eventName"] == "REMOVE"
    assert removed["dynamodb"]["OldImage"]["id"] == {"S": "past"}
    assert removed["userIdentity"] == {
        "Type": "Service",
        "PrincipalId": "dynamodb.amazonaws.com",
    }
    with pytest.raises(AwsError, match="not found"):
        aws.table_streams.delete_expired_items("absent")


# --- shards ---------------------------------------------------------------------------


async def test_shards_roll_over_after_four_hours(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create(dynamodb))["LatestStreamArn"]
    for number in range(3):
        await dynamodb.put_item(TableName="orders", Item=item(line=number))
        aws.advance(4 * 3600)
    first, second, third, last = await shards(streams, arn)
    assert "ParentShardId" not in first
    for parent, child in ((first, second), (second, third), (third, last)):
        assert child["ParentShardId"] == parent["ShardId"]
    for shard in (first, second, third):
        numbers = shard["SequenceNumberRange"]
        begin = await iterator(
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
    arn = (await create(dynamodb))["LatestStreamArn"]
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
        for shard in await shards(streams, arn)
    }
    places: dict[str, list[str]] = {}
    for shard in sorted(parents):
        first = await iterator(streams, arn, shard)
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
    arn = (await create(dynamodb))["LatestStreamArn"]
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
    arn = (await create(dynamodb))["LatestStreamArn"]
    (first,) = aws.table_streams.open_shards("orders")
    aws.table_streams.roll_over("orders")
    aws.advance(DAY_SECONDS + 1)
    assert first not in {shard["ShardId"] for shard in await shards(streams, arn)}
    asked = iterator(streams, arn, first)
    assert (await refused(asked)).code == "ResourceNotFoundException"


# --- permissions and faults -----------------------------------------------------------


async def test_a_caller_needs_permission_for_the_stream(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    table = await create(dynamodb)
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
    (shard,) = await shards(streams, arn)
    first = await iterator(streams, arn, shard["ShardId"])
    denied = await refused(streams.get_records(ShardIterator=first))
    assert denied.code == "AccessDeniedException"
    assert "dynamodb:GetRecords" in denied.message
    assert arn in denied.message


async def test_another_account_has_no_access_to_the_stream(
    aws: EmbeddedAws, dynamodb: Any, connect: Callable[..., Awaitable[Any]]
) -> None:
    arn = (await create(dynamodb))["LatestStreamArn"]
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
    arn = (await create(dynamodb))["LatestStreamArn"]
    first = await iterator(streams, arn, *aws.table_streams.open_shards("orders"))
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
    arn = (await create(dynamodb))["LatestStreamArn"]
    await dynamodb.put_item(TableName="orders", Item=item())
    first = await iterator(streams, arn, *aws.table_streams.open_shards("orders"))
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
    await create(dynamodb)
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
    arn = (await create(dynamodb))["LatestStreamArn"]
    (shard,) = aws.table_streams.open_shards("orders")
    await iterator(streams, arn, shard)
    last = aws.journal.latest[-1]
    assert (last.service, last.operation) == ("dynamodbstreams", "GetShardIterator")
    assert (last.resource, last.shard) == (arn, shard)


async def test_an_unknown_stream_or_operation_is_refused(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    arn = (await create(dynamodb))["LatestStreamArn"]
    absent = await refused(streams.describe_stream(StreamArn=arn + "0"))
    assert absent.code == "ResourceNotFoundException"
    invalid = await refused(streams.get_records(ShardIterator="nonsense"))
    assert invalid.code == "ValidationException"
    with pytest.raises(AwsError, match="does not have an enabled stream"):
        aws.table_streams.open_shards("absent")


def test_boto3_reads_a_stream_through_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with background(EmbeddedAws(table=None)) as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        table = boto3.resource("dynamodb").create_table(
            TableName="orders",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification=SPECIFICATION,
        )
        table.put_item(Item={"id": "a", "total": 5})
        client = boto3.client("dynamodbstreams")
        arn = table.latest_stream_arn
        assert arn == client.list_streams(TableName="orders")["Streams"][0]["StreamArn"]
        (shard,) = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        first = client.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        page = client.get_records(ShardIterator=first["ShardIterator"])
        (record,) = page["Records"]
        image = record["dynamodb"]["NewImage"]
        assert image == {"id": {"S": "a"}, "total": {"N": "5"}}

"""Test that tables of the embedded AWS have streams, which show each change."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from kinesumer.testing import AwsError, EmbeddedAws, background
from tests.integration.testing.embedded_aws.conftest import refused
from tests.support.streamed_table import (
    DAY_SECONDS,
    SPECIFICATION,
    changes,
    create_table,
    item,
    read_all,
)

# --- the table ------------------------------------------------------------------------


async def test_a_table_describes_its_stream(dynamodb: Any, streams: Any) -> None:
    created = await create_table(dynamodb, "NEW_IMAGE")
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
    table = await create_table(dynamodb, None)
    await dynamodb.put_item(TableName="orders", Item=item())
    assert "LatestStreamArn" not in table
    assert (await streams.list_streams())["Streams"] == []


async def test_a_stream_that_is_enabled_again_has_a_new_arn(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create_table(dynamodb, None)

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
    [old] = await read_all(streams, first)
    assert old["dynamodb"]["Keys"]["id"] == {"S": "a"}
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
    await create_table(dynamodb, None)
    update = dynamodb.update_table(
        TableName="orders", StreamSpecification=specification
    )
    assert (await refused(update)).code == "ValidationException"


async def test_a_deleted_table_leaves_its_stream(dynamodb: Any, streams: Any) -> None:
    first = (await create_table(dynamodb))["LatestStreamArn"]
    await dynamodb.put_item(TableName="orders", Item=item())
    await dynamodb.delete_table(TableName="orders")
    second = (await create_table(dynamodb))["LatestStreamArn"]
    assert second != first
    assert len(await read_all(streams, first)) == 1
    assert await read_all(streams, second) == []


# --- writes ---------------------------------------------------------------------------


async def test_each_write_that_changes_an_item_has_a_record(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create_table(dynamodb)
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
    records = await read_all(streams, aws.table_streams.arn("orders"))
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
    await create_table(dynamodb)
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
    (record,) = await read_all(streams, aws.table_streams.arn("orders"))
    assert record["dynamodb"]["NewImage"] == values
    found = await dynamodb.get_item(TableName="orders", Key=item())
    assert found["Item"] == values


async def test_a_batch_has_a_record_for_each_change(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create_table(dynamodb)
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
    await create_table(dynamodb)
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
    await create_table(dynamodb)
    put = dynamodb.put_item(
        TableName="orders", Item=item(), ConditionExpression="attribute_exists(id)"
    )
    assert (await refused(put)).code == "ConditionalCheckFailedException"
    assert await changes(streams, aws) == []


@pytest.mark.parametrize("exists", [False, True])
async def test_an_update_that_fails_halfway_changes_nothing(
    aws: EmbeddedAws, dynamodb: Any, streams: Any, exists: bool
) -> None:
    await create_table(dynamodb)
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
    await create_table(dynamodb)
    await dynamodb.execute_statement(
        Statement="INSERT INTO orders value {'id': 'a', 'line': 1}"
    )
    await dynamodb.execute_statement(Statement="DELETE FROM orders WHERE id = 'a'")
    assert await changes(streams, aws) == [("INSERT", "a"), ("REMOVE", "a")]


async def test_an_expired_item_is_deleted_by_dynamodb(
    aws: EmbeddedAws, dynamodb: Any, streams: Any
) -> None:
    await create_table(dynamodb)
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
    *_, removed = await read_all(streams, aws.table_streams.arn("orders"))
    assert removed["eventName"] == "REMOVE"
    assert removed["dynamodb"]["OldImage"]["id"] == {"S": "past"}
    assert removed["userIdentity"] == {
        "Type": "Service",
        "PrincipalId": "dynamodb.amazonaws.com",
    }
    with pytest.raises(AwsError, match="not found"):
        aws.table_streams.delete_expired_items("absent")


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

"""DynamoDB: conditions, indexes and capacity as the state store needs them."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesumer.local import EmbeddedAws
from kinesumer.wire.table_definition import STATE_STORE

KEY = {"pk": {"S": "shard#app"}, "sk": {"S": "0001"}}
INDEX = "index-client-key-last-update"


@pytest.fixture
def table(aws: EmbeddedAws) -> str:
    """A state store's name."""
    aws.create_table()
    return STATE_STORE


async def test_positions_only_go_forward_by_length_and_text(
    dynamodb: Any, table: str
) -> None:
    async def commit(number: str) -> dict[str, Any]:
        answer: dict[str, Any] = await dynamodb.update_item(
            TableName=table,
            Key=KEY,
            UpdateExpression="SET sequence_number = :n",
            ConditionExpression=(
                "attribute_not_exists(sequence_number) OR size(sequence_number) < :l "
                "OR (size(sequence_number) = :l AND sequence_number < :n)"
            ),
            ExpressionAttributeValues={
                ":n": {"S": number},
                ":l": {"N": str(len(number))},
            },
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return answer

    assert (await commit("99"))["Attributes"]["sequence_number"] == {"S": "99"}
    await commit("100")
    for number in ("99", "100"):
        with pytest.raises(ClientError) as caught:
            await commit(number)
        response: Any = caught.value.response
        assert response["Error"]["Code"] == "ConditionalCheckFailedException"
        assert response["Item"]["sequence_number"] == {"S": "100"}


async def test_numbers_sets_and_booleans_come_back_as_they_were(
    dynamodb: Any, table: str
) -> None:
    item = {
        **KEY,
        "epoch": {"N": "7"},
        "parents": {"SS": ["a", "b"]},
        "ready": {"BOOL": True},
    }
    await dynamodb.put_item(TableName=table, Item=item)
    answer = await dynamodb.get_item(TableName=table, Key=KEY, ConsistentRead=True)
    answer["Item"]["parents"]["SS"].sort()
    assert answer["Item"] == item


async def test_a_key_range_is_queried_in_order(dynamodb: Any, table: str) -> None:
    for sk in ("0003", "0001", "0002", "0009"):
        await dynamodb.put_item(TableName=table, Item={**KEY, "sk": {"S": sk}})
    answer = await dynamodb.query(
        TableName=table,
        KeyConditionExpression="pk = :p AND sk BETWEEN :a AND :b",
        ExpressionAttributeValues={
            ":p": KEY["pk"],
            ":a": {"S": "0001"},
            ":b": {"S": "0003"},
        },
    )
    assert [item["sk"]["S"] for item in answer["Items"]] == ["0001", "0002", "0003"]


async def test_the_index_finds_old_rows_by_their_keys_only(
    dynamodb: Any, table: str
) -> None:
    for sk, moment in (("a", "2026-01-01"), ("b", "2026-03-01"), ("c", None)):
        item: dict[str, Any] = {**KEY, "sk": {"S": sk}, "other": {"S": "x"}}
        if moment is not None:
            item["last_update"] = {"S": moment}
        await dynamodb.put_item(TableName=table, Item=item)
    answer = await dynamodb.query(
        TableName=table,
        IndexName=INDEX,
        KeyConditionExpression="pk = :p AND last_update <= :m",
        ExpressionAttributeValues={":p": KEY["pk"], ":m": {"S": "2026-02-01"}},
    )
    (row,) = answer["Items"]
    assert row["sk"] == {"S": "a"}
    assert "other" not in row


async def test_of_writes_at_once_one_wins(dynamodb: Any, table: str) -> None:
    async def claim() -> bool:
        try:
            await dynamodb.update_item(
                TableName=table,
                Key=KEY,
                UpdateExpression="SET epoch = :e",
                ConditionExpression="attribute_not_exists(epoch)",
                ExpressionAttributeValues={":e": {"N": "1"}},
            )
        except ClientError:
            return False
        return True

    assert sum(await asyncio.gather(*(claim() for _ in range(20)))) == 1


@pytest.mark.parametrize("operation", ["put_item", "delete_item", "update_item"])
async def test_every_refused_write_shows_the_row_that_refused_it(
    dynamodb: Any, table: str, operation: str
) -> None:
    await dynamodb.put_item(TableName=table, Item={**KEY, "epoch": {"N": "7"}})
    key = {"Item": KEY} if operation == "put_item" else {"Key": KEY}
    with pytest.raises(ClientError) as caught:
        await getattr(dynamodb, operation)(
            TableName=table,
            ConditionExpression="epoch = :e",
            ExpressionAttributeValues={":e": {"N": "8"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **key,
        )
    response: Any = caught.value.response
    assert response["Item"] == {**KEY, "epoch": {"N": "7"}}


async def test_a_refused_write_to_an_absent_row_shows_none(
    dynamodb: Any, table: str
) -> None:
    with pytest.raises(ClientError) as caught:
        await dynamodb.put_item(
            TableName=table,
            Item=KEY,
            ConditionExpression="attribute_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert "Item" not in caught.value.response


async def test_long_queries_come_in_pages_of_a_megabyte(
    dynamodb: Any, table: str
) -> None:
    for number in range(5):
        item = {**KEY, "sk": {"S": str(number)}, "blob": {"S": "x" * 300_000}}
        await dynamodb.put_item(TableName=table, Item=item)
    which = {
        "TableName": table,
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": KEY["pk"]},
    }
    first = await dynamodb.query(**which)
    rest = await dynamodb.query(ExclusiveStartKey=first["LastEvaluatedKey"], **which)
    found = [item["sk"]["S"] for item in first["Items"] + rest["Items"]]
    assert found == ["0", "1", "2", "3", "4"]
    assert rest["Items"]


async def test_capacity_follows_size_consistency_and_index(
    aws: EmbeddedAws, dynamodb: Any, table: str
) -> None:
    async def put(**item: Any) -> float:
        answer = await dynamodb.put_item(
            TableName=table, Item={**KEY, **item}, ReturnConsumedCapacity="TOTAL"
        )
        units: float = answer["ConsumedCapacity"]["CapacityUnits"]
        return units

    async def get(*, consistent: bool) -> float:
        answer = await dynamodb.get_item(
            TableName=table,
            Key=KEY,
            ConsistentRead=consistent,
            ReturnConsumedCapacity="TOTAL",
        )
        units: float = answer["ConsumedCapacity"]["CapacityUnits"]
        return units

    assert await put() == 1
    assert await put(last_update={"S": "1"}) == 2
    assert await put(last_update={"S": "1"}, beat={"N": "2"}) == 1
    assert await put(last_update={"S": "2"}) == 3
    assert await put(last_update={"S": "2"}, blob={"S": "x" * 1500}) == 2
    assert await get(consistent=True) == 1
    assert await get(consistent=False) == 0.5
    written = [c for c in aws.journal.counts() if c.operation == "PutItem"]
    assert sum(count.write_units for count in written) == 9


async def test_tables_belong_to_an_account_and_a_region(
    aws: EmbeddedAws, dynamodb: Any, connect: Any, refused: Any, table: str
) -> None:
    await dynamodb.put_item(TableName=table, Item=KEY)
    for who, region in (("111122223333", "us-east-1"), ("000000000000", "eu-west-1")):
        client = await connect("dynamodb", aws.account(who), region)
        answer = await refused(client.get_item(TableName=table, Key=KEY))
        assert answer.code == "ResourceNotFoundException"
        assert answer.status == 400


async def test_two_embedded_aws_share_nothing(aws: EmbeddedAws, table: str) -> None:
    async with EmbeddedAws() as other:
        other.create_table()
        other.dynamodb(
            "PutItem", json.dumps({"TableName": table, "Item": KEY}).encode()
        )
        body = json.dumps({"TableName": table, "Key": KEY}).encode()
        assert "Item" in other.dynamodb("GetItem", body)
        assert "Item" not in aws.dynamodb("GetItem", body)


async def test_a_table_made_anew_has_another_id(
    aws: EmbeddedAws, dynamodb: Any, table: str
) -> None:
    async def table_id() -> str:
        answer = await dynamodb.describe_table(TableName=table)
        text: str = answer["Table"]["TableId"]
        return text

    first = await table_id()
    assert await table_id() == first
    await dynamodb.delete_table(TableName=table)
    aws.create_table()
    assert await table_id() != first


async def test_bad_requests_are_refused_as_dynamodb_does(
    dynamodb: Any, refused: Any, table: str
) -> None:
    call = dynamodb.put_item(TableName=table, Item={"pk": {"S": "only"}})
    assert (await refused(call)).code == "ValidationException"
    call = dynamodb.update_item(
        TableName=table, Key=KEY, UpdateExpression="SET nonsense nonsense"
    )
    assert (await refused(call)).code == "ValidationException"
    call = dynamodb.describe_kinesis_streaming_destination(TableName=table)
    assert (await refused(call)).code == "UnknownOperationException"


def test_requests_leave_no_copies_of_rows_behind(aws: EmbeddedAws, table: str) -> None:
    def request() -> None:
        key = {"TableName": table, "Key": KEY}
        values = {":v": {"N": "1"}}
        update = {"UpdateExpression": "SET a = :v", "ExpressionAttributeValues": values}
        aws.dynamodb("UpdateItem", json.dumps({**key, **update}).encode())
        aws.dynamodb("GetItem", json.dumps(key).encode())

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    request()
    before = objects()
    for _ in range(100):
        request()
    assert objects() - before < 100


@pytest.mark.parametrize(
    ("operator", "value", "holds"),
    [("NE", "8", True), ("NE", "7", False), ("EQ", "7", True), ("LT", "8", True)],
)
def test_a_legacy_condition_with_one_value_keeps_its_operator(
    aws: EmbeddedAws, table: str, operator: str, value: str, holds: bool
) -> None:
    key = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    put = {"TableName": table, "Item": {**key, "counter": {"N": "7"}}}
    aws.dynamodb("PutItem", json.dumps(put).encode())
    expected = {"counter": {"Value": {"N": value}, "ComparisonOperator": operator}}
    change = {"counter": {"Value": {"N": "9"}, "Action": "PUT"}}
    body = {"TableName": table, "Key": key, "AttributeUpdates": change}
    request = json.dumps({**body, "Expected": expected}).encode()
    if holds:
        aws.dynamodb("UpdateItem", request)
        return
    with pytest.raises(RuntimeError, match="ConditionalCheckFailed"):
        aws.dynamodb("UpdateItem", request)

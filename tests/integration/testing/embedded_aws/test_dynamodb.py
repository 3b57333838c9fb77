"""Test the tables, conditions and consumed capacity of the embedded DynamoDB."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any

import pytest

from kinesumer.config import STATE_STORE
from kinesumer.testing import EmbeddedAws
from tests.integration.testing.embedded_aws.conftest import refused

KEY = {"pk": {"S": "shard#app"}, "sk": {"S": "0001"}}


@pytest.fixture
def table(aws: EmbeddedAws) -> str:
    """Create a state store's table, and return its name."""
    aws.create_table()
    return STATE_STORE


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
    aws: EmbeddedAws, dynamodb: Any, connect: Any, table: str
) -> None:
    await dynamodb.put_item(TableName=table, Item=KEY)
    for who, region in (("111122223333", "us-east-1"), ("000000000000", "eu-west-1")):
        client = await connect("dynamodb", aws.account(who), region)
        answer = await refused(client.get_item(TableName=table, Key=KEY))
        assert answer.code == "ResourceNotFoundException"
        assert answer.status == 400


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


async def test_an_index_that_is_added_to_a_table_is_active_at_once(
    dynamodb: Any, table: str
) -> None:
    # KCL 3 waits for this before its fleet leaves the mode compatible with KCL 2.
    keys = [{"AttributeName": "leaseOwner", "KeyType": "HASH"}]
    index = {
        "IndexName": "LeaseOwnerToLeaseKeyIndex",
        "KeySchema": keys,
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    await dynamodb.update_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "leaseOwner", "AttributeType": "S"}],
        GlobalSecondaryIndexUpdates=[{"Create": index}],
    )
    described = (await dynamodb.describe_table(TableName=table))["Table"]
    found = {
        index["IndexName"]: index["IndexStatus"]
        for index in described["GlobalSecondaryIndexes"]
    }
    assert found["LeaseOwnerToLeaseKeyIndex"] == "ACTIVE"


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


async def test_names_of_tables_and_regions_that_aws_refuses_are_refused(
    aws: EmbeddedAws, dynamodb: Any, connect: Any
) -> None:
    for name in ("ab", "or ders", "x" * 256, "a/b"):
        answer = await refused(dynamodb.describe_table(TableName=name))
        assert answer.code == "ValidationException"
        assert "between 3 and 255 characters" in str(answer)
    for region in ("us-esat-1", "here-1"):
        for service, call in (("dynamodb", "list_tables"), ("kinesis", "list_streams")):
            client = await connect(service, aws.account(), region)
            answer = await refused(getattr(client, call)())
            assert answer.code == "InvalidSignatureException"


IMPORTS_ON_THREADS = """
import sys, threading

class Finder:
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is not threading.main_thread():
            print(threading.current_thread().name, name)

from kinesumer.testing.embedded_aws.server import EmbeddedAws, background

aws = EmbeddedAws()
sys.meta_path.insert(0, Finder())
with background(aws):
    import boto3
    aws.create_table()
"""


def test_no_thread_of_the_server_imports_what_a_test_may_import_meanwhile() -> None:
    # Two threads that import boto3 at once: one gets a module without its names.
    command = [sys.executable, "-c", IMPORTS_ON_THREADS]
    run = subprocess.run(command, capture_output=True, check=True, text=True)
    assert "boto" not in run.stdout
    assert "moto" not in run.stdout

"""Test the state store: its requests, its table, and the errors of DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio

import kinesumer
import kinesumer.blocking
from kinesumer.aws import dynamodb, session
from kinesumer.aws.clients import READ_SECONDS
from kinesumer.aws.dynamodb import DynamoStateStore, ensure_table, open_store
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    FatalError,
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key, Row
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.rows import DEFINITION, INDEX
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

KEY = Key("group#app", "group")
BEAT = Write(KEY, Compare("beat", "=", 1), {"beat": 2})
TABLE = {
    **DEFINITION,
    "TableName": "state",
    "TableStatus": "ACTIVE",
    "TableId": "id-1",
}


@pytest_asyncio.fixture(loop_scope="module")
async def store(aws: AwsStub, clients: ClientFactory) -> DynamoStateStore:
    """Open the state store in table ``state``."""
    return await open_store(clients, "state")


async def test_calls_bypass_the_aws_client(
    aws: AwsStub, clients: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = (await clients.open("dynamodb")).client
    monkeypatch.setattr(client, "get_item", None)
    aws.answer("GetItem", {})
    assert await (await open_store(clients, "state")).get(KEY) is None


@pytest.mark.parametrize("is_hooked", [False, True])
async def test_a_refused_write_brings_the_row_that_refused_it(
    aws: AwsStub, clients: ClientFactory, is_hooked: bool
) -> None:
    """With a user's hook, the AWS client makes the calls."""
    if is_hooked:
        events = (await clients.open("dynamodb")).client.meta.events
        events.register("before-send.dynamodb", lambda **_: None)
    store = await open_store(clients, "state")
    item = {"pk": {"S": "group#app"}, "sk": {"S": "group"}, "beat": {"N": "7"}}
    code = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
    aws.answer("UpdateItem", {"__type": code, "message": "", "Item": item}, 400)
    aws.answer("UpdateItem", {"__type": code, "message": ""}, 400)
    row: Row = {"pk": "group#app", "sk": "group", "beat": 7}
    assert await store.write(BEAT) == WriteResult(False, row)
    assert await store.write(BEAT) == WriteResult(False, None)


async def test_a_hook_sees_the_rows_of_a_response(
    aws: AwsStub, clients: ClientFactory
) -> None:
    item = {"pk": {"S": "group#app"}, "sk": {"S": "group"}, "beat": {"N": "7"}}
    aws.answer("GetItem", {"Item": item})
    seen = list[Any]()
    events = (await clients.open("dynamodb")).client.meta.events
    events.register("after-call.dynamodb", lambda parsed, **_: seen.append(parsed))
    row = await (await open_store(clients, "state")).get(KEY)
    assert row == {"pk": "group#app", "sk": "group", "beat": 7}
    assert [parsed["Item"] for parsed in seen] == [item]


async def test_a_query_follows_its_pages(aws: AwsStub, store: DynamoStateStore) -> None:
    item = {"pk": {"S": "a"}, "sk": {"S": "1"}}
    aws.answer("Query", {"Items": [item], "LastEvaluatedKey": item})
    aws.answer("Query", {"Items": [], "LastEvaluatedKey": item})
    aws.answer("Query", {"Items": [item]})
    assert len(await store.query("a")) == 2
    assert [seen.body.get("ExclusiveStartKey") for seen in aws.seen] == [
        None,
        item,
        item,
    ]


async def test_a_query_over_nothing_asks_nothing(
    aws: AwsStub, store: DynamoStateStore
) -> None:
    assert await store.query("a", first="2", last="1") == []
    assert aws.seen == []


# --- faults --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ProvisionedThroughputExceededException", 400, StoreThrottledError),
        ("ThrottlingException", 400, StoreThrottledError),
        ("RequestLimitExceeded", 400, StoreThrottledError),
        ("TransactionConflictException", 400, StoreThrottledError),
        ("InternalServerError", 500, StoreUnavailableError),
        ("Anything", 503, StoreUnavailableError),
        ("ResourceNotFoundException", 400, StateStoreMissingError),
        ("AccessDeniedException", 400, AccessDeniedError),
        ("ItemCollectionSizeLimitExceededException", 400, FatalError),
        ("ValidationException", 400, FatalError),
    ],
)
async def test_an_error_of_dynamodb_has_its_class(
    aws: AwsStub,
    store: DynamoStateStore,
    code: str,
    status: int,
    error: type[KinesumerError],
) -> None:
    aws.refuse("UpdateItem", code, "what AWS says", status)
    with pytest.raises(error) as raised:
        await store.write(BEAT)
    assert type(raised.value) is error
    assert "table state" in str(raised.value)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("AccessDeniedException", "allow dynamodb:UpdateItem on it"),
        ("ExpiredTokenException", "renew them"),
        ("UnrecognizedClientException", "correct them"),
    ],
)
async def test_a_denial_says_what_helps(aws: AwsStub, code: str, advice: str) -> None:
    aws.refuse("UpdateItem", code, "what AWS says")
    # AWS has never accepted the keys of new clients.
    async with ClientFactory() as clients:
        store = await open_store(clients, "state")
        with pytest.raises(AccessDeniedError) as raised:
            await store.write(BEAT)
    assert advice in str(raised.value)
    said = ("allow dynamodb:", "renew them", "correct them")
    assert sum(each in str(raised.value) for each in said) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The provided key element does not match the schema",
        "The table does not have the specified index: index-client-key-last-update",
        "One or more parameter values were invalid: Missing the key id in the item",
    ],
)
async def test_a_wrong_table_is_told_from_a_wrong_request(
    aws: AwsStub, store: DynamoStateStore, text: str
) -> None:
    aws.refuse("Query", "ValidationException", text)
    with pytest.raises(StateStoreSchemaError, match="kinesumer init --table state"):
        await store.query("a")


@pytest.mark.parametrize("fault", ["drop", "stall"])
async def test_a_connection_that_fails_leaves_a_write_in_doubt(
    aws: AwsStub, environment: pytest.MonkeyPatch, fault: str
) -> None:
    environment.setitem(READ_SECONDS, "dynamodb", 0.2)
    getattr(aws, fault)("UpdateItem")
    async with session.ClientFactory() as clients:
        store = await open_store(clients, "state")
        with pytest.raises(StoreUnavailableError) as raised:
            await store.write(BEAT)
    assert type(raised.value) is StoreUnavailableError


# --- the table -----------------------------------------------------------------------


async def test_a_tables_id_tells_it_from_one_made_anew(
    aws: AwsStub, store: DynamoStateStore
) -> None:
    aws.answer("DescribeTable", {"Table": TABLE})
    aws.answer("DescribeTable", {"Table": {**TABLE, "TableId": "id-2"}})
    created = {**TABLE, "TableId": None, "CreationDateTime": 1700000000.5}
    aws.answer("DescribeTable", {"Table": created})
    assert await store.verify() == "id-1"
    assert await store.verify() == "id-2"
    assert await store.verify() == "1700000000.5"


def _keys(hash_key: str, range_key: str | None = None) -> list[dict[str, str]]:
    keys = [{"AttributeName": hash_key, "KeyType": "HASH"}]
    if range_key:
        keys.append({"AttributeName": range_key, "KeyType": "RANGE"})
    return keys


LSI: dict[str, Any] = DEFINITION["LocalSecondaryIndexes"][0]
NUMBERS = [{"AttributeName": "pk", "AttributeType": "N"}]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"KeySchema": _keys("id")}, "its keys are id / none, not pk / sk"),
        ({"KeySchema": _keys("sk", "pk")}, "its keys are sk / pk, not pk / sk"),
        (
            {"LocalSecondaryIndexes": []},
            f"no local secondary index {INDEX}",
        ),
        (
            {"LocalSecondaryIndexes": [{**LSI, "KeySchema": _keys("pk", "sk")}]},
            "are pk / sk, not pk / last_update",
        ),
        ({"AttributeDefinitions": NUMBERS}, "pk is of type N, not S"),
        ({"Replicas": [{"RegionName": "us-east-1"}]}, "global table"),
    ],
)
async def test_what_is_wrong_with_a_table_is_named(
    aws: AwsStub, store: DynamoStateStore, change: dict[str, Any], fault: str
) -> None:
    aws.answer("DescribeTable", {"Table": {**TABLE, **change}})
    with pytest.raises(StateStoreSchemaError, match=fault):
        await store.verify()


async def test_a_table_is_created_and_waited_for(
    aws: AwsStub, store: DynamoStateStore, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(dynamodb, "LOOK_SECONDS", 0.0)
    aws.refuse("DescribeTable", "ResourceNotFoundException")
    aws.answer("CreateTable", {})
    aws.refuse("DescribeTable", "ResourceNotFoundException")
    aws.answer("DescribeTable", {"Table": {**TABLE, "TableStatus": "CREATING"}})
    aws.answer("DescribeTable", {"Table": TABLE})
    assert await ensure_table(store) == "id-1"
    [created] = [seen for seen in aws.seen if seen.operation == "CreateTable"]
    assert created.body == {"TableName": "state", **DEFINITION}


async def test_a_table_that_never_gets_ready_is_reported(
    aws: AwsStub, store: DynamoStateStore
) -> None:
    aws.answer("DescribeTable", {"Table": {**TABLE, "TableStatus": "CREATING"}})
    with pytest.raises(StoreUnavailableError, match="table state is still being"):
        await ensure_table(store, wait_seconds=-1)


async def test_a_table_that_another_process_creates_meanwhile_is_fine(
    aws: AwsStub, store: DynamoStateStore
) -> None:
    aws.refuse("DescribeTable", "ResourceNotFoundException")
    aws.refuse("CreateTable", "ResourceInUseException", "exists")
    aws.answer("DescribeTable", {"Table": TABLE})
    assert await ensure_table(store) == "id-1"


async def test_a_wrong_table_isnt_created_over(
    aws: AwsStub, store: DynamoStateStore
) -> None:
    aws.answer("DescribeTable", {"Table": {**TABLE, "KeySchema": _keys("id")}})
    with pytest.raises(StateStoreSchemaError):
        await ensure_table(store)
    assert aws.count("CreateTable") == 0


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    with background(EmbeddedAws(table=None)) as served:
        for name, value in served.environment().items():
            monkeypatch.setenv(name, value)
        yield served


async def test_a_table_is_created_once_and_then_verified(
    embedded: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)
    made = await kinesumer.create_table()
    assert made.created
    assert (made.name, made.region) == ("kinesumer-state-store", "us-east-1")
    again = await kinesumer.create_table(region="us-east-1")
    assert again == made._replace(created=False)
    monkeypatch.setenv("KINESUMER_TABLE", "other")
    # It may also be called where an event loop runs, such as in a notebook.
    other = kinesumer.blocking.create_table()
    assert (other.name, other.created) == ("other", True)


async def test_a_table_is_protected_if_that_is_wanted(
    embedded: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)

    def protections() -> tuple[bool, bool]:
        body = json.dumps({"TableName": "kinesumer-state-store"}).encode()
        table: Any = embedded.dynamodb("DescribeTable", body)["Table"]
        answer: Any = embedded.dynamodb("DescribeContinuousBackups", body)
        backups = answer["ContinuousBackupsDescription"]
        recovery = backups["PointInTimeRecoveryDescription"]
        is_on = recovery["PointInTimeRecoveryStatus"] == "ENABLED"
        return is_on, bool(table.get("DeletionProtectionEnabled"))

    await kinesumer.create_table()
    assert protections() == (False, False)
    await kinesumer.create_table(deletion_protection=True)
    assert protections() == (False, True)
    for _ in range(2):
        await kinesumer.create_table(
            point_in_time_recovery=True, deletion_protection=True
        )
        assert protections() == (True, True)
    await kinesumer.create_table()  # changes nothing
    assert protections() == (True, True)


async def test_names_that_cannot_be_a_table_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="choose another"):
        await kinesumer.create_table("a#b")

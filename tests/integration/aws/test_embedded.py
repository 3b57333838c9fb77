"""The adapters against the embedded AWS: permissions, accounts, roles, outages."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from kinesumer.aws import session
from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    SourceThrottledError,
    SourceUnavailableError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
    StreamMissingError,
)
from kinesumer.local import EmbeddedAws, background
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Compare, Write, WriteResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OTHER = "210987654321"
TABLE = "kinesumer-state-store"
KEY = Key("group#app", "group")
WRITE = Write(KEY, Compare("pk", "absent"), {"n": 1})


@pytest.fixture
def embedded(environment: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """An embedded AWS with a state store; the environment points to it."""
    with background(EmbeddedAws()) as aws:
        for name, value in aws.environment().items():
            environment.setenv(name, value)
        aws.create_table(TABLE)
        yield aws


@pytest.fixture
async def clients(embedded: EmbeddedAws) -> AsyncIterator[ClientFactory]:
    """Clients of the default account."""
    async with ClientFactory() as clients:
        yield clients


# --- permissions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"],
)
async def test_a_denied_action_on_a_stream_is_named(
    embedded: EmbeddedAws, clients: ClientFactory, operation: str
) -> None:
    embedded.create_stream("orders")
    source = await open_source(clients, Stream("orders"))
    info = await source.describe()
    [shard] = await source.list_shards()
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    embedded.deny(f"kinesis:{operation}")
    with pytest.raises(AccessDeniedError) as raised:
        await source.describe()
        await source.list_shards()
        await source.get_iterator(shard.shard_id, Start.LATEST)
        await source.get_records(iterator, 10)
    assert raised.value.action == f"kinesis:{operation}"
    assert raised.value.resource == info.arn


@pytest.mark.parametrize(
    "operation", ["GetItem", "Query", "UpdateItem", "DescribeTable"]
)
async def test_a_denied_action_on_the_table_is_named(
    embedded: EmbeddedAws, clients: ClientFactory, operation: str
) -> None:
    store = await open_store(clients, TABLE)
    embedded.deny(f"dynamodb:{operation}")
    with pytest.raises(AccessDeniedError) as raised:
        await store.get(KEY)
        await store.query(KEY.pk)
        await store.write(WRITE)
        await store.verify()
    assert raised.value.action == f"dynamodb:{operation}"
    assert raised.value.resource == f"table {TABLE}"


async def test_keys_that_aws_doesnt_know_are_denied(
    embedded: EmbeddedAws, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIASOMETHINGELSE")
    embedded.create_stream("orders")
    async with ClientFactory() as clients:
        with pytest.raises(AccessDeniedError, match="UnrecognizedClient"):
            await (await open_store(clients, TABLE)).get(KEY)
        with pytest.raises(AccessDeniedError):
            await (await open_source(clients, Stream("orders"))).describe()


# --- roles and accounts --------------------------------------------------------------


async def test_a_role_reads_a_stream_of_another_account(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    role = embedded.create_role("reader", account=OTHER, external_id="secret")
    ours = embedded.create_stream("orders")
    theirs = embedded.create_stream("orders", account=OTHER)
    embedded.put(ours, b"ours")
    embedded.put(theirs, b"theirs")
    streams = [
        (ours, b"ours", Stream("orders")),
        (theirs, b"theirs", Stream("orders", role_arn=role.arn, external_id="secret")),
    ]
    for arn, data, stream in streams:
        source = await open_source(clients, stream)
        assert (await source.describe()).arn == arn
        [shard] = await source.list_shards()
        iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
        page = await source.get_records(iterator, 10)
        assert [record.data for record in page.records] == [data]


@pytest.mark.parametrize("external_id", [None, "wrong"])
async def test_a_role_without_its_external_id_is_denied(
    embedded: EmbeddedAws, clients: ClientFactory, external_id: str | None
) -> None:
    role = embedded.create_role("reader", account=OTHER, external_id="secret")
    stream = Stream("orders", role_arn=role.arn, external_id=external_id)
    with pytest.raises(AccessDeniedError) as raised:
        await (await open_source(clients, stream)).describe()
    assert raised.value.action == "sts:AssumeRole"
    assert raised.value.resource == role.arn


async def test_what_a_role_may_not_do_is_named_with_the_role(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    allowed = ["kinesis:DescribeStreamSummary"]
    role = embedded.create_role("reader", account=OTHER, actions=allowed)
    arn = embedded.create_stream("orders", account=OTHER)
    source = await open_source(clients, Stream(arn, role_arn=role.arn))
    await source.describe()
    with pytest.raises(AccessDeniedError, match="assumed-role/reader") as raised:
        await source.list_shards()
    assert raised.value.action == "kinesis:ListShards"


async def test_keys_of_a_role_that_live_for_two_seconds_never_interrupt_reading(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    role = embedded.create_role("reader", account=OTHER, session_seconds=2)
    embedded.create_stream("orders", account=OTHER)
    source = await open_source(clients, Stream("orders", role_arn=role.arn))
    for _ in range(30):
        await source.list_shards()
        await asyncio.sleep(0.1)
    assert embedded.journal.count("sts", "AssumeRole") >= 2


# --- tables --------------------------------------------------------------------------


async def test_a_missing_table_is_told_from_a_wrong_one(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    wrong = {
        "TableName": "wrong",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    }
    embedded.dynamodb("CreateTable", json.dumps(wrong).encode())
    missing = await open_store(clients, "missing")
    with pytest.raises(StateStoreMissingError, match="table missing doesn't exist"):
        await missing.verify()
    other = await open_store(clients, "wrong")
    with pytest.raises(
        StateStoreSchemaError, match="id / none, not pk / sk; it has no"
    ):
        await other.verify()
    with pytest.raises(StateStoreSchemaError):
        await other.get(KEY)


async def test_a_stream_that_was_deleted_is_missing(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    embedded.create_stream("orders")
    source = await open_source(clients, Stream("orders"))
    await source.describe()
    embedded.delete_stream("orders")
    with pytest.raises(StreamMissingError, match="orders"):
        await source.list_shards()


# --- outages -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "store_error", "source_error"),
    [
        ("throttle", StoreThrottledError, SourceThrottledError),
        ("error", StoreUnavailableError, SourceUnavailableError),
        ("refuse", StoreUnavailableError, SourceUnavailableError),
        ("drop", StoreUnavailableError, SourceUnavailableError),
        ("latency", StoreUnavailableError, SourceUnavailableError),
    ],
)
async def test_an_outage_is_a_transient_error_and_passes(
    embedded: EmbeddedAws,
    environment: pytest.MonkeyPatch,
    kind: str,
    store_error: type[Exception],
    source_error: type[Exception],
) -> None:
    environment.setitem(session.READ_SECONDS, "dynamodb", 0.3)
    environment.setitem(session.READ_SECONDS, "kinesis", 0.3)
    embedded.create_stream("orders")
    async with ClientFactory() as clients:
        store = await open_store(clients, TABLE)
        source = await open_source(clients, Stream("orders"))
        embedded.fault(kind, latency_seconds=1.0)  # type: ignore[arg-type]
        with pytest.raises(store_error) as store_raised:
            await store.get(KEY)
        with pytest.raises(source_error) as source_raised:
            await source.describe()
        assert type(store_raised.value) is store_error
        assert type(source_raised.value) is source_error
        embedded.clear_faults()
        assert await store.get(KEY) is None
        await source.describe()


async def test_a_write_whose_answer_is_lost_is_in_doubt_and_was_applied(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    store = await open_store(clients, TABLE)
    embedded.fault("drop", operation="UpdateItem", count=1)
    with pytest.raises(StoreUnavailableError) as raised:
        await store.write(WRITE)
    assert type(raised.value) is StoreUnavailableError
    written = await store.write(WRITE)
    assert written == WriteResult(False, {"pk": KEY.pk, "sk": KEY.sk, "n": 1})


async def test_an_iterator_that_expires_is_replaced_at_the_last_position(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    embedded.create_stream("orders")
    for data in (b"1", b"2"):
        embedded.put("orders", data)
    source = await open_source(clients, Stream("orders"))
    [shard] = await source.list_shards()
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    page = await source.get_records(iterator, 1)
    embedded.fault("expired_iterator", count=1)
    assert page.next_iterator is not None
    with pytest.raises(ExpiredIteratorError):
        await source.get_records(page.next_iterator, 1)
    last = Position(page.records[-1].sequence_number)
    again = await source.get_iterator(shard.shard_id, last)
    page = await source.get_records(again, 10)
    assert [record.data for record in page.records] == [b"2"]


async def test_a_heartbeats_thread_works_beside_the_loop(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    store = await open_store(clients, TABLE)
    loan = await clients.lend()

    def beat() -> None:
        async def beating() -> None:
            async with open_borrowed_store(loan, TABLE) as own:
                for _ in range(5):
                    await own.write(Write(KEY, Compare("pk", "exists"), {"beat": 1}))

        asyncio.run(beating())

    await store.write(WRITE)
    await asyncio.gather(
        asyncio.to_thread(beat), *(store.query(KEY.pk) for _ in range(20))
    )
    assert await store.get(KEY) == {"pk": KEY.pk, "sk": KEY.sk, "n": 1, "beat": 1}

"""Keep the state store in a DynamoDB table, and create this table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb_calls import (
    Answer,
    ConditionFailedError,
    TableCalls,
    attribute_of,
    item_of,
    request_of,
    row_of,
)
from kinesumer.aws.errors import translated_errors
from kinesumer.aws.session import ClientFactory, Loan
from kinesumer.config import default_table
from kinesumer.core.backoff import LOOK_SECONDS
from kinesumer.errors import (
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key, Row
from kinesumer.model.validation import validate_name
from kinesumer.ports import Write, WriteResult
from kinesumer.wire.rows import DEFINITION, INDEX

T = TypeVar("T")


async def open_store(clients: ClientFactory, table: str) -> DynamoStateStore:
    """Return the state store in a table. It uses the event loop's shared client."""
    return DynamoStateStore(await clients.open("dynamodb"), table)


@asynccontextmanager
async def open_borrowed_store(
    loan: Loan, table: str
) -> AsyncIterator[DynamoStateStore]:
    """Open the state store on the running event loop, with a client of its own."""
    async with loan() as opened:
        yield DynamoStateStore(opened, table)


class DynamoStateStore:
    """A state store in one table, without retries. See ``ports.StateStore``."""

    def __init__(self, opened: OpenClient, table: str) -> None:
        self._table = table
        self._call = TableCalls(opened, table)

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        return await self._call(
            "GetItem",
            {"Key": item_of(key, {}), "ConsistentRead": consistent},
            lambda answer: row_of(answer["Item"]) if "Item" in answer else None,
        )

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk."""
        if first and last and last < first:
            return []  # DynamoDB would reject BETWEEN with such bounds
        values, condition = {":pk": pk}, "pk = :pk"
        if first:
            values[":first"] = first
            condition += " AND sk " + ("BETWEEN :first" if last else ">= :first")
        if last:
            values[":last"] = last
            condition += " AND :last" if first else " AND sk <= :last"
        items = await self._query(condition, values, ConsistentRead=consistent)
        with translated_errors("Query", StoreUnavailableError):
            return [row_of(item) for item in items]

    async def scan(self, *prefixes: str) -> list[Row]:
        """Return the rows whose partitions begin so. This reads the whole table."""
        names = {f":prefix{i}": prefix for i, prefix in enumerate(prefixes)}
        arguments = {
            "FilterExpression": " OR ".join(f"begins_with(pk, {n})" for n in names),
            "ExpressionAttributeValues": {
                name: attribute_of(prefix) for name, prefix in names.items()
            },
        }
        items = await self._call.read_items("Scan", arguments)
        with translated_errors("Scan", StoreUnavailableError):
            return [row_of(item) for item in items]

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of rows with ``last_update`` at or before a time."""
        condition = "pk = :pk AND last_update <= :moment"
        values = {":pk": pk, ":moment": moment}
        items = await self._query(condition, values, IndexName=INDEX)
        with translated_errors("Query", StoreUnavailableError):
            return [Key(item["pk"]["S"], item["sk"]["S"]) for item in items]

    async def _query(
        self, condition: str, values: Mapping[str, str], **options: object
    ) -> list[Answer]:
        arguments = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {
                name: attribute_of(value) for name, value in values.items()
            },
            **options,
        }
        return await self._call.read_items("Query", arguments)

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries.

        Raise StoreThrottledError if the write certainly wasn't applied, and
        StoreUnavailableError if it may have been applied.
        """
        operation = "UpdateItem"
        if write.delete:
            operation = "DeleteItem"
        elif write.replace:
            operation = "PutItem"

        def row(answer: Answer) -> Row | None:
            if write.delete:
                return None
            if write.replace:
                # PutItem can return the old item, but not the new one.
                return {"pk": write.key.pk, "sk": write.key.sk, **write.set}
            return row_of(answer["Attributes"])

        try:
            return WriteResult(
                True, await self._call(operation, request_of(write), row)
            )
        except ConditionFailedError as refused:
            return WriteResult(False, refused.row)

    async def verify(self) -> str:
        """Check the table's existence, keys and index, and return its id.

        Raise StateStoreMissingError or StateStoreSchemaError.
        """
        description = await self.describe()
        with translated_errors("DescribeTable", StoreUnavailableError):
            if description is None or description["TableStatus"] == "DELETING":
                raise self._call.missing()
            return _verified(self._table, description)

    async def describe(self) -> Answer | None:
        """Return DynamoDB's description of the table, or None if it doesn't exist."""
        try:
            return await self._call("DescribeTable", {}, _description)
        except StateStoreMissingError:
            return None

    async def create(self, definition: Mapping[str, Any]) -> None:
        """Request the table's creation. An existing table isn't changed."""
        try:
            await self._call("CreateTable", definition, bool)
        except StoreUnavailableError:
            # Another process may have created the table meanwhile, or the response was
            # lost. If the table exists now, the error doesn't matter.
            if await self.describe() is None:
                raise

    async def enable_point_in_time_recovery(self) -> None:
        """Let DynamoDB keep backups of an active table, of the last 35 days.

        Raise StoreUnavailableError if DynamoDB isn't ready for that yet.
        """
        wanted = {"PointInTimeRecoveryEnabled": True}
        await self._call(
            "UpdateContinuousBackups",
            {"PointInTimeRecoverySpecification": wanted},
            bool,
        )

    async def enable_deletion_protection(self) -> None:
        """Let DynamoDB refuse to delete an active table."""
        description = await self.describe()
        if description is None or not description.get("DeletionProtectionEnabled"):
            await self._call("UpdateTable", {"DeletionProtectionEnabled": True}, bool)


def _description(answer: Answer) -> Answer:
    description: Answer = answer["Table"]
    return description


class StateTable(NamedTuple):
    """A table that can be a state store, as ``create_table()`` left it."""

    name: str
    region: str
    """The AWS region in which the table is."""
    table_id: str
    """DynamoDB's id of the table. A table that is created again has another id."""
    created: bool
    """True if the call created the table, False if the table existed before."""


async def create_table(
    table: str | None = None,
    *,
    region: str | None = None,
    session: object | None = None,
    point_in_time_recovery: bool = False,
    deletion_protection: bool = False,
) -> StateTable:
    """Create the state store's table and wait until it is active, or verify it.

    With ``point_in_time_recovery``, DynamoDB keeps backups of the last 35 days; with
    ``deletion_protection``, it refuses to delete the table. Both may be turned on for
    an existing table, which isn't changed otherwise. The other arguments have the same
    meaning and the same defaults as those of ``Kinesumer``. The command ``kinesumer
    init`` does the same.

    Raises StateStoreSchemaError if the table exists but has other keys or indexes,
    StoreUnavailableError if the table is not active within a minute, and
    AccessDeniedError, CredentialsError or ConfigurationError.
    """
    name = validate_name("table", default_table() if table is None else table)
    async with ClientFactory(session, region=region) as clients:
        store = await open_store(clients, name)
        existed = await store.describe() is not None
        table_id = await ensure_table(store)
        await protect_table(
            store,
            point_in_time_recovery=point_in_time_recovery,
            deletion_protection=deletion_protection,
        )
        assert clients.region is not None  # no client can be opened without a region
        return StateTable(name, clients.region, table_id, not existed)


async def ensure_table(store: DynamoStateStore, *, wait_seconds: float = 60.0) -> str:
    """Create the state store's table, wait until it is active and return its id.

    An existing table is only verified. Raise StoreUnavailableError if the table isn't
    active in time.
    """
    if await store.describe() is None:
        await store.create(DEFINITION)
    return await _until_ready(store.verify, wait_seconds)


async def protect_table(
    store: DynamoStateStore,
    *,
    point_in_time_recovery: bool,
    deletion_protection: bool,
    wait_seconds: float = 60.0,
) -> None:
    """Turn the given protections of an active table on; leave the others as they are.

    Raise StoreUnavailableError if DynamoDB isn't ready for that in time.
    """
    # A new table has no backups for some seconds, and a table that is being updated
    # may refuse them.
    if point_in_time_recovery:
        await _until_ready(store.enable_point_in_time_recovery, wait_seconds)
    if deletion_protection:
        await _until_ready(store.enable_deletion_protection, wait_seconds)


async def _until_ready(call: Callable[[], Awaitable[T]], wait_seconds: float) -> T:
    deadline = asyncio.get_running_loop().time() + wait_seconds
    while True:
        try:
            return await call()
        except (StateStoreMissingError, StoreUnavailableError) as error:
            # DescribeTable may not find a table for some time after CreateTable.
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(
                    f"the table isn't active after {wait_seconds:g} s: {error}; try "
                    "again later"
                ) from error
        await asyncio.sleep(LOOK_SECONDS)


def _verified(table: str, description: Mapping[str, Any]) -> str:
    """Check that a table can be a state store, and return the table's id.

    Raise StateStoreSchemaError, or StoreUnavailableError while the table is being
    created.
    """
    if description["TableStatus"] == "CREATING":
        raise StoreUnavailableError(f"table {table} is still being created: wait")
    if faults := _schema_errors(description):
        advice = "create another one with kinesumer init --table NAME"
        if description.get("StreamSpecification", {}).get("StreamEnabled"):
            advice += f"; to consume this table's stream, name it table/{table}"
        raise StateStoreSchemaError(
            f"table {table} can't be a state store: {'; '.join(faults)}; {advice}"
        )
    # Some emulators of DynamoDB have no table ids: use the creation time instead.
    created = description.get("CreationDateTime", "")
    return str(description.get("TableId") or created)


def _keys(schema: list[Mapping[str, str]]) -> str:
    names = {key["KeyType"]: key["AttributeName"] for key in schema}
    return f"{names.get('HASH', 'none')} / {names.get('RANGE', 'none')}"


def _schema_errors(description: Mapping[str, Any]) -> list[str]:
    faults = []
    keys = _keys(description["KeySchema"])
    if keys != "pk / sk":
        faults.append(f"its keys are {keys}, not pk / sk")
    indexes = {
        index["IndexName"]: _keys(index["KeySchema"])
        for index in description.get("LocalSecondaryIndexes", ())
    }
    if INDEX not in indexes:
        faults.append(f"it has no local secondary index {INDEX}")
    elif indexes[INDEX] != "pk / last_update":
        faults.append(f"the keys of {INDEX} are {indexes[INDEX]}, not pk / last_update")
    types = {
        attribute["AttributeName"]: attribute["AttributeType"]
        for attribute in description["AttributeDefinitions"]
    }
    faults += [
        f"{name} is of type {types[name]}, not S"
        for name in ("pk", "sk", "last_update")
        if types.get(name, "S") != "S"
    ]
    if description.get("Replicas"):
        faults.append(
            "it is a global table, where the last writer wins in spite of conditions"
        )
    return faults

"""The state store in a DynamoDB table."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from kinesumer.aws.dynamodb_calls import RefusedError, TableCalls
from kinesumer.aws.dynamodb_table import verified
from kinesumer.aws.errors import translated_errors
from kinesumer.aws.expressions import attribute_of, item_of, request_of, row_of
from kinesumer.errors import StateStoreMissingError, StoreUnavailableError
from kinesumer.model.rows import Key
from kinesumer.ports import WriteResult
from kinesumer.wire.table_definition import DEFINITION, INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kinesumer.aws.dynamodb_calls import Answer, Call
    from kinesumer.aws.session import BorrowedSession, ClientFactory
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write


POLL_SECONDS = 0.5


class DynamoDBClient(Protocol):
    """The calls of a state store."""

    meta: Any

    async def get_item(self, **arguments: object) -> Answer: ...
    async def query(self, **arguments: object) -> Answer: ...
    async def update_item(self, **arguments: object) -> Answer: ...
    async def put_item(self, **arguments: object) -> Answer: ...
    async def delete_item(self, **arguments: object) -> Answer: ...
    async def describe_table(self, **arguments: object) -> Answer: ...
    async def create_table(self, **arguments: object) -> Answer: ...


async def open_store(clients: ClientFactory, table: str) -> DynamoStateStore:
    """Return the state store in a table, with the event loop's shared client."""
    opened = await clients.open("dynamodb")
    return DynamoStateStore(opened.client, table, expired=opened.expired)


@asynccontextmanager
async def open_borrowed_store(
    loan: BorrowedSession, table: str
) -> AsyncIterator[DynamoStateStore]:
    """Open the state store on the running event loop, with a separate client."""
    async with loan.open() as client:
        yield DynamoStateStore(client, table, expired=loan.expired)


class DynamoStateStore:
    """One table: see ``ports.StateStore``. Its calls aren't retried.

    ``meter`` is called with each operation and its capacity units. The units are None
    for a write whose condition failed, since DynamoDB doesn't return them.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        expired: Callable[[], bool] = bool,
        meter: Callable[[str, float | None], None] | None = None,
    ) -> None:
        self._client, self._table = client, table
        self._call = TableCalls(client, table, expired=expired)
        self._meter = meter

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        answer = await self._metered(
            "GetItem",
            self._client.get_item,
            {"Key": item_of(key, {}), "ConsistentRead": consistent},
        )
        item = answer.get("Item")
        with translated_errors("GetItem", StoreUnavailableError):
            return None if item is None else row_of(item)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk."""
        if first and last and last < first:
            return []
        values = {":pk": pk}
        condition = "pk = :pk"
        if first and last:
            condition += " AND sk BETWEEN :first AND :last"
        elif first:
            condition += " AND sk >= :first"
        elif last:
            condition += " AND sk <= :last"
        values |= {":first": first} if first else {}
        values |= {":last": last} if last else {}
        items = await self._query(condition, values, ConsistentRead=consistent)
        with translated_errors("Query", StoreUnavailableError):
            return [row_of(item) for item in items]

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of rows with ``last_update`` at or before a time."""
        items = await self._query(
            "pk = :pk AND last_update <= :moment",
            {":pk": pk, ":moment": moment},
            IndexName=INDEX,
        )
        with translated_errors("Query", StoreUnavailableError):
            return [Key(item["pk"]["S"], item["sk"]["S"]) for item in items]

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries.

        Raise StoreThrottledError if it certainly wasn't applied, and
        StoreUnavailableError if it may have been applied.
        """
        operation, call = "UpdateItem", self._client.update_item
        if write.delete:
            operation, call = "DeleteItem", self._client.delete_item
        elif write.replace:
            operation, call = "PutItem", self._client.put_item
        try:
            answer = await self._metered(operation, call, request_of(write))
        except RefusedError as refused:
            return WriteResult(False, refused.row)
        if write.delete:
            return WriteResult(True, None)
        if write.replace:
            return WriteResult(
                True, {"pk": write.key.pk, "sk": write.key.sk, **write.set}
            )
        with translated_errors(operation, StoreUnavailableError):
            return WriteResult(True, row_of(answer["Attributes"]))

    async def verify(self) -> str:
        """Check the table's existence, keys and index, and return its id.

        Raise StateStoreMissingError or StateStoreSchemaError.
        """
        description = await self.describe()
        with translated_errors("DescribeTable", StoreUnavailableError):
            return verified(self._table, description)

    async def describe(self) -> Answer | None:
        """Return DynamoDB's description of the table, or None if it doesn't exist."""
        try:
            answer = await self._call("DescribeTable", self._client.describe_table, {})
        except StateStoreMissingError:
            return None
        with translated_errors("DescribeTable", StoreUnavailableError):
            return cast("Answer", answer["Table"])

    async def create(self, definition: Mapping[str, Any]) -> None:
        """Request the table's creation. An existing table isn't changed."""
        try:
            await self._call("CreateTable", self._client.create_table, definition)
        except StoreUnavailableError:
            if await self.describe() is None:
                raise

    async def _query(
        self, condition: str, values: Mapping[str, str], **options: object
    ) -> list[Answer]:
        items: list[Answer] = []
        arguments: Answer = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {
                name: attribute_of(value) for name, value in values.items()
            },
            **options,
        }
        while True:
            answer = await self._metered("Query", self._client.query, arguments)
            with translated_errors("Query", StoreUnavailableError):
                items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return items
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def _metered(
        self, operation: str, call: Call, arguments: Mapping[str, object]
    ) -> Answer:
        if self._meter is None:
            return await self._call(operation, call, arguments)
        arguments = {**arguments, "ReturnConsumedCapacity": "TOTAL"}
        try:
            answer = await self._call(operation, call, arguments)
        except RefusedError:
            self._meter(operation, None)
            raise
        self._meter(operation, answer["ConsumedCapacity"]["CapacityUnits"])
        return answer


async def create_table(store: DynamoStateStore, *, wait_seconds: float = 60.0) -> str:
    """Create the state store's table, wait until it is active and return its id.

    An existing table is only verified. Raise StoreUnavailableError if the table isn't
    active in time.
    """
    if await store.describe() is None:
        await store.create(DEFINITION)
    deadline = asyncio.get_running_loop().time() + wait_seconds
    while True:
        try:
            return await store.verify()
        except (StateStoreMissingError, StoreUnavailableError) as error:
            # DescribeTable may not find a table for some time after CreateTable.
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(
                    f"the table isn't active after {wait_seconds:g} s: {error}; try "
                    "again later"
                ) from error
        await asyncio.sleep(POLL_SECONDS)

"""One DynamoDB table behind the StateStore port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from kinesumer.aws import tables
from kinesumer.aws.expressions import attribute_of, item_of, request_of, row_of
from kinesumer.aws.faults import FOREIGN, Kind, fatal, fault_of, said, understood
from kinesumer.errors import (
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.ports import Key, Written
from kinesumer.wire.state_table import INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from botocore.exceptions import ClientError

    from kinesumer.aws.faults import Fault
    from kinesumer.aws.session import Clients, Loan
    from kinesumer.ports import Row, Write

ANSWER_SECONDS = 5.0
"""Longest wait for one answer; within it 2 s without a byte end the call, too."""

DECODED = ("GetItem", "Query", "UpdateItem")
Answer = dict[str, Any]
Call = Callable[..., Awaitable[Answer]]


class DynamoDBClient(Protocol):
    """The calls that a state store makes."""

    meta: Any

    async def get_item(self, **arguments: object) -> Answer: ...
    async def query(self, **arguments: object) -> Answer: ...
    async def update_item(self, **arguments: object) -> Answer: ...
    async def put_item(self, **arguments: object) -> Answer: ...
    async def delete_item(self, **arguments: object) -> Answer: ...
    async def describe_table(self, **arguments: object) -> Answer: ...
    async def create_table(self, **arguments: object) -> Answer: ...


async def open_store(clients: Clients, table: str) -> DynamoStateStore:
    """Return the state store in a table, through the event loop's own client."""
    opened = await clients.open("dynamodb")
    return DynamoStateStore(opened.client, table, expired=opened.expired)


@asynccontextmanager
async def borrowed_store(loan: Loan, table: str) -> AsyncIterator[DynamoStateStore]:
    """Open the state store on the running event loop, with a client of its own."""
    async with loan.open() as client:
        yield DynamoStateStore(client, table, expired=loan.expired)


class DynamoStateStore:
    """One table: see ``ports.StateStore``. It never retries by itself.

    ``meter`` is told each operation and the capacity units that it took (None where
    DynamoDB doesn't say: for a refused write).
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        expired: Callable[[], bool] = bool,
        meter: Callable[[str, float | None], None] | None = None,
    ) -> None:
        for operation in DECODED:
            # A second registration under the same id is ignored: clients are shared.
            hook = f"before-parse.dynamodb.{operation}"
            client.meta.events.register(hook, _decode, unique_id=hook)
        self._client, self._table = client, table
        self._expired, self._meter = expired, meter

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        answer = await self._metered(
            "GetItem",
            self._client.get_item,
            {"Key": item_of(key, {}), "ConsistentRead": consistent},
        )
        item = answer.get("Item")
        with understood("GetItem", StoreUnavailableError):
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
        with understood("Query", StoreUnavailableError):
            return [row_of(item) for item in items]

    async def not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of rows whose ``last_update`` is at or before moment."""
        items = await self._query(
            "pk = :pk AND last_update <= :moment",
            {":pk": pk, ":moment": moment},
            IndexName=INDEX,
        )
        with understood("Query", StoreUnavailableError):
            return [Key(item["pk"]["S"], item["sk"]["S"]) for item in items]

    async def write(self, write: Write) -> Written:
        """Apply one conditional write, without retries of its own.

        Raises StoreThrottledError when it surely didn't happen, and
        StoreUnavailableError when it may have.
        """
        operation, call = "UpdateItem", self._client.update_item
        if write.delete:
            operation, call = "DeleteItem", self._client.delete_item
        elif write.replace:
            operation, call = "PutItem", self._client.put_item
        try:
            answer = await self._metered(operation, call, request_of(write))
        except _RefusedError as refused:
            return Written(False, refused.row)
        if write.delete:
            return Written(True, None)
        if write.replace:
            return Written(True, {"pk": write.key.pk, "sk": write.key.sk, **write.set})
        with understood(operation, StoreUnavailableError):
            return Written(True, row_of(answer["Attributes"]))

    async def verify(self) -> str:
        """Check that the table is there and has the keys and index; return its id.

        Raises StateStoreMissingError or StateStoreSchemaError.
        """
        description = await self.describe()
        with understood("DescribeTable", StoreUnavailableError):
            return tables.verified(self._table, description)

    async def describe(self) -> Answer | None:
        """Return DynamoDB's description of the table, or None if there is none."""
        try:
            answer = await self._call("DescribeTable", self._client.describe_table, {})
        except StateStoreMissingError:
            return None
        with understood("DescribeTable", StoreUnavailableError):
            return cast("Answer", answer["Table"])

    async def create(self, definition: Mapping[str, Any]) -> None:
        """Ask for the table to be created; one that is there already is left alone."""
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
            with understood("Query", StoreUnavailableError):
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
        except _RefusedError:
            self._meter(operation, None)
            raise
        self._meter(operation, answer["ConsumedCapacity"]["CapacityUnits"])
        return answer

    async def _call(
        self, operation: str, call: Call, arguments: Mapping[str, object]
    ) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                with understood(operation, StoreUnavailableError):
                    return await call(TableName=self._table, **arguments)
        except FOREIGN as error:
            resource = f"table {self._table}"
            if "IndexName" in arguments:
                # A permission of its own: to query the table is another one.
                resource += f", index {arguments['IndexName']}"
            raise self._translated(error, operation, resource) from error

    def _translated(
        self, error: Exception, operation: str, resource: str
    ) -> KinesumerError:
        fault = fault_of(error)
        if fault.code == "ConditionalCheckFailedException":
            response = cast("ClientError", error).response
            return _RefusedError(cast("Answer", response).get("Item"))
        action = f"dynamodb:{operation}"
        message = f"{action} on {resource}: {said(fault)}"
        if fault.kind is Kind.THROTTLED:
            return StoreThrottledError(message)
        if fault.kind is Kind.UNAVAILABLE:
            return StoreUnavailableError(message)
        if fault.kind is Kind.TOKEN_EXPIRED and self._expired():
            return StoreUnavailableError(message)
        if fault.kind is Kind.OTHER:
            return self._of_dynamodb(fault, action, resource)
        return fatal(fault, action, resource)

    def _of_dynamodb(self, fault: Fault, action: str, resource: str) -> KinesumerError:
        if fault.code == "ResourceNotFoundException":
            return tables.missing(self._table)
        if fault.code == "ValidationException" and _names_a_key(fault.text):
            return StateStoreSchemaError(
                f"{action} on {resource}: {said(fault)}; "
                f"run: kinesumer init --table {self._table}"
            )
        return fatal(fault, action, resource)


def _decode(
    response_dict: Answer, customized_response_dict: Answer, **_: object
) -> None:
    """Decode rows in botocore's stead: it takes up to 0.1 ms for each."""
    if response_dict["status_code"] == 200:
        try:
            answer = msgspec.json.decode(response_dict["body"], type=Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"what answered for DynamoDB isn't DynamoDB: {error}"
            raise StoreUnavailableError(text) from error
        customized_response_dict.update(answer)
        response_dict["body"] = b""


def _names_a_key(text: str) -> bool:
    phrases = ("schema", "specified index", "key element", "Missing the key")
    return any(phrase in text for phrase in phrases)


class _RefusedError(KinesumerError):
    """The condition didn't hold; ``row`` is what stands there."""

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        self.row = None if item is None else row_of(item)
        super().__init__("the condition didn't hold")

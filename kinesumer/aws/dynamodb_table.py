"""The state store's table: made, and what is wrong with another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    translated_errors,
)
from kinesumer.aws.expressions import row_of
from kinesumer.errors import (
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.wire.table_definition import DEFINITION, INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import ClientError

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.errors import AwsFailure


POLL_SECONDS = 0.5


async def create_table(store: DynamoStateStore, *, wait_seconds: float = 60.0) -> str:
    """Create the state store's table, wait until it is active and return its id.

    A table that exists already is only verified. Raises StoreUnavailableError if it
    isn't active in time.
    """
    if await store.describe() is None:
        await store.create(DEFINITION)
    deadline = asyncio.get_running_loop().time() + wait_seconds
    while True:
        try:
            return await store.verify()
        except (StateStoreMissingError, StoreUnavailableError) as error:
            # Being created: DescribeTable may not even know it for a moment.
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(
                    f"the table isn't ready after {wait_seconds:g} s: {error}"
                ) from error
        await asyncio.sleep(POLL_SECONDS)


def verified(table: str, description: Mapping[str, Any] | None) -> str:
    """Return the id of a table that can be a state store.

    Raises StateStoreMissingError, StateStoreSchemaError, or StoreUnavailableError while
    it is being created.
    """
    if description is None or description["TableStatus"] == "DELETING":
        raise missing(table)
    if description["TableStatus"] == "CREATING":
        raise StoreUnavailableError(f"table {table} is still being created")
    faults = list(_schema_errors(description))
    if faults:
        raise StateStoreSchemaError(
            f"table {table} can't be a state store: {'; '.join(faults)}; use another "
            f"table, or delete this one and run: kinesumer init --table {table}"
        )
    created = description.get("CreationDateTime", "")
    return str(description.get("TableId") or created)


def missing(table: str) -> StateStoreMissingError:
    """Return the error for a table that doesn't exist."""
    return StateStoreMissingError(
        f"table {table} doesn't exist in this account and region; check them, or "
        f"create it with: kinesumer init --table {table}"
    )


class _Keys(NamedTuple):
    hash: str
    range: str

    def __str__(self) -> str:
        return f"{self.hash or 'none'} / {self.range or 'none'}"


def _keys(schema: list[Mapping[str, str]]) -> _Keys:
    names = {key["KeyType"]: key["AttributeName"] for key in schema}
    return _Keys(names.get("HASH", ""), names.get("RANGE", ""))


def _schema_errors(description: Mapping[str, Any]) -> list[str]:
    faults = []
    keys = _keys(description["KeySchema"])
    if keys != _Keys("pk", "sk"):
        faults.append(f"its keys are {keys}, not pk / sk")
    indexes = {
        index["IndexName"]: index
        for index in description.get("LocalSecondaryIndexes", ())
    }
    if INDEX not in indexes:
        faults.append(f"it has no local secondary index {INDEX}")
    else:
        keys = _keys(indexes[INDEX]["KeySchema"])
        if keys != _Keys("pk", "last_update"):
            faults.append(f"the keys of {INDEX} are {keys}, not pk / last_update")
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
            "it is a global table, where the last writer wins and conditions don't hold"
        )
    return faults


ANSWER_SECONDS = 5.0
"""Longest wait for one answer; within it 2 s without a byte end the call, too."""


DECODED = ("GetItem", "Query", "Scan", "UpdateItem")


Answer = dict[str, Any]


Call = Callable[..., Awaitable[Answer]]


class RefusedError(KinesumerError):
    """The condition didn't hold; ``row`` is what stands there."""

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        self.row = None if item is None else row_of(item)
        super().__init__("the condition didn't hold")


class TableCalls:
    """Makes calls to a table, without retries of its own."""

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        expired: Callable[[], bool] = bool,
        missing: Callable[[str], KinesumerError] = missing,
    ) -> None:
        for operation in DECODED:
            # A second registration under the same id is ignored: clients are shared.
            hook = f"before-parse.dynamodb.{operation}"
            client.meta.events.register(hook, _decode, unique_id=hook)
        self.table = table
        self._expired, self._missing = expired, missing

    async def __call__(
        self, operation: str, call: Call, arguments: Mapping[str, object]
    ) -> Answer:
        """Return the answer. Raises RefusedError for a condition that didn't hold."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                with translated_errors(operation, StoreUnavailableError):
                    return await call(TableName=self.table, **arguments)
        except FOREIGN as error:
            resource = f"table {self.table}"
            if "IndexName" in arguments:
                # A permission of its own: to query the table is another one.
                resource += f", index {arguments['IndexName']}"
            raise self._translated(error, operation, resource) from error

    def _translated(
        self, error: Exception, operation: str, resource: str
    ) -> KinesumerError:
        fault = failure_of(error)
        if fault.code == "ConditionalCheckFailedException":
            response = cast("ClientError", error).response
            return RefusedError(cast("Answer", response).get("Item"))
        action = f"dynamodb:{operation}"
        message = f"{action} on {resource}: {describe(fault)}"
        if fault.kind is Kind.THROTTLED:
            return StoreThrottledError(message)
        if fault.kind is Kind.UNAVAILABLE:
            return StoreUnavailableError(message)
        if fault.kind is Kind.TOKEN_EXPIRED and self._expired():
            return StoreUnavailableError(message)
        if fault.kind is Kind.OTHER:
            return self._of_dynamodb(fault, action, resource)
        return fatal_error(fault, action, resource)

    def _of_dynamodb(
        self, fault: AwsFailure, action: str, resource: str
    ) -> KinesumerError:
        if fault.code == "ResourceNotFoundException":
            return self._missing(self.table)
        if fault.code == "ValidationException" and _names_a_key(fault.text):
            return StateStoreSchemaError(
                f"{action} on {resource}: {describe(fault)}; "
                f"run: kinesumer init --table {self.table}"
            )
        return fatal_error(fault, action, resource)


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

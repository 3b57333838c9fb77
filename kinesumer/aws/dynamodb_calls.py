"""Calls to one DynamoDB table, and the errors that they raise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    missing_table,
    translated_errors,
)
from kinesumer.aws.expressions import row_of
from kinesumer.errors import (
    KinesumerError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.exceptions import ClientError

    from kinesumer.aws.errors import AwsFailure


ANSWER_SECONDS = 5.0
"""Time-out of one response. A call also ends after 2 s without a byte."""


DECODED = ("GetItem", "Query", "Scan", "UpdateItem")


Answer = dict[str, Any]


Call = Callable[..., Awaitable[Answer]]


class RefusedError(KinesumerError):
    """A write's condition was false. ``row`` is the conflicting row."""

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        self.row = None if item is None else row_of(item)
        super().__init__("the condition was false: examine the conflicting row")


class TableCalls:
    """Calls one table, without retries."""

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        expired: Callable[[], bool] = bool,
        missing: Callable[[str], KinesumerError] = missing_table,
    ) -> None:
        for operation in DECODED:
            # Tables share a client, which ignores a second registration of one id.
            hook = f"before-parse.dynamodb.{operation}"
            client.meta.events.register(hook, _decode, unique_id=hook)
        self.table = table
        self._expired, self._missing = expired, missing

    async def __call__(
        self, operation: str, call: Call, arguments: Mapping[str, object]
    ) -> Answer:
        """Return the response. Raise RefusedError if the condition was false."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                with translated_errors(operation, StoreUnavailableError):
                    return await call(TableName=self.table, **arguments)
        except FOREIGN as error:
            resource = f"table {self.table}"
            if "IndexName" in arguments:
                # Querying the index needs another permission than querying the table.
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
    """Decode rows instead of botocore, which takes up to 0.1 ms for each."""
    if response_dict["status_code"] == 200:
        try:
            answer = msgspec.json.decode(response_dict["body"], type=Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreUnavailableError(
                f"a response isn't from DynamoDB: {error}; check which service "
                "responds at the endpoint"
            ) from error
        customized_response_dict.update(answer)
        response_dict["body"] = b""


def _names_a_key(text: str) -> bool:
    phrases = ("schema", "specified index", "key element", "Missing the key")
    return any(phrase in text for phrase in phrases)

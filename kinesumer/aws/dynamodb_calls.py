"""Call one DynamoDB table, and translate the errors of the calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import (
    Kind,
    describe,
    failure_of,
    fatal_error,
    foreign,
    transient_error,
    translated_errors,
)
from kinesumer.aws.expressions import row_of
from kinesumer.aws.http.client import DYNAMODB, DirectCalls
from kinesumer.errors import (
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Row
from kinesumer.runtime.tasks import timeout

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


Answer = dict[str, Any]
T = TypeVar("T")

# Time limit for a whole response. A call also fails if no byte arrives for 2 s.
ANSWER_SECONDS = 5.0
_decode = msgspec.json.Decoder(Answer).decode


class RefusedError(KinesumerError):
    """A write's condition was false. ``row`` is the conflicting row."""

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        self.row: Row | None = None if item is None else row_of(item)
        super().__init__("the condition was false: examine the conflicting row")


def missing_table(table: str, region: str) -> StateStoreMissingError:
    """Return the error for a table that doesn't exist."""
    return StateStoreMissingError(
        f"table {table} doesn't exist in this account, {region}; check both, or "
        f"create it with: kinesumer init --table {table}"
    )


class TableCalls:
    """Calls one table, without retries."""

    def __init__(
        self,
        opened: OpenClient,
        table: str,
        missing: Callable[[str, str], KinesumerError] = missing_table,
    ) -> None:
        self.table = table
        self._opened, self._missing = opened, missing
        self._direct = DirectCalls(opened, DYNAMODB)

    async def __call__(
        self,
        operation: str,
        arguments: Mapping[str, object],
        read: Callable[[Answer], T],
    ) -> T:
        """Call an operation, pass its response to ``read``, and return the result.

        Raise RefusedError if the condition of a write was false.
        """
        named = {"TableName": self.table, **arguments}
        try:
            async with timeout(ANSWER_SECONDS):
                with translated_errors(operation, StoreUnavailableError):
                    answer = await self._direct.call(operation, named)
                    return read(_decode(answer.body))
        except foreign() as error:
            resource = f"table {self.table}"
            if "IndexName" in arguments:
                # Name the index, since access to it needs its own permission.
                resource += f", index {arguments['IndexName']}"
            raise self._translated(error, operation, resource) from error

    def missing(self) -> KinesumerError:
        """Return the error for a table that doesn't exist."""
        return self._missing(self.table, self._opened.client.meta.region_name)

    async def read_items(
        self, operation: str, arguments: Mapping[str, object]
    ) -> list[Answer]:
        """Return the items of all pages of a Query or Scan."""
        items: list[Answer] = []
        page = dict(arguments)
        while True:
            part, last = await self(
                operation, page, lambda a: ([*a["Items"]], a.get("LastEvaluatedKey"))
            )
            items += part
            if not last:
                return items
            page["ExclusiveStartKey"] = last

    def _translated(
        self, error: Exception, operation: str, resource: str
    ) -> KinesumerError:
        fault = failure_of(error)
        if fault.code == "ConditionalCheckFailedException":
            response = cast("ClientError", error).response
            return RefusedError(cast("Answer", response).get("Item"))
        action = f"dynamodb:{operation}"
        call = f"{action} on {resource}"
        message = f"{call}: {describe(fault)}"
        if fault.kind is Kind.THROTTLED:
            return StoreThrottledError(message)
        keys = self._opened.keys
        passing = transient_error(fault, StoreUnavailableError, call, keys)
        if passing is not None:
            return passing
        if fault.code == "ResourceNotFoundException":
            return self.missing()
        if fault.code == "ValidationException" and _names_a_key(fault.text):
            return StateStoreSchemaError(
                f"{message}; run: kinesumer init --table {self.table}"
            )
        return fatal_error(fault, action, resource)


def _names_a_key(text: str) -> bool:
    phrases = ("schema", "specified index", "key element", "Missing the key")
    return any(phrase in text for phrase in phrases)

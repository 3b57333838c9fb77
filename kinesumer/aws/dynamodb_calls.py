"""Write the requests of one DynamoDB table, send them, and translate the errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
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
from kinesumer.aws.http.client import DYNAMODB, DirectCalls
from kinesumer.errors import (
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.runtime.tasks import timeout

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

Answer = dict[str, Any]
# One value in DynamoDB's JSON: {"S": …}, {"N": …}, {"BOOL": …} or {"SS": …}.
Attribute = dict[str, Any]
T = TypeVar("T")
# Time limit for a whole response. A call also fails if no byte arrives for 2 s.
# It is less than the 6 s in which a session with the default lease delivers.
ANSWER_SECONDS = 5.0
_decode = msgspec.json.Decoder(Answer).decode
# Matches DynamoDB's whole numbers, which have up to 38 digits.
_WHOLE = re.compile(r"-?[0-9]{1,38}")


def attribute_of(value: Value) -> Attribute:
    """Return a value in DynamoDB's JSON. Raise ValueError for an empty set."""
    if isinstance(value, UnsupportedValue):
        attribute: Attribute = json.loads(value)
        return attribute
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if not value:
        raise ValueError("an empty set can't be stored: remove the attribute instead")
    return {"SS": sorted(value)}


def row_of(item: Mapping[str, Attribute]) -> Row:
    """Return an item as a row. Use UnsupportedValue for types that rows don't have."""
    return {name: _value_of(attribute) for name, attribute in item.items()}


def _value_of(attribute: Attribute) -> Value:
    for kind, value in attribute.items():
        if kind == "S" and type(value) is str:
            return value
        if kind == "BOOL" and type(value) is bool:
            return value
        if kind == "N" and type(value) is str and _WHOLE.fullmatch(value):
            return int(value)
        if kind == "SS" and all(type(part) is str for part in value):
            return frozenset(value)
    return UnsupportedValue(json.dumps(attribute, default=repr))


def item_of(key: Key, values: Mapping[str, Value]) -> dict[str, Attribute]:
    """Return an item in DynamoDB's JSON, from its key and its other attributes."""
    return {
        "pk": {"S": key.pk},
        "sk": {"S": key.sk},
        **{name: attribute_of(value) for name, value in values.items()},
    }


class Expression:
    """Builds expressions with placeholders: #0, #1 … for names, :0, :1 … for values."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}

    def name(self, attribute: str) -> str:
        """Return the placeholder of an attribute's name, which may be reserved."""
        return self._names.setdefault(attribute, f"#{len(self._names)}")

    def value(self, value: Value) -> str:
        """Return the placeholder of a value."""
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = attribute_of(value)
        return placeholder

    def condition(self, condition: Condition) -> str:
        """Return a ConditionExpression, which is empty if it would always be true."""
        if isinstance(condition, Compare):
            return self._test(condition)
        return self._joined(condition)

    def update(self, values: Mapping[str, Value], remove: Iterable[str]) -> str:
        """Return an UpdateExpression, which is empty if there is nothing to change."""
        sets = [f"{self.name(n)} = {self.value(v)}" for n, v in values.items()]
        gone = [self.name(name) for name in remove]
        parts = []
        if sets:
            parts.append("SET " + ", ".join(sets))
        if gone:
            parts.append("REMOVE " + ", ".join(gone))
        return " ".join(parts)

    def arguments(self) -> dict[str, Any]:
        """Return the request's arguments that define the placeholders."""
        arguments: dict[str, Any] = {}
        if self._names:
            arguments["ExpressionAttributeNames"] = {
                placeholder: name for name, placeholder in self._names.items()
            }
        if self._values:
            arguments["ExpressionAttributeValues"] = self._values
        return arguments

    def _test(self, test: Compare) -> str:
        name = self.name(test.attribute)
        if test.op == "exists":
            return f"attribute_exists({name})"
        if test.op == "absent":
            return f"attribute_not_exists({name})"
        value = self.value(test.value)
        if test.op in ("size<", "size="):
            return f"size({name}) {test.op[-1]} {value}"
        return f"{name} {test.op} {value}"

    def _joined(self, condition: AllOf | AnyOf) -> str:
        parts = [self.condition(part) for part in condition.parts]
        if isinstance(condition, AllOf):
            parts = [part for part in parts if part]
        elif not parts:
            raise ValueError("AnyOf without parts is never true: add a part")
        elif not all(parts):
            return ""
        word = " AND " if isinstance(condition, AllOf) else " OR "
        return f"({word.join(parts)})" if len(parts) > 1 else "".join(parts)


def request_of(write: Write) -> dict[str, Any]:
    """Return the arguments of a write's UpdateItem, PutItem or DeleteItem call."""
    expression = Expression()
    arguments: dict[str, Any] = {}
    if write.replace and not write.delete:
        arguments["Item"] = item_of(write.key, write.set)
    else:
        arguments["Key"] = item_of(write.key, {})
    if not (write.replace or write.delete):
        arguments["ReturnValues"] = "ALL_NEW"
        if update := expression.update(write.set, write.remove):
            arguments["UpdateExpression"] = update
    if condition := expression.condition(write.condition):
        arguments["ConditionExpression"] = condition
        # A rejected write then returns the row, so that no second request is needed.
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return arguments | expression.arguments()


class ConditionFailedError(KinesumerError):
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

        Raise ConditionFailedError if the condition of a write was false.
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
            return ConditionFailedError(cast("Answer", response).get("Item"))
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

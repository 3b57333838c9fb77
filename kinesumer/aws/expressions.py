"""Convert rows, values and conditions to DynamoDB's JSON and expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write

# One value in DynamoDB's JSON: {"S": …}, {"N": …}, {"BOOL": …} or {"SS": …}.
Attribute = dict[str, Any]


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


# Matches DynamoDB's whole numbers, which have up to 38 digits.
_WHOLE = re.compile(r"-?[0-9]{1,38}")


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

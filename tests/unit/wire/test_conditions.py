"""Test that conditions and writes have the same effects as in DynamoDB."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kinesumer.model.rows import Key, Row, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Write
from kinesumer.wire.conditions import applied, holds

ROW: Row = {"text": "b", "number": 2, "flag": True, "set": frozenset({"x", "y"})}
KEY = Key("p", "s")


@pytest.mark.parametrize(
    ("attribute", "op", "value", "expected"),
    [
        ("text", "exists", "", True),
        ("none", "exists", "", False),
        ("none", "absent", "", True),
        ("text", "absent", "", False),
        ("none", "=", "b", False),
        ("text", "=", "b", True),
        ("number", "=", "2", False),
        ("flag", "=", 1, False),
        ("text", "<", "c", True),
        ("text", "<", "b", False),
        ("text", "<=", "b", True),
        ("text", "<", 3, False),
        ("number", "<", 3, True),
        ("text", "size=", 1, True),
        ("text", "size<", 1, False),
        ("set", "size=", 2, True),
        ("number", "size=", 1, False),
    ],
)
def test_a_comparison_with_an_attribute(
    attribute: str, op: Any, value: Value, *, expected: bool
) -> None:
    assert holds(Compare(attribute, op, value), ROW) is expected


def test_of_all_parts_each_must_hold_and_of_any_parts_one() -> None:
    true, false = Compare("text", "exists"), Compare("none", "exists")
    assert holds(AllOf(true, true), ROW)
    assert not holds(AllOf(true, false), ROW)
    assert holds(AnyOf(false, true), ROW)
    assert not holds(AnyOf(false, false), ROW)


def test_a_missing_row_has_no_attributes() -> None:
    assert holds(Compare("pk", "absent"), None)
    assert not holds(Compare("pk", "exists"), None)


@pytest.mark.parametrize(
    ("op", "value"), [("size<", "1"), ("<", True), ("<", frozenset({"x"})), (">", 1)]
)
def test_a_comparison_that_dynamodb_refuses_is_an_error(op: str, value: Value) -> None:
    with pytest.raises(ValueError):
        holds(Compare("number", cast("Any", op), value), ROW)


def test_a_write_changes_the_named_attributes() -> None:
    write = Write(KEY, AllOf(), {"text": "c"}, remove=("flag", "none"))
    after = applied(write, ROW)
    assert after == {"text": "c", "number": 2, "set": frozenset({"x", "y"})}
    assert ROW["text"] == "b"


def test_a_new_or_replaced_row_has_only_its_key_and_the_named_attributes() -> None:
    write = Write(KEY, AllOf(), {"text": "c"})
    expected = {"pk": "p", "sk": "s", "text": "c"}
    assert applied(write, None) == expected
    assert applied(write._replace(replace=True), ROW) == expected


def test_a_deleted_row_is_gone() -> None:
    assert applied(Write(KEY, AllOf(), delete=True), ROW) is None

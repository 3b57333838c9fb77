"""Test how rows, values and conditions become DynamoDB's JSON and expressions."""

from __future__ import annotations

import json

import pytest

from kinesumer.aws.dynamodb_calls import (
    Expression,
    attribute_of,
    item_of,
    request_of,
    row_of,
)
from kinesumer.model.rows import Key, UnsupportedValue, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write

KEY = Key("shard#app", "00/shardId-0")


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        ("text", {"S": "text"}),
        ("", {"S": ""}),
        (-12, {"N": "-12"}),
        (True, {"BOOL": True}),
        (frozenset({"b", "a"}), {"SS": ["a", "b"]}),
    ],
)
def test_a_value_becomes_an_attribute_and_comes_back(
    value: Value, attribute: dict[str, object]
) -> None:
    assert attribute_of(value) == attribute
    assert row_of({"name": attribute}) == {"name": value}


def test_an_empty_set_is_refused_since_dynamodb_has_none() -> None:
    with pytest.raises(ValueError, match="empty set"):
        attribute_of(frozenset())


@pytest.mark.parametrize(
    "attribute",
    [
        {"M": {"a": {"S": "b"}}},
        {"L": []},
        {"N": "1.5"},
        {"N": "9" * 5000},
        {"NULL": True},
        {"NS": ["1"]},
        {"B": "AA=="},
        {"SS": [1]},
        {"S": 5},
        {},
    ],
)
def test_an_attribute_of_another_type_stays_in_the_row_as_what_it_is(
    attribute: dict[str, object],
) -> None:
    row = row_of(item_of(KEY, {"beat": 3}) | {"other": attribute})
    assert row.pop("other") == json.dumps(attribute)
    assert row == {"pk": KEY.pk, "sk": KEY.sk, "beat": 3}
    assert attribute_of(UnsupportedValue(json.dumps(attribute))) == attribute


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Compare("dead", "exists"), "attribute_exists(#0)"),
        (Compare("pk", "absent"), "attribute_not_exists(#0)"),
        (Compare("beat", "<=", 4), "#0 <= :0"),
        (Compare("sequence_number", "size<", 12), "size(#0) < :0"),
        (Compare("sequence_number", "size=", 12), "size(#0) = :0"),
        (AllOf(Compare("a", "=", 1), Compare("a", "<", 2)), "(#0 = :0 AND #0 < :1)"),
        (
            AnyOf(
                Compare("a", "absent"),
                AllOf(Compare("a", "=", 1), Compare("b", "=", 2)),
            ),
            "(attribute_not_exists(#0) OR (#0 = :0 AND #1 = :1))",
        ),
        (AllOf(Compare("a", "absent")), "attribute_not_exists(#0)"),
        (AllOf(), ""),
        (AllOf(AllOf(), Compare("a", "exists")), "attribute_exists(#0)"),
        (AnyOf(AllOf(), Compare("a", "exists")), ""),
    ],
)
def test_a_condition_becomes_an_expression(condition: Condition, text: str) -> None:
    assert Expression().condition(condition) == text


def test_a_condition_that_can_never_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="never true"):
        Expression().condition(AnyOf())


def test_an_upsert_names_each_attribute_once() -> None:
    write = Write(KEY, Compare("beat", "=", 1), {"beat": 2}, remove=("owner",))
    assert request_of(write) == {
        "Key": {"pk": {"S": KEY.pk}, "sk": {"S": KEY.sk}},
        "ReturnValues": "ALL_NEW",
        "UpdateExpression": "SET #0 = :0 REMOVE #1",
        "ConditionExpression": "#0 = :1",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ExpressionAttributeNames": {"#0": "beat", "#1": "owner"},
        "ExpressionAttributeValues": {":0": {"N": "2"}, ":1": {"N": "1"}},
    }


def test_an_unconditional_deletion_has_no_expressions() -> None:
    write = Write(KEY, AllOf(), delete=True)
    assert request_of(write) == {"Key": {"pk": {"S": KEY.pk}, "sk": {"S": KEY.sk}}}

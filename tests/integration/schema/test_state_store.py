"""Test that JSON, CloudFormation and Terraform define the same table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hcl2
import yaml

from kinesumer.config import STATE_STORE
from kinesumer.wire.rows import DEFINITION

PROTECTIONS = ("point_in_time_recovery", "deletion_protection")
SCHEMA = Path(__file__).parents[3] / "schema"


def _definition() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((SCHEMA / "state-store.json").read_text())
    return content


def _from_terraform() -> dict[str, Any]:
    """Return the Terraform resource as arguments of CreateTable."""
    content = hcl2.loads((SCHEMA / "state-store.tf").read_text())
    variables: dict[str, Any] = {}
    for each in content["variable"]:
        variables |= _unquoted(each)
    variable = variables["table_name"]
    for name in PROTECTIONS:
        assert variables[name]["default"] is True
    resources = _unquoted(content["resource"][0])["aws_dynamodb_table"]
    table = resources["kinesumer_state_store"]
    [index] = table["local_secondary_index"]
    assert table["name"] == "${var.table_name}"
    [recovery] = table["point_in_time_recovery"]
    assert recovery["enabled"] == "${var.point_in_time_recovery}"
    assert table["deletion_protection_enabled"] == "${var.deletion_protection}"

    def keys(sort: str) -> list[dict[str, str]]:
        return [
            {"AttributeName": table["hash_key"], "KeyType": "HASH"},
            {"AttributeName": sort, "KeyType": "RANGE"},
        ]

    return {
        "TableName": variable["default"],
        "BillingMode": table["billing_mode"],
        "AttributeDefinitions": [
            {"AttributeName": attribute["name"], "AttributeType": attribute["type"]}
            for attribute in table["attribute"]
        ],
        "KeySchema": keys(table["range_key"]),
        "LocalSecondaryIndexes": [
            {
                "IndexName": index["name"],
                "KeySchema": keys(index["range_key"]),
                "Projection": {"ProjectionType": index["projection_type"]},
            }
        ],
    }


def _unquoted(value: Any) -> Any:
    """Return the parsed value without the quotes that the parser leaves on strings."""
    if isinstance(value, dict):
        return {_unquoted(key): _unquoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unquoted(item) for item in value]
    return value.strip('"') if isinstance(value, str) else value


def test_code_describes_the_same_table() -> None:
    assert DEFINITION | {"TableName": STATE_STORE} == _definition()


def test_cloudformation_describes_the_same_table() -> None:
    template = yaml.safe_load((SCHEMA / "state-store.cfn.yaml").read_text())
    [resource] = template["Resources"].values()
    table = resource["Properties"] | {
        "TableName": template["Parameters"]["TableName"]["Default"]
    }

    assert table.pop("DeletionProtectionEnabled") == {"Ref": "DeletionProtection"}
    assert table.pop("PointInTimeRecoverySpecification") == {
        "PointInTimeRecoveryEnabled": {"Ref": "PointInTimeRecovery"}
    }
    for name in ("DeletionProtection", "PointInTimeRecovery"):
        assert template["Parameters"][name]["Default"] == "true"
    assert resource["Type"] == "AWS::DynamoDB::Table"
    assert resource["Properties"]["TableName"] == {"Ref": "TableName"}
    assert table == _definition()


def test_terraform_describes_the_same_table() -> None:
    assert _from_terraform() == _definition()

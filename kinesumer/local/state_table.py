"""The state store's table as CreateTable takes it (schema/ says the same)."""

from __future__ import annotations

from typing import Any

STATE_STORE = "kinesumer-state-store"


def create_table_request(name: str = STATE_STORE) -> dict[str, Any]:
    """Return the CreateTable request of a state store."""
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": attribute, "AttributeType": "S"}
            for attribute in ("pk", "sk", "last_update")
        ],
        "KeySchema": _keys("pk", "sk"),
        "LocalSecondaryIndexes": [
            {
                "IndexName": "index-client-key-last-update",
                "KeySchema": _keys("pk", "last_update"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    }


def _keys(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]

"""The definition of the state store's table, as in schema/state-store.json.

Kinesumer for Go uses the same definition.
"""

from __future__ import annotations

from typing import Any

STATE_STORE = "kinesumer-state-store"
INDEX = "index-client-key-last-update"


def _keys(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


DEFINITION: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": attribute, "AttributeType": "S"}
        for attribute in ("pk", "sk", "last_update")
    ],
    "KeySchema": _keys("pk", "sk"),
    "LocalSecondaryIndexes": [
        {
            "IndexName": INDEX,
            "KeySchema": _keys("pk", "last_update"),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
"""The arguments of CreateTable, except for the name."""

"""Read and write items of the embedded DynamoDB, mostly of a KCL lease table."""

from __future__ import annotations

import json
from typing import Any

from kinesumer.testing import EmbeddedAws
from kinesumer.wire.rows import STATE_STORE

LEASES = "billing-kcl"


def put(aws: EmbeddedAws, *items: dict[str, Any], table: str = STATE_STORE) -> None:
    """Put items into a table."""
    for item in items:
        request = {"TableName": table, "Item": item}
        aws.dynamodb("PutItem", json.dumps(request).encode())


def scan(aws: EmbeddedAws, table: str = STATE_STORE) -> list[dict[str, Any]]:
    """Return all items of a table."""
    body = json.dumps({"TableName": table}).encode()
    items: list[dict[str, Any]] = aws.dynamodb("Scan", body)["Items"]
    return items


def create(aws: EmbeddedAws, *items: dict[str, Any]) -> None:
    """Create the lease table and fill it."""
    definition = {
        "TableName": LEASES,
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    aws.dynamodb("CreateTable", json.dumps(definition).encode())
    put(aws, *items, table=LEASES)


def rows(aws: EmbeddedAws) -> dict[str, Any]:
    """Return the leases by key."""
    return {item["leaseKey"]["S"]: item for item in scan(aws, LEASES)}


def delete(aws: EmbeddedAws, key: str) -> None:
    """Delete a lease."""
    request = {"TableName": LEASES, "Key": {"leaseKey": {"S": key}}}
    aws.dynamodb("DeleteItem", json.dumps(request).encode())


def lease(key: str, checkpoint: str, sub: int = 0, **more: Any) -> dict[str, Any]:
    """Return a lease as KCL 3 writes it."""
    return {
        "leaseKey": {"S": key},
        "leaseOwner": {"S": "worker-1"},
        "leaseCounter": {"N": "7"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        "entityType": {"S": "LEASE"},
        **more,
    }

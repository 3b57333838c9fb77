"""A KCL lease table in the embedded AWS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws

LEASES = "billing-kcl"


def create(aws: EmbeddedAws, *items: dict[str, Any]) -> None:
    """Create the table and fill it."""
    definition = {
        "TableName": LEASES,
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    aws.dynamodb("CreateTable", json.dumps(definition).encode())
    for item in items:
        request = {"TableName": LEASES, "Item": item}
        aws.dynamodb("PutItem", json.dumps(request).encode())


def rows(aws: EmbeddedAws) -> dict[str, Any]:
    """Return the table's rows by key."""
    answer = aws.dynamodb("Scan", json.dumps({"TableName": LEASES}).encode())
    return {item["leaseKey"]["S"]: item for item in answer["Items"]}


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

"""Read and write items of the embedded DynamoDB as KCL or Kinesumer for Go writes them.

The keys and attributes of Kinesumer for Go are those of statemodel.go and statestore.go
in daangn/kinesumer (commits 3e49831 and 32b9a8b), as guregu/dynamo encodes them: a
time.Time as RFC 3339 with nanoseconds in the machine's own zone, a slice of structs as
a list of maps.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from kinesumer.config import STATE_STORE
from kinesumer.testing import EmbeddedAws

LEASES = "billing-kcl"


def put(aws: EmbeddedAws, *items: dict[str, Any], table: str = STATE_STORE) -> None:
    for item in items:
        request = {"TableName": table, "Item": item}
        aws.dynamodb("PutItem", json.dumps(request).encode())


def create(
    aws: EmbeddedAws,
    *items: dict[str, Any],
    table: str = LEASES,
    key: str = "leaseKey",
) -> None:
    """Create the lease table, or another one of the fleet, and fill it."""
    definition = {
        "TableName": table,
        "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    aws.dynamodb("CreateTable", json.dumps(definition).encode())
    put(aws, *items, table=table)


def rows(
    aws: EmbeddedAws, table: str = LEASES, key: str = "leaseKey"
) -> dict[str, Any]:
    items = aws.dynamodb("Scan", json.dumps({"TableName": table}).encode())["Items"]
    return {item[key]["S"]: item for item in items}


def delete(aws: EmbeddedAws, key: str) -> None:
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


SEOUL = timezone(timedelta(hours=9))


def moment(seconds: float) -> dict[str, str]:
    there = datetime.fromtimestamp(seconds, SEOUL)
    return {"S": there.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789+09:00"}


def go_client(app: str, client_id: str, updated: float) -> dict[str, Any]:
    return {
        "pk": {"S": f"client#{app}"},
        "sk": {"S": client_id},
        "last_update": moment(updated),
    }


def go_shard_cache(app: str, stream: str, *shard_ids: str) -> dict[str, Any]:
    shards = [{"M": {"ID": {"S": id_}, "Closed": {"BOOL": False}}} for id_ in shard_ids]
    return {
        "pk": {"S": f"shard_cache#{app}"},
        "sk": {"S": stream},
        "shards": {"L": shards},
    }


def go_checkpoint(
    app: str, stream: str, shard_id: str, number: str, updated: float
) -> dict[str, Any]:
    return {
        "pk": {"S": f"check_point#{app}#{stream}"},
        "sk": {"S": shard_id},
        "sequence_number": {"S": number},
        "last_update": moment(updated),
    }

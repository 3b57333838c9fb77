"""Create rows as Kinesumer for Go writes them, in DynamoDB's JSON.

Keys and attributes are those of statemodel.go and statestore.go in daangn/kinesumer
(commits 3e49831 and 32b9a8b), as guregu/dynamo encodes them: a time.Time as RFC 3339
with nanoseconds in the machine's own zone, a slice of structs as a list of maps.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

SEOUL = timezone(timedelta(hours=9))


def moment(seconds: float) -> dict[str, str]:
    there = datetime.fromtimestamp(seconds, SEOUL)
    return {"S": there.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789+09:00"}


def client(app: str, client_id: str, updated: float) -> dict[str, Any]:
    return {
        "pk": {"S": f"client#{app}"},
        "sk": {"S": client_id},
        "last_update": moment(updated),
    }


def shard_cache(app: str, stream: str, *shard_ids: str) -> dict[str, Any]:
    shards = [{"M": {"ID": {"S": id_}, "Closed": {"BOOL": False}}} for id_ in shard_ids]
    return {
        "pk": {"S": f"shard_cache#{app}"},
        "sk": {"S": stream},
        "shards": {"L": shards},
    }


def checkpoint(
    app: str, stream: str, shard_id: str, number: str, updated: float
) -> dict[str, Any]:
    return {
        "pk": {"S": f"check_point#{app}#{stream}"},
        "sk": {"S": shard_id},
        "sequence_number": {"S": number},
        "last_update": moment(updated),
    }

"""Rows of the state store, the functions that read them, and numbers like AWS's."""

from __future__ import annotations

from collections.abc import Callable

from kinesumer.model.rows import Row
from kinesumer.wire import rows

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
TIP_AT = 1795219200.25
OTHER = "arn:aws:kinesis:us-east-1:210987654321:stream/orders"
MEMBER: Row = {
    "pk": "member#app",
    "sk": "client-1",
    "session": "s1",
    "incarnation": 2,
    "beat": 7,
    "lease_ms": 8000,
    "weight": 3,
    "label": "us-east-1a",
    "max_shards": 20,
    "state": "leaving",
    "dead": True,
    "streams": frozenset({ARN, OTHER}),
    "index": 1,
    "range": "0:0-7f,1:80-",
    "keeps": frozenset({OTHER}),
    "clients": 4,
    "leader_epoch": 5,
    "plan_version": 6,
    "last_update": "2026-11-21T00:00:00.000Z",
}
MEMBER_STREAMS = frozenset({ARN, OTHER})
SHARD: Row = {
    "pk": f"shard#app#{ARN}",
    "sk": f"{16:032x}/shardId-000000000001",
    "last_hash": f"{31:032x}",
    "start": "AT_TIMESTAMP 1.5",
    "parents": frozenset({"shardId-000000000000"}),
    "epoch": 3,
    "owner": "s1",
    "owner_id": "client-1",
    "claim": "nonce",
    "sequence_number": "49",
    "sub_sequence_number": 2,
    "ended": True,
    "ready": True,
    "tip": "2026-11-21T00:00:00.250Z 49:2",
}
LEADER: Row = {
    "pk": "leader#app",
    "sk": "leader",
    "session": "s1",
    "client_id": "client-1",
    "leader_epoch": 2,
    "plan_version": 9,
    "assignor": "load",
    "rebalance_ms": 20_000,
    "planned_at": 1_790_000_000_250,
}
STREAM: Row = {
    "pk": "group#app",
    "sk": f"stream#{ARN}",
    "stream_created_at": "1700000000.25",
    "start": "LATEST",
    "baseline": True,
}
GROUP: Row = {"pk": "group#app", "sk": "group", "group_id": "g1", "version": 1}
READERS: dict[str, tuple[Callable[[Row], object], Row]] = {
    "member": (rows.read_member, MEMBER),
    "shard": (rows.read_shard, SHARD),
    "leader": (rows.read_leader, LEADER),
    "stream": (rows.read_stream, STREAM),
}


CREATED_AT = 0x5BF4E5C2
"""The time in seconds at which the shards were created."""


def aws_number(shard: int, taken: int, counter: int) -> str:
    """Return the number of a record that AWS took at a time, given in seconds."""
    hexa = f"2{CREATED_AT:09x}{shard % 16:x}{counter:016x}00{taken:09x}{shard:08x}2"
    return str(int(hexa, 16))

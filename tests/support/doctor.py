"""Observations of a healthy app for tests of the doctor, and changes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.admin.doctor.observation import AppObservation, StreamObservation
from kinesumer.admin.lag_trend import ArrivalSample, LagSample
from kinesumer.admin.snapshot import Snapshot
from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import (
    HASH_KEYS,
    Interval,
    Shard,
    ShardKey,
    Start,
    StreamInfo,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
OTHER = "arn:aws:kinesis:us-east-1:000000000000:stream/clicks"
HALF = HASH_KEYS // 2
KEYS = [ShardKey(ARN, "shardId-0"), ShardKey(ARN, "shardId-1")]
BOUNDS = [(0, HALF - 1), (HALF, HASH_KEYS - 1)]


def member(name: str, first: int = 0, last: int = HASH_KEYS - 1, **more: Any) -> Any:
    fields: dict[str, Any] = {
        "index": 0,
        "range": (Interval(ARN, first, last),),
        "streams": frozenset({ARN}),
        **more,
    }
    return MemberRow(name, f"session of {name}", **fields)


def row(number: int, owner: str = "a", **more: Any) -> ShardRow:
    fields: dict[str, Any] = {"ready": True, "epoch": 1, **more}
    if owner:
        fields |= {"owner": f"session of {owner}", "owner_id": owner}
    return ShardRow(KEYS[number], *BOUNDS[number], Start.TRIM_HORIZON, **fields)


def found(
    rows: Sequence[ShardRow] = (), members: Sequence[MemberRow] = (), **more: Any
) -> Snapshot:
    fields: dict[str, Any] = {
        "members": list(members) or [member("a")],
        "leader": LeaderRow("session of a", "a", 1),
        "streams": [StreamRow(ARN, 1.0, Start.TRIM_HORIZON, baseline=True)],
        "shards": {ARN: list(rows) or [row(0), row(1)]},
        **more,
    }
    return Snapshot(**fields)


def listed(**more: Any) -> StreamObservation:
    fields: dict[str, Any] = {
        "info": StreamInfo(ARN, "ACTIVE", 1.0, 24, 1000.0),
        "listing": [Shard(k.shard_id, *b) for k, b in zip(KEYS, BOUNDS, strict=True)],
        "first": {key: look(0, 100) for key in KEYS},
        "second": {key: look(10, 100) for key in KEYS},
        "arriving": {key.shard_id: ArrivalSample(100, 10_000, 10.0) for key in KEYS},
        **more,
    }
    return StreamObservation(**fields)


def look(
    at: float, millis: int | None, after: Start = Start.LATEST, **more: Any
) -> LagSample:
    return LagSample(at, millis, after, **more)


def seen(
    first: Snapshot | None = None, second: Snapshot | None = None, **more: Any
) -> AppObservation:
    """Return an observation of a healthy app, or of the given snapshots."""
    early = first or found()
    fields: dict[str, Any] = {
        "app": "billing",
        "first": early,
        "second": second or first or found(),
        "seconds": 10.0,
        "heartbeat_ages": {"session of a": 0.5},
        "streams": {ARN: listed()},
        **more,
    }
    return AppObservation(**fields)

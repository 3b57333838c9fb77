"""Build rows and observations of a healthy app, which tests then change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import (
    HASH_KEYS,
    Interval,
    Shard,
    ShardKey,
    Start,
    StreamInfo,
)
from kinesumer.ops.group.doctor.observation import AppObservation, StreamObservation
from kinesumer.ops.group.problems import Finding, Severity
from kinesumer.ops.group.shard_reads import ArrivalSample, LagSample
from kinesumer.ops.group.snapshot import Snapshot

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
        "session": f"session of {name}",
        **more,
    }
    return MemberRow(name, **fields)


def row(number: int, owner: str = "a", **more: Any) -> ShardRow:
    """Return the row of a shard; even numbers have the lower half of the hash keys."""
    fields: dict[str, Any] = {"ready": True, "epoch": 1, **more}
    if owner:
        fields |= {"owner": f"session of {owner}", "owner_id": owner}
    key = ShardKey(ARN, f"shardId-{number}")
    return ShardRow(key, *BOUNDS[number % 2], Start.TRIM_HORIZON, **fields)


def snapshot(
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


def stream(**more: Any) -> dict[str, StreamObservation]:
    fields: dict[str, Any] = {
        "info": StreamInfo(ARN, "ACTIVE", 1.0, 24, 1000.0),
        "listing": [Shard(k.shard_id, *b) for k, b in zip(KEYS, BOUNDS, strict=True)],
        "first": {key: lag(0, 100) for key in KEYS},
        "second": {key: lag(10, 100) for key in KEYS},
        "arriving": {key.shard_id: ArrivalSample(100, 10_000, 10.0) for key in KEYS},
        **more,
    }
    return {ARN: StreamObservation(**fields)}


def lag(
    at: float, millis: int | None, after: Start = Start.LATEST, **more: Any
) -> LagSample:
    return LagSample(at, millis, after, **more)


def app(
    first: Snapshot | None = None, second: Snapshot | None = None, **more: Any
) -> AppObservation:
    """Return an observation of a healthy app, or of the given snapshots."""
    fields: dict[str, Any] = {
        "app": "billing",
        "first": first or snapshot(),
        "second": second or first or snapshot(),
        "seconds": 10.0,
        "heartbeat_ages": {"session of a": 0.5},
        "streams": stream(),
        **more,
    }
    return AppObservation(**fields)


def check_finding(findings: Iterable[Finding], severity: Severity, text: str) -> None:
    """Check that there is one finding, of that severity, which contains the text."""
    [finding] = findings
    assert finding.severity is severity
    assert text in f"{finding.subject}: {finding.text} → {finding.advice}"

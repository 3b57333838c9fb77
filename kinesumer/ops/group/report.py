"""Define the report of a group: ``status --json``, and what every view is made of.

docs/status-json.md describes its fields. ``status`` computes it once for each reading.
The tables, the dashboard and the metrics are functions of it.
"""

from __future__ import annotations

import msgspec

from kinesumer.ops.group.failures import Failures
from kinesumer.ops.group.fan_out import ConsumerUse
from kinesumer.ops.group.incidents import IncidentReport
from kinesumer.ops.group.loads import Rates
from kinesumer.ops.group.plan_reasons import PlanReport


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the report."""


class RangeReport(_Part, frozen=True, kw_only=True):
    """A contiguous range of hash keys that the plan gives to a client."""

    stream_arn: str
    first_hash: str
    last_hash: str


class MemberReport(_Part, frozen=True, kw_only=True):
    """A client that isn't marked dead."""

    client_id: str
    kind: str
    session: str
    index: int | None
    leader: bool
    state: str
    states: list[str]  # ``up``, or some of silent, degraded, leaving, drained, joining
    drained: bool
    heartbeat: int
    heartbeat_unchanged_seconds: float | None
    heartbeat_late_seconds: float
    stalled: bool
    last_update: str
    weight: int
    label: str
    max_shards: int | None
    streams: list[str]
    range: list[RangeReport] | None
    shards: int
    millis_behind_latest: int | None
    caught_up: bool | None
    load: Rates | None
    load_share: float | None
    incidents: list[IncidentReport]
    failures: Failures | None


class ShardReport(_Part, frozen=True, kw_only=True):
    """A shard, its owners and its position."""

    shard_id: str
    first_hash: str
    last_hash: str
    share: float
    state: str
    paused: str | None
    pause_reason: str | None
    owner: str | None
    planned_owner: str | None
    epoch: int
    isolated: bool
    poison: str | None
    sequence_number: str | None
    sub_sequence_number: int | None
    parents: list[str]
    millis_behind_latest: int | None
    caught_up: bool | None
    load: Rates | None
    hot: bool

    @property
    def is_unconsumed(self) -> bool:
        """True if no live client owns the shard, although it isn't paused."""
        return self.state in ("unowned", "orphaned") and self.paused is None


class StreamReport(_Part, frozen=True, kw_only=True):
    """A stream that the app has rows of."""

    stream_arn: str
    start: str
    baseline: bool
    paused: bool
    pause_reason: str | None
    retention_hours: int | None
    lag_problem: str | None
    millis_behind_latest: int | None
    caught_up: bool | None
    fan_out: list[ConsumerUse]
    failures: Failures | None
    states: dict[str, int]
    unassignable_shards: int
    shards: list[ShardReport]


class GroupReport(_Part, frozen=True, kw_only=True):
    """A group as one reading shows it."""

    app: str
    table: str
    leader: str | None
    paused: bool
    pause_reason: str | None
    plan: PlanReport
    members: list[MemberReport]
    streams: list[StreamReport]
    problems: list[str]

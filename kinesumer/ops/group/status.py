"""Compute the report of a group: ``status --json``, and what every view is made of.

docs/status-json.md describes its fields. ``report`` computes it once for each reading.
The tables, the dashboard and the metrics are functions of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.model.rows import CLIENT, GroupRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, stream_name
from kinesumer.ops.group.client_reports import (
    ConsumerUse,
    Failures,
    IncidentReport,
    failures_of,
    incident_reports,
    uses_of_stream,
)
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.lag import read_lags
from kinesumer.ops.group.loads import PlanReport, Rates, rates
from kinesumer.ops.group.observation import (
    FleetView,
    HeartbeatObserver,
    Observation,
    observe,
    stall_limit_seconds,
)
from kinesumer.ops.group.problems import INCIDENTS, Finding, find_problems
from kinesumer.ops.group.snapshot import Snapshot, read_known_snapshot
from kinesumer.ports import StateStore
from kinesumer.wire import rows as wire


class RangeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A contiguous range of hash keys that the plan gives to a client."""

    stream_arn: str
    first_hash: str
    last_hash: str


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
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


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
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
    stuck: bool
    unowned_seconds: float | None

    @property
    def is_unconsumed(self) -> bool:
        """True if no live client owns the shard, although it isn't paused."""
        return self.state in ("unowned", "orphaned") and self.paused is None


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
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


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
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
    unreadable_rows: list[str]


class StatusQuery:
    """A status query that remembers heartbeats and shards between its reads."""

    def __init__(
        self, app: str, table: str, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self._about, self._roles, self._lag = (app, table), roles, lag
        self._heartbeats = HeartbeatObserver(app)
        self._before: Observation | None = None

    async def read(self, clients: ClientFactory, store: StateStore) -> GroupReport:
        """Read rows, heartbeats and lags; return the report. Raises KinesumerError."""
        snapshot = await read_known_snapshot(store, *self._about)
        now, shards = time.monotonic(), snapshot.shards if self._lag else {}
        ages, lags = await asyncio.gather(
            self._heartbeats.watch(store, snapshot),
            read_lags(clients, shards, self._roles),
        )
        self._before = observe(self._before, snapshot, lags, now)
        return report(*self._about, replace(self._before, heartbeat_ages=ages))


def report(app: str, table: str, fleet: FleetView) -> GroupReport:
    """Return the report of a group as it was read (docs/status-json.md)."""
    snapshot = fleet.snapshot
    streams = [_stream(stream, fleet) for stream in snapshot.streams]
    lags, pause_reason = _session_lags(fleet), _pause_reason(snapshot.group)
    return GroupReport(
        app=app,
        table=table,
        leader=snapshot.leader_id,
        paused=pause_reason is not None,
        pause_reason=pause_reason,
        plan=fleet.plan,
        members=[_member(member, fleet, lags) for member in snapshot.alive],
        streams=streams,
        problems=[
            *snapshot.corrupt,
            *_group_problems(snapshot),
            *map(_text, find_problems(fleet, app)),
            *(
                f"stream {stream_name(stream.stream_arn)}: {text}"
                for stream in streams
                for text in _stream_problems(stream)
            ),
        ],
        unreadable_rows=list(snapshot.corrupt),
    )


def _pause_reason(row: GroupRow | StreamRow | None) -> str | None:
    """Return an operator's reason, empty if none was given; None without a pause."""
    return row.pause_reason if row is not None and row.paused else None


def _session_lags(fleet: FleetView) -> dict[str, int]:
    """Return the largest lag of each session's shards."""
    lags: dict[str, int] = {}
    for row in fleet.snapshot.rows:
        if row.owner and row.key in fleet.lags.millis:
            lag = fleet.lags.millis[row.key]
            lags[row.owner] = max(lags.get(row.owner, 0), lag)
    return lags


def _member(
    member: MemberRow, fleet: FleetView, lags: Mapping[str, int]
) -> MemberReport:
    age, lag = fleet.heartbeat_ages.get(member.session), lags.get(member.session)
    expected = fleet.expected_lag_millis(member.session)
    ranges = [
        RangeReport(
            stream_arn=arn,
            first_hash=wire.hash_text(first),
            last_hash=wire.hash_text(last),
        )
        for arn, first, last in member.range or ()
    ]
    return MemberReport(
        client_id=member.client_id,
        kind=member.kind,
        session=member.session,
        index=member.index,
        leader=member.client_id == fleet.snapshot.leader_id,
        state=member.state,
        states=fleet.states(member),
        drained=member.drained,
        heartbeat=member.beat,
        heartbeat_unchanged_seconds=None if age is None else round(age, 1),
        heartbeat_late_seconds=stall_limit_seconds(member),
        stalled=fleet.is_stalled(member),
        last_update=member.last_update,
        weight=member.weight,
        label=member.label,
        max_shards=member.max_shards,
        streams=sorted(member.streams),
        range=None if member.range is None else ranges,
        shards=fleet.snapshot.owned[member.session],
        millis_behind_latest=lag,
        caught_up=None if lag is None else lag <= expected,
        load=rates(fleet.loads.of_member(member)),
        load_share=fleet.loads.share(member),
        incidents=incident_reports(member),
        failures=failures_of([member]),
    )


def _stream(stream: StreamRow, fleet: FleetView) -> StreamReport:
    arn, lags, alive = stream.arn, fleet.lags, fleet.snapshot.alive
    rows, pause_reason = fleet.snapshot.shards[arn], _pause_reason(stream)
    return StreamReport(
        stream_arn=arn,
        start=wire.start_text(stream.start),
        baseline=stream.baseline,
        paused=pause_reason is not None,
        pause_reason=pause_reason,
        retention_hours=lags.retention_hours.get(arn),
        lag_problem=lags.problems.get(arn),
        millis_behind_latest=fleet.millis_behind(arn),
        caught_up=fleet.caught_up(rows),
        fan_out=uses_of_stream(alive, arn),
        failures=failures_of(alive, arn),
        states=dict(Counter(sorted(map(fleet.snapshot.state, rows)))),
        unassignable_shards=len(fleet.snapshot.unassignable(arn)),
        shards=[_shard(row, fleet, _share(row, rows)) for row in rows],
    )


def _share(row: ShardRow, rows: Sequence[ShardRow]) -> float:
    """Return a shard's share of the hash keys.

    The shards of a table's stream have none: those that aren't ended share equally.
    """
    if row.first_hash == row.last_hash:
        return 0.0 if row.ended else 1 / sum(not each.ended for each in rows)
    return (row.last_hash - row.first_hash + 1) / HASH_KEYS


def _shard(row: ShardRow, fleet: FleetView, share: float) -> ShardReport:
    position, pause = row.position, fleet.snapshot.pause(row)
    unowned = fleet.unconsumed_ages.get(row.key)
    return ShardReport(
        shard_id=row.key.shard_id,
        first_hash=wire.hash_text(row.first_hash),
        last_hash=wire.hash_text(row.last_hash),
        share=round(share, 6),
        state=fleet.snapshot.state(row),
        paused=pause.scope if pause else None,
        pause_reason=pause.reason if pause else None,
        owner=row.owner_id or None,
        planned_owner=fleet.snapshot.planned.get(row.key),
        epoch=row.epoch,
        isolated=row.is_isolated,
        poison=row.poison.text if row.poison else None,
        sequence_number=position.sequence_number if position else None,
        sub_sequence_number=position.sub_sequence_number if position else None,
        parents=sorted(row.parents),
        millis_behind_latest=fleet.lags.millis.get(row.key),
        caught_up=fleet.caught_up([row]),
        load=rates(fleet.loads.of_shards.get(row.key)),
        hot=row.key in fleet.loads.hot_shards,
        stuck=row.key in fleet.stuck,
        unowned_seconds=None if unowned is None else round(unowned, 1),
    )


# --- problems -------------------------------------------------------------------------


def _text(finding: Finding) -> str:
    """Return a finding as a sentence; an incident's advice says how to end it."""
    subject = finding.subject
    if subject.startswith("arn:"):
        subject = f"stream {stream_name(subject)}"
    advice = f" {finding.advice}" if finding.check == INCIDENTS else ""
    return f"{subject}: {finding.text}{advice}"


def _group_problems(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.resetting:
        yield (
            "a reset of the app isn't complete, and clients can't start: if no other "
            "operator runs it now, run kinesumer reset again"
        )
    # A Spark query is alone in its group and needs no leader.
    has_clients = any(member.kind == CLIENT for member in snapshot.alive)
    if has_clients and not snapshot.leader_id:
        yield "no client leads"
    if snapshot.alive and all(member.drained for member in snapshot.alive):
        yield "all clients are drained: no client may consume"


def _stream_problems(stream: StreamReport) -> Iterator[str]:
    if stream.lag_problem:
        yield f"lag unknown: {stream.lag_problem}"
    if not stream.baseline:
        yield "its shards haven't been listed completely yet"
    if count := stream.unassignable_shards:
        shards = "1 shard isn't" if count == 1 else f"{count} shards aren't"
        yield (
            f"{shards} read, because all clients own their max_shards: start more "
            "clients, or raise max_shards"
        )
        return  # these are all shards without an owner
    # Shards with the same state and owners share one line.
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for shard in stream.shards:
        if shard.is_unconsumed:
            owner = f" (owner {shard.owner} is dead)" if shard.owner else ""
            planned = shard.planned_owner or "no client"
            groups[shard.state, owner, planned].append(shard.shard_id)
    for (state, owner, planned), ids in groups.items():
        which = f"{len(ids)} shards ({ids[0]}, …) are" if ids[1:] else f"{ids[0]} is"
        yield f"{which} {state}{owner}; planned for {planned}"

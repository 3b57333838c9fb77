"""The conditional writes to the rows of members, of the leader, and of the group.

Each write has a condition on its row. So a write that arrives late, twice, or from a
client that was declared dead changes nothing. ``shard_writes`` has those of shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from kinesumer.model.rows import (
    DEFAULT_COMMIT_MS,
    QUERY,
    AppRow,
    LeaderRow,
    Liveness,
    LivenessRow,
    MemberRow,
    StreamRow,
    Value,
)
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Interval, Range
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.wire import rows
from kinesumer.wire.reports import REPORTS

# The row's session isn't marked dead.
ALIVE = AnyOf(Compare("dead", "absent"), Compare("dead", "=", False))


def register(
    app: str, member: MemberRow, replaced: MemberRow | LivenessRow | None, moment: str
) -> Write:
    """Create a new session's row, or replace the row of a dead session."""
    condition: Condition = Compare("pk", "absent")
    if replaced is not None:
        condition = AllOf(
            is_dead(replaced), as_read("incarnation", replaced.incarnation)
        )
    values: dict[str, Value] = {
        "session": member.session,
        "incarnation": member.incarnation,
        "beat": 0,
        "lease_ms": member.lease_ms,
        "weight": member.weight,
        "state": member.state,
        "dead": False,
        "streams": member.streams,
        "last_update": moment,
    }
    is_usual = member.commit_ms == DEFAULT_COMMIT_MS
    optional: dict[str, Value | None] = {
        "label": member.label or None,
        "max_shards": member.max_shards,
        "commit_ms": None if is_usual else member.commit_ms,
        "drained": member.drained or None,
        "fan_out": rows.fan_out_text(member.fan_out, member.streams) or None,
    }
    values |= {name: value for name, value in optional.items() if value is not None}
    if member.kind == QUERY:
        # A query writes its own range, with all shards: no leader plans for it.
        whole = (Interval(arn, 0, HASH_KEYS - 1) for arn in sorted(member.streams))
        range_ = rows.range_text(tuple(whole), member.streams)
        values.update(kind=QUERY, index=0, range=range_)
    # Replace the whole row, so that nothing of the dead session's plan remains.
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, values, replace=True)


def heartbeat(
    app: str,
    member: MemberRow,
    beat: int,
    *,
    state: str,
    lease_ms: int,
    moment: str | None = None,
    fan_out: Mapping[str, FanOutUse] | None = None,
    reports: Mapping[str, str] | None = None,
) -> Write:
    """Increase the beat by one. Repeating the same beat is accepted.

    ``fan_out`` and ``reports`` are stored if they differ from those in ``member``.
    ``reports`` are texts by their attributes' names.
    """
    condition = AllOf(
        Compare("session", "=", member.session),
        ALIVE,
        # The same beat may be stored already, by an attempt whose response was lost.
        AnyOf(Compare("beat", "=", beat - 1), Compare("beat", "=", beat)),
    )
    values: dict[str, Value] = {"beat": beat, "state": state, "lease_ms": lease_ms}
    if moment is not None:
        values["last_update"] = moment
    changed: dict[str, str] = {}
    if fan_out is not None:
        text = rows.fan_out_text(fan_out, member.streams)
        if text != rows.fan_out_text(member.fan_out, member.streams):
            changed["fan_out"] = text
    changed |= {
        name: text
        for name, text in (reports or {}).items()
        if text != getattr(member, name)
    }
    values |= {name: text for name, text in changed.items() if text}
    remove = tuple(name for name, text in changed.items() if not text)
    return Write(rows.member_key(app, member.client_id), condition, values, remove)


def request_streams(app: str, member: MemberRow, streams: frozenset[str]) -> Write:
    """Change the streams that a session requests, and remove its range.

    The next plan sets the range.
    """
    condition = AllOf(Compare("session", "=", member.session), ALIVE)
    key = rows.member_key(app, member.client_id)
    # These attributes name streams by their index. The next heartbeat writes all but
    # the range again.
    removed = ("range", "fan_out", *REPORTS)
    return Write(key, condition, {"streams": streams}, remove=removed)


def fence(app: str, member: Liveness, moment: str) -> Write:
    """Mark a session dead if its beat hasn't changed since it was observed."""
    condition = AllOf(
        Compare("pk", "exists"),
        as_read("session", member.session),
        as_read("beat", member.beat),
        ALIVE,
    )
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def leave(app: str, member: MemberRow, moment: str) -> Write:
    """Mark the caller's own session dead."""
    # The condition doesn't require that the session is alive: if it was fenced
    # meanwhile, it may be marked dead again.
    condition = Compare("session", "=", member.session)
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def lead(
    app: str, member: MemberRow, before: LeaderRow | None, known_epoch: int = 0
) -> Write:
    """Become the leader if there is none, or if the leader ``before`` is dead.

    ``known_epoch`` is the latest epoch that members know. They ignore earlier epochs,
    which matters if the leader's row was deleted.
    """
    condition: Condition = Compare("pk", "absent")
    if before is not None:
        condition = Compare("session", "=", before.session)
    values: dict[str, Value] = {
        "session": member.session,
        "client_id": member.client_id,
        "leader_epoch": 1 + (before.leader_epoch if before else known_epoch),
        "plan_version": before.plan_version if before else 0,
    }
    return Write(rows.leader_key(app), condition, values)


def publish(
    app: str,
    leader: LeaderRow,
    plan_version: int,
    *,
    assignor: str,
    rebalance_seconds: float,
    now: float,
) -> Write:
    """Publish a new plan's version and origin if this session still leads.

    ``now`` is in seconds since 1970. Only operators' commands need the origin.
    """
    # A late copy of an earlier plan's write must fail, and a repeated one must not.
    condition = AllOf(
        Compare("session", "=", leader.session),
        Compare("leader_epoch", "=", leader.leader_epoch),
        Compare("plan_version", "<=", plan_version),
    )
    values: dict[str, Value] = {
        "plan_version": plan_version,
        "assignor": assignor,
        "rebalance_ms": round(1000 * rebalance_seconds),
        "planned_at": floor(1000 * now),
    }
    return Write(rows.leader_key(app), condition, values)


def assign(
    app: str,
    member: MemberRow,
    leader: LeaderRow,
    *,
    index: int,
    range_: Range,
    clients: int,
    syncs: frozenset[str],
) -> Write:
    """Write a member's part of a plan if the plan is newer than the member's."""
    epoch, version = leader.leader_epoch, leader.plan_version
    # A former leader's write may arrive after the new leader's plan, and must fail.
    newer = AnyOf(
        Compare("leader_epoch", "absent"),
        Compare("leader_epoch", "<", epoch),
        AllOf(
            Compare("leader_epoch", "=", epoch), Compare("plan_version", "<", version)
        ),
    )
    # The range names streams by index in the member's list, so the list must match.
    condition = AllOf(
        Compare("session", "=", member.session),
        ALIVE,
        Compare("streams", "=", member.streams),
        newer,
    )
    values: dict[str, Value] = {
        "index": index,
        "range": rows.range_text(range_, member.streams),
        "clients": clients,
        "leader_epoch": epoch,
        "plan_version": version,
    }
    key = rows.member_key(app, member.client_id)
    if syncs:
        return Write(key, condition, values | {"keeps": syncs})
    return Write(key, condition, values, remove=("keeps",))


def create_group(app: str, group_id: str) -> Write:
    """Create the row with the app's identity."""
    values: dict[str, Value] = {"group_id": group_id, "version": 1}
    return Write(rows.group_key(app), Compare("pk", "absent"), values)


def create_stream(app: str, stream: StreamRow) -> Write:
    """Create a stream's row with its identity and its resolved start."""
    values: dict[str, Value] = {
        "stream_created_at": repr(stream.created_at),
        "start": rows.start_text(stream.start),
        "baseline": stream.baseline,
    }
    return Write(rows.stream_key(app, stream.arn), Compare("pk", "absent"), values)


def baseline(app: str, stream: StreamRow) -> Write:
    """Record that all initial shards of a stream have rows."""
    key = rows.stream_key(app, stream.arn)
    condition = Compare("stream_created_at", "=", repr(stream.created_at))
    return Write(key, condition, {"baseline": True})


def prune_member(app: str, member: MemberRow | LivenessRow) -> Write:
    """Delete a dead member's row if it hasn't changed."""
    condition = AllOf(
        is_dead(member),
        # The client may have registered and died again since the row was read.
        as_read("session", member.session),
        Compare("last_update", "=", member.last_update),
    )
    return Write(rows.member_key(app, member.client_id), condition, delete=True)


def announce(
    app: str, streams: frozenset[str], stored: AppRow | None, wall: float
) -> Write:
    """Tell other apps which streams the app polls, unless ``stored`` has changed."""
    before = None if stored is None else round(1000 * stored.updated_at)
    values: dict[str, Value] = {"streams": streams, "updated_at": round(1000 * wall)}
    return Write(rows.app_key(app), as_read("updated_at", before), values)


def as_read(attribute: str, value: Value | None) -> Condition:
    """Return the condition that an attribute is unchanged, or still missing."""
    if value is None:
        return Compare(attribute, "absent")
    return Compare(attribute, "=", value)


def is_dead(member: MemberRow | LivenessRow) -> Condition:
    """Return the condition that the row is marked dead, with the mark as read."""
    # In a row written by hand, the mark may have any value.
    value = member.dead_value if member.dead else None
    return Compare("dead", "=", True if value is None else value)

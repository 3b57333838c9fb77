"""The conditional writes of clients, with one function for each kind of write.

Each write has a condition on its row. So a write that arrives late, twice, or from a
client that was declared dead changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import (
    DEFAULT_COMMIT_MS,
    QUERY,
    Key,
    LeaderRow,
    Liveness,
    LivenessRow,
    MemberRow,
    ShardRow,
    StreamRow,
    Value,
)
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Interval, Range
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.wire import rows
from kinesumer.wire.conditions import (
    ALIVE,
    as_read,
    is_dead,
    is_greater,
    is_owned,
    is_same,
)
from kinesumer.wire.row_size import REPORTS


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
    if member.label:
        values["label"] = member.label
    if member.max_shards is not None:
        values["max_shards"] = member.max_shards
    if member.commit_ms != DEFAULT_COMMIT_MS:
        values["commit_ms"] = member.commit_ms
    if member.drained:
        values["drained"] = True
    if member.fan_out:
        values["fan_out"] = rows.fan_out_text(member.fan_out, member.streams)
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
    condition = AllOf(
        Compare("session", "=", leader.session),
        Compare("leader_epoch", "=", leader.leader_epoch),
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


def create_shard(app: str, shard: ShardRow) -> Write:
    """Create a shard's row if it doesn't exist."""
    values: dict[str, Value] = {
        "last_hash": rows.hash_text(shard.last_hash),
        "start": rows.start_text(shard.start),
        "epoch": shard.epoch,
        "ended": shard.ended,
        "ready": shard.ready,
    }
    if shard.parents:
        values["parents"] = shard.parents
    if shard.position is not None:
        values.update(position_values(shard.position))
    return Write(shard_row_key(app, shard), Compare("pk", "absent"), values)


def ready(app: str, shard: ShardRow) -> Write:
    """Allow claims of a shard after all its parents have ended.

    The row ``shard`` must be read before the parents' rows. If a seek reopens the
    parents after that, it also raises the shard's epoch, so that this write fails.
    """
    condition = Compare("epoch", "=", shard.epoch)
    return Write(shard_row_key(app, shard), condition, {"ready": True})


def claim(
    app: str, shard: ShardRow, member: MemberRow, nonce: str, owner: str = ""
) -> Write:
    """Claim a shard that has no owner, or that ``owner`` owns.

    ``owner`` is a session that was proved dead, or the caller's own session. After a
    seek, the row still names the caller, though it has stopped reading the shard.
    """
    absent = Compare("owner", "absent")
    free = AnyOf(absent, Compare("owner", "=", owner)) if owner else absent
    condition = AllOf(
        Compare("ready", "=", True),
        Compare("ended", "=", False),
        Compare("epoch", "=", shard.epoch),
        # The pause may have been stored after the caller read the row.
        Compare("paused", "absent"),
        free,
    )
    values: dict[str, Value] = {
        "owner": member.session,
        "owner_id": member.client_id,
        "claim": nonce,
        "epoch": shard.epoch + 1,
    }
    return Write(shard_row_key(app, shard), condition, values)


def commit(
    app: str, shard: ShardRow, position: Position, tip: Tip | None = None
) -> Write:
    """Move the checkpoint forward if the owner and epoch are those of ``shard``."""
    condition = AllOf(*is_owned(shard), is_greater(position))
    # The former position may be in an aggregate. Remove its sub-sequence number, which
    # doesn't belong to the new position.
    removed = ("sub_sequence_number",) if position.sub_sequence_number is None else ()
    values = position_values(position)
    if tip is not None:
        values["tip"] = rows.tip_text(tip)
    return Write(shard_row_key(app, shard), condition, values, removed)


def note_tip(app: str, shard: ShardRow, tip: Tip) -> Write:
    """Store how far a quiet shard has been read.

    Its next owner then knows that nothing was lost.
    """
    values: dict[str, Value] = {"tip": rows.tip_text(tip)}
    return Write(shard_row_key(app, shard), AllOf(*is_owned(shard)), values)


def release(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Release a shard, and store its last position in the same write."""
    return _give_up(app, shard, position, {})


def mark_ended(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Mark a closed shard as ended after all its records are done."""
    return _give_up(app, shard, position, {"ended": True})


def reopen(app: str, shard: ShardRow) -> Write:
    """Let a shard be read again from its position, because its end was wrong."""
    condition = AllOf(Compare("epoch", "=", shard.epoch), Compare("ended", "=", True))
    return Write(shard_row_key(app, shard), condition, {"ended": False})


def prune_member(app: str, member: MemberRow | LivenessRow) -> Write:
    """Delete a dead member's row if it hasn't changed."""
    condition = AllOf(
        is_dead(member),
        # The client may have registered and died again since the row was read.
        as_read("session", member.session),
        Compare("last_update", "=", member.last_update),
    )
    return Write(rows.member_key(app, member.client_id), condition, delete=True)


def prune_shard(app: str, shard: ShardRow) -> Write:
    """Delete the row of an ended shard, which Kinesis no longer lists."""
    return Write(shard_row_key(app, shard), Compare("ended", "=", True), delete=True)


def _give_up(
    app: str, shard: ShardRow, position: Position | None, values: dict[str, Value]
) -> Write:
    parts: tuple[Condition, ...] = is_owned(shard)
    remove = ["owner", "owner_id", "claim"]
    if position is not None:
        # An equal position is accepted: its commit may have come before this write.
        parts += (AnyOf(is_greater(position), is_same(position)),)
        values = values | position_values(position)
        if position.sub_sequence_number is None:
            remove.append("sub_sequence_number")
    return Write(shard_row_key(app, shard), AllOf(*parts), values, tuple(remove))


def shard_row_key(app: str, shard: ShardRow) -> Key:
    """Return the key of a shard's row."""
    return rows.shard_key(app, shard.key, shard.first_hash)


def position_values(position: Position) -> dict[str, Value]:
    """Return a position as attributes."""
    values: dict[str, Value] = {"sequence_number": position.sequence_number}
    if position.sub_sequence_number is not None:
        values["sub_sequence_number"] = position.sub_sequence_number
    return values

"""Conditional writes of clients, one function for each line of section 4.

Each write has a condition on its row. So a write that arrives late, twice, or from a
client that was declared dead changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.rows import QUERY, Value
from kinesumer.model.streams import HASH_KEYS, Interval
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.model.positions import Position, Tip
    from kinesumer.model.rows import (
        Key,
        LeaderRow,
        Liveness,
        LivenessRow,
        MemberRow,
        ShardRow,
        StreamRow,
    )
    from kinesumer.model.streams import Range

ALIVE = AnyOf((Compare("dead", "absent"), Compare("dead", "=", False)))
"""Condition that the row's session isn't marked dead."""


def register(
    app: str, member: MemberRow, replaced: MemberRow | LivenessRow | None, moment: str
) -> Write:
    """Create a new session's row, or replace the row of a dead session."""
    condition: Condition = Compare("pk", "absent")
    if replaced is not None:
        condition = AllOf(
            (
                _dead(replaced),
                as_read("incarnation", replaced.incarnation),
            )
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
    if member.drained:
        values["drained"] = True
    if member.kind == QUERY:
        # No leader plans for a query: it writes its range itself, with all shards.
        whole = (Interval(arn, 0, HASH_KEYS - 1) for arn in sorted(member.streams))
        range_ = rows.range_text(tuple(whole), member.streams)
        values.update(kind=QUERY, index=0, range=range_)
    return Write(
        rows.member_key(app, member.client_id), condition, values, replace=True
    )


def heartbeat(
    app: str,
    member: MemberRow,
    beat: int,
    *,
    state: str,
    lease_ms: int,
    moment: str | None = None,
) -> Write:
    """Increase the beat by one. Repeating the same beat is accepted."""
    condition = AllOf(
        (
            Compare("session", "=", member.session),
            ALIVE,
            AnyOf((Compare("beat", "=", beat - 1), Compare("beat", "=", beat))),
        )
    )
    values: dict[str, Value] = {"beat": beat, "state": state, "lease_ms": lease_ms}
    if moment is not None:
        values["last_update"] = moment
    return Write(rows.member_key(app, member.client_id), condition, values)


def request_streams(app: str, member: MemberRow, streams: frozenset[str]) -> Write:
    """Change the streams that a session requests, and remove its range.

    The next plan sets the range.
    """
    condition = AllOf((Compare("session", "=", member.session), ALIVE))
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"streams": streams}, remove=("range",))


def fence(app: str, member: Liveness, moment: str) -> Write:
    """Mark a session dead if its beat hasn't changed since it was observed."""
    condition = AllOf(
        (
            Compare("pk", "exists"),
            as_read("session", member.session),
            as_read("beat", member.beat),
            ALIVE,
        )
    )
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def leave(app: str, member: MemberRow, moment: str) -> Write:
    """Mark the caller's own session dead."""
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


def publish(app: str, leader: LeaderRow, plan_version: int) -> Write:
    """Publish a new plan's version if this session still leads."""
    condition = AllOf(
        (
            Compare("session", "=", leader.session),
            Compare("leader_epoch", "=", leader.leader_epoch),
        )
    )
    return Write(rows.leader_key(app), condition, {"plan_version": plan_version})


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
    newer = AnyOf(
        (
            Compare("leader_epoch", "absent"),
            Compare("leader_epoch", "<", epoch),
            AllOf(
                (
                    Compare("leader_epoch", "=", epoch),
                    Compare("plan_version", "<", version),
                )
            ),
        )
    )
    # The range names streams by index in the member's list, so the list must match.
    condition = AllOf(
        (
            Compare("session", "=", member.session),
            ALIVE,
            Compare("streams", "=", member.streams),
            newer,
        )
    )
    values: dict[str, Value] = {
        "index": index,
        "range": rows.range_text(range_, member.streams),
        "clients": clients,
        "leader_epoch": epoch,
        "plan_version": version,
    }
    remove: tuple[str, ...] = ()
    if syncs:
        values["keeps"] = syncs
    else:
        remove = ("keeps",)
    return Write(rows.member_key(app, member.client_id), condition, values, remove)


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
    """Record that all shards of the start have rows."""
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

    ``shard`` must be read before its parents. A seek that reopens the parents raises
    the shard's epoch, and this write fails.
    """
    condition = Compare("epoch", "=", shard.epoch)
    return Write(shard_row_key(app, shard), condition, {"ready": True})


def claim(
    app: str, shard: ShardRow, member: MemberRow, nonce: str, owner: str = ""
) -> Write:
    """Claim a shard that has no owner, or that ``owner`` owns.

    ``owner`` is a session proved dead, or the caller's own: after a seek, the row still
    names the session, though the client has stopped reading the shard.
    """
    free: Condition = Compare("owner", "absent")
    if owner:
        free = AnyOf((free, Compare("owner", "=", owner)))
    condition = AllOf(
        (
            Compare("ready", "=", True),
            Compare("ended", "=", False),
            Compare("epoch", "=", shard.epoch),
            Compare("paused", "absent"),
            free,
        )
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
    condition = AllOf((*_owned(shard), _is_greater(position)))
    gone = ("sub_sequence_number",) if position.sub_sequence_number is None else ()
    values = position_values(position)
    if tip is not None:
        values["tip"] = rows.tip_text(tip)
    return Write(shard_row_key(app, shard), condition, values, gone)


def note_tip(app: str, shard: ShardRow, tip: Tip) -> Write:
    """Store the last position of a shard that has had no records for long."""
    values: dict[str, Value] = {"tip": rows.tip_text(tip)}
    return Write(shard_row_key(app, shard), AllOf(_owned(shard)), values)


def release(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Release a shard, and store its last position in the same write."""
    return _give_up(app, shard, position, {})


def mark_ended(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Mark a closed shard as ended after all its records are done."""
    return _give_up(app, shard, position, {"ended": True})


def prune_member(app: str, member: MemberRow | LivenessRow) -> Write:
    """Delete a dead member's row if it hasn't changed."""
    condition = AllOf(
        (
            _dead(member),
            as_read("session", member.session),
            Compare("last_update", "=", member.last_update),
        )
    )
    return Write(rows.member_key(app, member.client_id), condition, delete=True)


def prune_shard(app: str, shard: ShardRow) -> Write:
    """Delete the row of an ended shard, which Kinesis no longer lists."""
    return Write(shard_row_key(app, shard), Compare("ended", "=", True), delete=True)


def _give_up(
    app: str, shard: ShardRow, position: Position | None, values: dict[str, Value]
) -> Write:
    parts: tuple[Condition, ...] = _owned(shard)
    remove = ["owner", "owner_id", "claim"]
    if position is not None:
        parts += (AnyOf((_is_greater(position), _is_same(position))),)
        values = values | position_values(position)
        if position.sub_sequence_number is None:
            remove.append("sub_sequence_number")
    return Write(shard_row_key(app, shard), AllOf(parts), values, tuple(remove))


def shard_row_key(app: str, shard: ShardRow) -> Key:
    """Return the key of a shard's row."""
    return rows.shard_key(app, shard.key, shard.first_hash)


def as_read(attribute: str, value: Value | None) -> Condition:
    """Return the condition that an attribute is unchanged, or still missing."""
    if value is None:
        return Compare(attribute, "absent")
    return Compare(attribute, "=", value)


def _dead(member: MemberRow | LivenessRow) -> Condition:
    """Return the condition that the row is marked dead, with the value as read.

    A row written by hand may have any value.
    """
    return Compare(
        "dead",
        "=",
        member.dead_value if member.dead and member.dead_value is not None else True,
    )


def _owned(shard: ShardRow) -> tuple[Condition, ...]:
    return Compare("owner", "=", shard.owner), Compare("epoch", "=", shard.epoch)


def position_values(position: Position) -> dict[str, Value]:
    """Return a position as attributes."""
    values: dict[str, Value] = {"sequence_number": position.sequence_number}
    if position.sub_sequence_number is not None:
        values["sub_sequence_number"] = position.sub_sequence_number
    return values


def _is_greater(position: Position) -> Condition:
    """Return the condition that the stored position is smaller.

    Numbers are compared by length, then as text: sequence numbers have up to 56 digits,
    and DynamoDB's numbers have 38.
    """
    number, sub = position
    same = Compare("sequence_number", "=", number)
    earlier = Compare("sub_sequence_number", "exists")
    if sub is not None:
        earlier = Compare("sub_sequence_number", "<", sub)
    return AnyOf(
        (
            Compare("sequence_number", "absent"),
            Compare("sequence_number", "size<", len(number)),
            AllOf(
                (
                    Compare("sequence_number", "size=", len(number)),
                    Compare("sequence_number", "<", number),
                )
            ),
            AllOf((same, earlier)),
        )
    )


def _is_same(position: Position) -> Condition:
    number, sub = position
    part = Compare("sub_sequence_number", "absent")
    if sub is not None:
        part = Compare("sub_sequence_number", "=", sub)
    return AllOf((Compare("sequence_number", "=", number), part))

"""Every write of the protocol with its condition: section 4, one function a line.

All are conditional on one row, so that whatever arrives late, twice or from a client
that has been declared dead changes nothing.
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
"""The row's session isn't marked dead."""


def register(
    app: str, member: MemberRow, replaced: MemberRow | LivenessRow | None, moment: str
) -> Write:
    """Put a new session's row: over nothing, or over a dead session's mark."""
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
        # No leader plans for it: it says itself that all shards are its own.
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
    """Count one beat on; a repeated try of the same beat is accepted."""
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
    """Change the streams that a session asks for; its range waits for a new plan."""
    condition = AllOf((Compare("session", "=", member.session), ALIVE))
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"streams": streams}, remove=("range",))


def fence(app: str, member: Liveness, moment: str) -> Write:
    """Mark a session dead whose beat hasn't changed since it was observed."""
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
    """Mark one's own session dead."""
    condition = Compare("session", "=", member.session)
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def lead(
    app: str, member: MemberRow, before: LeaderRow | None, known_epoch: int = 0
) -> Write:
    """Take leadership: nobody has it, or a session known to be dead.

    ``known_epoch`` is the latest that members know: where somebody deleted the row,
    they would listen to no earlier one.
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
    """Announce a new plan, provided that this session still leads."""
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
    """Give a member its part of a plan that is newer than the one it has."""
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
    # The range names streams by their place in the member's list: it must be the same.
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
    """Give the app's part of the table an identity of its own."""
    values: dict[str, Value] = {"group_id": group_id, "version": 1}
    return Write(rows.group_key(app), Compare("pk", "absent"), values)


def create_stream(app: str, stream: StreamRow) -> Write:
    """Note a stream's identity and its start, resolved once."""
    values: dict[str, Value] = {
        "stream_created_at": repr(stream.created_at),
        "start": rows.start_text(stream.start),
        "baseline": stream.baseline,
    }
    return Write(rows.stream_key(app, stream.arn), Compare("pk", "absent"), values)


def baseline(app: str, stream: StreamRow) -> Write:
    """Declare that all shards of the start have rows."""
    key = rows.stream_key(app, stream.arn)
    condition = Compare("stream_created_at", "=", repr(stream.created_at))
    return Write(key, condition, {"baseline": True})


def create_shard(app: str, shard: ShardRow) -> Write:
    """Create a shard's row where there is none."""
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
    """Open a shard for claims: all its parents have ended.

    ``shard`` was read before the parents were. A seek that opens them again has raised
    its epoch since.
    """
    condition = Compare("epoch", "=", shard.epoch)
    return Write(shard_row_key(app, shard), condition, {"ready": True})


def claim(
    app: str, shard: ShardRow, member: MemberRow, nonce: str, owner: str = ""
) -> Write:
    """Own a shard that nobody owns, or ``owner``: a session proved dead, or one's own.

    One's own session owns what it doesn't hold after a seek.
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
    """Move the checkpoint forward; ``shard`` tells the owner and the epoch."""
    condition = AllOf((*_owned(shard), _is_greater(position)))
    gone = ("sub_sequence_number",) if position.sub_sequence_number is None else ()
    values = position_values(position)
    if tip is not None:
        values["tip"] = rows.tip_text(tip)
    return Write(shard_row_key(app, shard), condition, values, gone)


def note_tip(app: str, shard: ShardRow, tip: Tip) -> Write:
    """Note where a shard that has been quiet for long ends."""
    values: dict[str, Value] = {"tip": rows.tip_text(tip)}
    return Write(shard_row_key(app, shard), AllOf(_owned(shard)), values)


def release(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Give a shard up, with the last position in the same write."""
    return _give_up(app, shard, position, {})


def mark_ended(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Mark a closed shard whose records are all done."""
    return _give_up(app, shard, position, {"ended": True})


def prune_member(app: str, member: MemberRow | LivenessRow) -> Write:
    """Delete a row that has been dead for long."""
    condition = AllOf(
        (
            _dead(member),
            as_read("session", member.session),
            Compare("last_update", "=", member.last_update),
        )
    )
    return Write(rows.member_key(app, member.client_id), condition, delete=True)


def prune_shard(app: str, shard: ShardRow) -> Write:
    """Delete the row of a shard that has ended and that Kinesis has forgotten."""
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
    """The attribute is what was read, also if it was missing."""
    if value is None:
        return Compare(attribute, "absent")
    return Compare(attribute, "=", value)


def _dead(member: MemberRow | LivenessRow) -> Condition:
    """The row is marked, as it was read: by hand there may stand anything."""
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
    """The stored position is smaller: shorter, or as long and smaller as text.

    Sequence numbers have up to 56 digits, and DynamoDB's numbers 38.
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

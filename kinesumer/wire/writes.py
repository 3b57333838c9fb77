"""Every write of the protocol with its condition: section 4, one function a line.

All are conditional on one row, so that whatever arrives late, twice or from a client
that has been declared dead changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.rows import QUERY, Value
from kinesumer.model.streams import HASH_KEYS, Interval
from kinesumer.ports import All, Condition, Either, Test, Write
from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.model.positions import Position, Tip
    from kinesumer.model.rows import (
        Beating,
        Key,
        LeaderRow,
        MemberRow,
        Pulse,
        ShardRow,
        StreamRow,
    )
    from kinesumer.model.streams import Range

ALIVE = Either((Test("dead", "absent"), Test("dead", "=", False)))
"""The row's session isn't marked dead."""


def register(
    app: str, member: MemberRow, replaced: MemberRow | Pulse | None, moment: str
) -> Write:
    """Put a new session's row: over nothing, or over a dead session's mark."""
    condition: Condition = Test("pk", "absent")
    if replaced is not None:
        condition = All(
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
    condition = All(
        (
            Test("session", "=", member.session),
            ALIVE,
            Either((Test("beat", "=", beat - 1), Test("beat", "=", beat))),
        )
    )
    values: dict[str, Value] = {"beat": beat, "state": state, "lease_ms": lease_ms}
    if moment is not None:
        values["last_update"] = moment
    return Write(rows.member_key(app, member.client_id), condition, values)


def ask(app: str, member: MemberRow, streams: frozenset[str]) -> Write:
    """Change the streams that a session asks for; its range waits for a new plan."""
    condition = All((Test("session", "=", member.session), ALIVE))
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"streams": streams}, remove=("range",))


def fence(app: str, member: Beating, moment: str) -> Write:
    """Mark a session dead whose beat hasn't changed since it was observed."""
    condition = All(
        (
            Test("pk", "exists"),
            as_read("session", member.session),
            as_read("beat", member.beat),
            ALIVE,
        )
    )
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def leave(app: str, member: MemberRow, moment: str) -> Write:
    """Mark one's own session dead."""
    condition = Test("session", "=", member.session)
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"dead": True, "last_update": moment})


def lead(
    app: str, member: MemberRow, before: LeaderRow | None, known_epoch: int = 0
) -> Write:
    """Take leadership: nobody has it, or a session known to be dead.

    ``known_epoch`` is the latest that members know: where somebody deleted the row,
    they would listen to no earlier one.
    """
    condition: Condition = Test("pk", "absent")
    if before is not None:
        condition = Test("session", "=", before.session)
    values: dict[str, Value] = {
        "session": member.session,
        "client_id": member.client_id,
        "leader_epoch": 1 + (before.leader_epoch if before else known_epoch),
        "plan_version": before.plan_version if before else 0,
    }
    return Write(rows.leader_key(app), condition, values)


def publish(app: str, leader: LeaderRow, plan_version: int) -> Write:
    """Announce a new plan, provided that this session still leads."""
    condition = All(
        (
            Test("session", "=", leader.session),
            Test("leader_epoch", "=", leader.leader_epoch),
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
    keeps: frozenset[str],
) -> Write:
    """Give a member its part of a plan that is newer than the one it has."""
    epoch, version = leader.leader_epoch, leader.plan_version
    newer = Either(
        (
            Test("leader_epoch", "absent"),
            Test("leader_epoch", "<", epoch),
            All((Test("leader_epoch", "=", epoch), Test("plan_version", "<", version))),
        )
    )
    # The range names streams by their place in the member's list: it must be the same.
    condition = All(
        (
            Test("session", "=", member.session),
            ALIVE,
            Test("streams", "=", member.streams),
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
    if keeps:
        values["keeps"] = keeps
    else:
        remove = ("keeps",)
    return Write(rows.member_key(app, member.client_id), condition, values, remove)


def create_group(app: str, group_id: str) -> Write:
    """Give the app's part of the table an identity of its own."""
    values: dict[str, Value] = {"group_id": group_id, "version": 1}
    return Write(rows.group_key(app), Test("pk", "absent"), values)


def create_stream(app: str, stream: StreamRow) -> Write:
    """Note a stream's identity and its start, resolved once."""
    values: dict[str, Value] = {
        "stream_created_at": repr(stream.created_at),
        "start": rows.start_text(stream.start),
        "baseline": stream.baseline,
    }
    return Write(rows.stream_key(app, stream.arn), Test("pk", "absent"), values)


def baseline(app: str, stream: StreamRow) -> Write:
    """Declare that all shards of the start have rows."""
    key = rows.stream_key(app, stream.arn)
    condition = Test("stream_created_at", "=", repr(stream.created_at))
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
    return Write(shard_row_key(app, shard), Test("pk", "absent"), values)


def ready(app: str, shard: ShardRow) -> Write:
    """Open a shard for claims: all its parents have ended.

    ``shard`` was read before the parents were. A seek that opens them again has raised
    its epoch since.
    """
    condition = Test("epoch", "=", shard.epoch)
    return Write(shard_row_key(app, shard), condition, {"ready": True})


def claim(
    app: str, shard: ShardRow, member: MemberRow, nonce: str, owner: str = ""
) -> Write:
    """Own a shard that nobody owns, or ``owner``: a session proved dead, or one's own.

    One's own session owns what it doesn't hold after a seek.
    """
    free: Condition = Test("owner", "absent")
    if owner:
        free = Either((free, Test("owner", "=", owner)))
    condition = All(
        (
            Test("ready", "=", True),
            Test("ended", "=", False),
            Test("epoch", "=", shard.epoch),
            Test("paused", "absent"),
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
    condition = All((*_owned(shard), _greater(position)))
    gone = ("sub_sequence_number",) if position.sub_sequence_number is None else ()
    values = position_values(position)
    if tip is not None:
        values["tip"] = rows.tip_text(tip)
    return Write(shard_row_key(app, shard), condition, values, gone)


def note_tip(app: str, shard: ShardRow, tip: Tip) -> Write:
    """Note where a shard that has been quiet for long ends."""
    values: dict[str, Value] = {"tip": rows.tip_text(tip)}
    return Write(shard_row_key(app, shard), All(_owned(shard)), values)


def release(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Give a shard up, with the last position in the same write."""
    return _give_up(app, shard, position, {})


def end(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Mark a closed shard whose records are all done."""
    return _give_up(app, shard, position, {"ended": True})


def prune_member(app: str, member: MemberRow | Pulse) -> Write:
    """Delete a row that has been dead for long."""
    condition = All(
        (
            _dead(member),
            as_read("session", member.session),
            Test("last_update", "=", member.last_update),
        )
    )
    return Write(rows.member_key(app, member.client_id), condition, delete=True)


def prune_shard(app: str, shard: ShardRow) -> Write:
    """Delete the row of a shard that has ended and that Kinesis has forgotten."""
    return Write(shard_row_key(app, shard), Test("ended", "=", True), delete=True)


def _give_up(
    app: str, shard: ShardRow, position: Position | None, values: dict[str, Value]
) -> Write:
    parts: tuple[Condition, ...] = _owned(shard)
    remove = ["owner", "owner_id", "claim"]
    if position is not None:
        parts += (Either((_greater(position), _same(position))),)
        values = values | position_values(position)
        if position.sub_sequence_number is None:
            remove.append("sub_sequence_number")
    return Write(shard_row_key(app, shard), All(parts), values, tuple(remove))


def shard_row_key(app: str, shard: ShardRow) -> Key:
    """Return the key of a shard's row."""
    return rows.shard_key(app, shard.key, shard.first_hash)


def as_read(attribute: str, value: Value | None) -> Condition:
    """The attribute is what was read, also if it was missing."""
    if value is None:
        return Test(attribute, "absent")
    return Test(attribute, "=", value)


def _dead(member: MemberRow | Pulse) -> Condition:
    """The row is marked, as it was read: by hand there may stand anything."""
    return Test(
        "dead", "=", member.mark if member.dead and member.mark is not None else True
    )


def _owned(shard: ShardRow) -> tuple[Condition, ...]:
    return Test("owner", "=", shard.owner), Test("epoch", "=", shard.epoch)


def position_values(position: Position) -> dict[str, Value]:
    """Return a position as attributes."""
    values: dict[str, Value] = {"sequence_number": position.sequence_number}
    if position.sub_sequence_number is not None:
        values["sub_sequence_number"] = position.sub_sequence_number
    return values


def _greater(position: Position) -> Condition:
    """The stored position is smaller: shorter, or as long and smaller as text.

    Sequence numbers have up to 56 digits, and DynamoDB's numbers 38.
    """
    number, sub = position
    same = Test("sequence_number", "=", number)
    earlier = Test("sub_sequence_number", "exists")
    if sub is not None:
        earlier = Test("sub_sequence_number", "<", sub)
    return Either(
        (
            Test("sequence_number", "absent"),
            Test("sequence_number", "size<", len(number)),
            All(
                (
                    Test("sequence_number", "size=", len(number)),
                    Test("sequence_number", "<", number),
                )
            ),
            All((same, earlier)),
        )
    )


def _same(position: Position) -> Condition:
    number, sub = position
    part = Test("sub_sequence_number", "absent")
    if sub is not None:
        part = Test("sub_sequence_number", "=", sub)
    return All((Test("sequence_number", "=", number), part))

"""What operators write: notices, pauses, drained members, seeks, rows taken over.

Conditional on one row each, like all writes of the protocol (see ``writes``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.streams import Start
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.wire import rows
from kinesumer.wire.writes import (
    ALIVE,
    as_read,
    create_shard,
    position_values,
    shard_row_key,
)

if TYPE_CHECKING:
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import Key, MemberRow, ShardRow, StreamRow, Value


def notify(app: str, member: MemberRow) -> Write:
    """Have a session look at the rows again: the answer to its next beat shows it."""
    seen = member.notice or None
    condition = AllOf(
        (Compare("session", "=", member.session), ALIVE, as_read("notice", seen))
    )
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"notice": member.notice + 1})


def drain(app: str, member: MemberRow, *, drained: bool) -> Write:
    """Keep a session free of shards, or no longer: the leader plans with it again."""
    condition = AllOf((Compare("session", "=", member.session), ALIVE))
    key = rows.member_key(app, member.client_id)
    if drained:
        return Write(key, condition, {"drained": True})
    return Write(key, condition, remove=("drained",))


def pause(key: Key, reason: str) -> Write:
    """Mark a group's, a stream's or a shard's row: what it stands for isn't claimed."""
    values: dict[str, Value] = {"paused": True}
    if not reason:
        return Write(key, Compare("pk", "exists"), values, ("pause_reason",))
    return Write(key, Compare("pk", "exists"), values | {"pause_reason": reason})


def resume(key: Key) -> Write:
    """Take the mark of a pause away."""
    return Write(key, Compare("pk", "exists"), remove=("paused", "pause_reason"))


def begin_reset(app: str) -> Write:
    """Have clients that start from now on refused: the rows are about to be deleted."""
    return Write(rows.group_key(app), Compare("pk", "exists"), {"resetting": True})


def give_up_reset(app: str) -> Write:
    """Let clients start again: nothing was deleted."""
    return Write(rows.group_key(app), Compare("pk", "exists"), remove=("resetting",))


def delete(key: Key) -> Write:
    """Delete a row of an app that is being reset."""
    return Write(key, Compare("pk", "exists"), delete=True)


def seek(app: str, shard: ShardRow, to: Position | Start, *, waits: bool) -> Write:
    """Have a shard read on from elsewhere, and open it again if it has ended.

    The owner stays, since it may be delivering, but the epoch is nobody's: what the
    owner writes is refused, and it alone may claim the shard again. ``waits``: parents
    are read again before it.
    """
    condition = AllOf(
        (Compare("epoch", "=", shard.epoch), Compare("ended", "=", shard.ended))
    )
    values: dict[str, Value] = {"epoch": shard.epoch + 1, "ended": False}
    # A claim whose answer was lost must not be taken for one of this epoch.
    gone = ["claim"]
    if isinstance(to, Start):
        values["start"] = rows.start_text(to)
        gone += ["sequence_number", "sub_sequence_number"]
    else:
        values.update(position_values(to))
        if to.sub_sequence_number is None:
            gone.append("sub_sequence_number")
    if waits:
        values["ready"] = False
    return Write(shard_row_key(app, shard), condition, values, tuple(gone))


def withdraw(app: str, stream: StreamRow) -> Write:
    """Take a stream's baseline back: nobody claims its shards until it is laid."""
    key = rows.stream_key(app, stream.arn)
    condition = Compare("stream_created_at", "=", repr(stream.created_at))
    return Write(key, condition, {"baseline": False})


def replace(app: str, shard: ShardRow, before: ShardRow) -> Write:
    """Put a shard's row over one that nobody changed since, without an owner.

    For a group at rest. A pause stays.
    """
    new = create_shard(app, shard._replace(epoch=before.epoch + 1))
    values = dict(new.set)
    if before.paused:
        values.update(pause(new.key, before.pause_reason).set)
    return Write(new.key, Compare("epoch", "=", before.epoch), values, replace=True)

"""Conditional writes of operators: notices, pauses, drains, resets, seeks and imports.

Each write has a condition on its row, as in the module ``writes``.
"""

from __future__ import annotations

from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, MemberRow, ShardRow, StreamRow, Value
from kinesumer.model.streams import Start
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.wire import rows
from kinesumer.wire.shard_writes import (
    DEATHS,
    create_shard,
    position_values,
    shard_row_key,
)
from kinesumer.wire.writes import ALIVE, as_read


def notify(app: str, member: MemberRow) -> Write:
    """Make a session read the rows again after its next heartbeat.

    The response to the heartbeat shows the new notice.
    """
    notice = member.notice or None
    condition = AllOf(
        Compare("session", "=", member.session), ALIVE, as_read("notice", notice)
    )
    key = rows.member_key(app, member.client_id)
    return Write(key, condition, {"notice": member.notice + 1})


def drain(app: str, member: MemberRow, *, drained: bool) -> Write:
    """Drain a session, so that the leader plans no shards for it, or end the drain."""
    condition = AllOf(Compare("session", "=", member.session), ALIVE)
    key = rows.member_key(app, member.client_id)
    if drained:
        return Write(key, condition, {"drained": True})
    return Write(key, condition, remove=("drained",))


def pause(key: Key, reason: str) -> Write:
    """Pause the group, stream or shard of a row. Paused shards aren't claimed."""
    values: dict[str, Value] = {"paused": True}
    if not reason:
        return Write(key, Compare("pk", "exists"), values, ("pause_reason",))
    return Write(key, Compare("pk", "exists"), values | {"pause_reason": reason})


def resume(key: Key) -> Write:
    """End the pause of a group, stream or shard."""
    return Write(key, Compare("pk", "exists"), remove=("paused", "pause_reason"))


def begin_reset(app: str) -> Write:
    """Prevent clients from starting, before the app's rows are deleted."""
    return Write(rows.group_key(app), Compare("pk", "exists"), {"resetting": True})


def give_up_reset(app: str) -> Write:
    """Let clients start again. Call this only if the reset has deleted no row."""
    return Write(rows.group_key(app), Compare("pk", "exists"), remove=("resetting",))


def delete(key: Key) -> Write:
    """Delete a row."""
    return Write(key, Compare("pk", "exists"), delete=True)


def seek(app: str, shard: ShardRow, to: Position | Start, *, waits: bool) -> Write:
    """Set a shard's position, and reopen the shard if it has ended.

    The row keeps its owner, which may be delivering records, but the epoch rises. So
    the owner's commits fail, and only the owner may claim the shard again. If ``waits``
    is true, the shard's parents must be read first.
    """
    condition = AllOf(
        Compare("epoch", "=", shard.epoch), Compare("ended", "=", shard.ended)
    )
    values: dict[str, Value] = {"epoch": shard.epoch + 1, "ended": False}
    # A claim whose response was lost must not count as a claim of the new epoch.
    # The deaths at the former position have no meaning at the new one.
    removed = ["claim", *DEATHS]
    if isinstance(to, Start):
        values["start"] = rows.start_text(to)
        removed += ["sequence_number", "sub_sequence_number"]
    else:
        values.update(position_values(to))
        if to.sub_sequence_number is None:
            removed.append("sub_sequence_number")
    if waits:
        values["ready"] = False
    return Write(shard_row_key(app, shard), condition, values, tuple(removed))


def withdraw(app: str, stream: StreamRow) -> Write:
    """Remove a stream's baseline. Without it, shards can't be claimed."""
    key = rows.stream_key(app, stream.arn)
    condition = Compare("stream_created_at", "=", repr(stream.created_at))
    return Write(key, condition, {"baseline": False})


def replace(app: str, shard: ShardRow, before: ShardRow) -> Write:
    """Replace a shard's row if it hasn't changed. The new row has no owner.

    Call this only while no client runs. If the shard is paused, it stays paused.
    """
    new = create_shard(app, shard._replace(epoch=before.epoch + 1))
    values = dict(new.set)
    if before.paused:
        values.update(pause(new.key, before.pause_reason).set)
    return Write(new.key, Compare("epoch", "=", before.epoch), values, replace=True)

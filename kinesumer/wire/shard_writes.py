"""The conditional writes to the rows of shards: who owns one, and how far it is read.

Each write has a condition on its row, as in the module ``writes``.
"""

from __future__ import annotations

from math import floor

from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import Deaths, Key, MemberRow, ShardRow, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.wire import rows
from kinesumer.wire.fields import TRIED

NOTES = "notes"
# All attributes about deaths. A shard without counted deaths has none of them.
DEATHS = ("deaths", "died_at", TRIED, NOTES, "suspect", "poison")


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


def with_deaths(claim: Write, deaths: Deaths | None) -> Write:
    """Return a claim that also stores the counted deaths, if an owner has died.

    The new owner has given no record to user code, so the old one's note is removed.
    """
    values: dict[str, Value] = {}
    if deaths is not None:
        values = {"deaths": deaths.counted, "died_at": floor(1000 * deaths.at)}
        for name, position in (("suspect", deaths.suspect), ("poison", deaths.poison)):
            if position is not None:
                values[name] = position.text
    return claim._replace(
        set={**claim.set, **values}, remove=(*claim.remove, TRIED, NOTES)
    )


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


def note_tried(
    key: Key, shard: ShardRow, position: Position | None, number: int
) -> Write:
    """Store the position of a record before user code gets it.

    With None, remove the stored position. ``number`` counts the notes of the epoch. A
    late request must not replace the note of a later one.
    """
    is_latest = AnyOf(Compare(NOTES, "absent"), Compare(NOTES, "<=", number))
    condition = AllOf(*is_owned(shard), is_latest)
    values: dict[str, Value] = {NOTES: number}
    if position is None:
        return Write(key, condition, values, remove=(TRIED,))
    return Write(key, condition, {**values, TRIED: position.text})


def forgetting(write: Write, names: tuple[str, ...]) -> Write:
    """Return a write of a shard's position that also removes these attributes."""
    return write._replace(remove=(*write.remove, *names))


def forget_deaths(key: Key, shard: ShardRow) -> Write:
    """Remove the counted deaths of a shard that has passed their records."""
    return Write(key, AllOf(*is_owned(shard)), remove=DEATHS)


def release(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Release a shard, and store its last position in the same write."""
    return _give_up(app, shard, position, {})


def mark_ended(app: str, shard: ShardRow, position: Position | None) -> Write:
    """Mark a closed shard as ended after all its records are done."""
    return _give_up(app, shard, position, {"ended": True})


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


def reopen(app: str, shard: ShardRow) -> Write:
    """Let a shard be read again from its position, because its end was wrong."""
    condition = AllOf(Compare("epoch", "=", shard.epoch), Compare("ended", "=", True))
    return Write(shard_row_key(app, shard), condition, {"ended": False})


def prune_shard(app: str, shard: ShardRow) -> Write:
    """Delete the row of an ended shard, which Kinesis no longer lists."""
    return Write(shard_row_key(app, shard), Compare("ended", "=", True), delete=True)


def is_owned(shard: ShardRow) -> tuple[Condition, ...]:
    """Return the conditions that the owner and the epoch are those of ``shard``."""
    return Compare("owner", "=", shard.owner), Compare("epoch", "=", shard.epoch)


def is_greater(position: Position) -> Condition:
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
        Compare("sequence_number", "absent"),
        Compare("sequence_number", "size<", len(number)),
        AllOf(
            Compare("sequence_number", "size=", len(number)),
            Compare("sequence_number", "<", number),
        ),
        AllOf(same, earlier),
    )


def is_same(position: Position) -> Condition:
    """Return the condition that the stored position is this one."""
    number, sub = position
    part = Compare("sub_sequence_number", "absent")
    if sub is not None:
        part = Compare("sub_sequence_number", "=", sub)
    return AllOf(Compare("sequence_number", "=", number), part)


def shard_row_key(app: str, shard: ShardRow) -> Key:
    """Return the key of a shard's row."""
    return rows.shard_key(app, shard.key, shard.first_hash)


def position_values(position: Position) -> dict[str, Value]:
    """Return a position as attributes."""
    values: dict[str, Value] = {"sequence_number": position.sequence_number}
    if position.sub_sequence_number is not None:
        values["sub_sequence_number"] = position.sub_sequence_number
    return values

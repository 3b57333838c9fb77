"""The conditions that writes of clients and of operators share."""

from __future__ import annotations

from kinesumer.model.positions import Position
from kinesumer.model.rows import LivenessRow, MemberRow, ShardRow, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition

# The row's session isn't marked dead.
ALIVE = AnyOf(Compare("dead", "absent"), Compare("dead", "=", False))


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

"""The attributes of a shard's row that count its owners' deaths, and their writes."""

from __future__ import annotations

import math

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.rows import NO_DEATHS, Deaths, Key, Row, ShardRow, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write
from kinesumer.wire.fields import corrupt, count, get

TRIED, NOTES = "tried", "notes"
# All attributes about deaths. A shard without counted deaths has none of them.
ATTRIBUTES = ("deaths", "died_at", TRIED, NOTES, "suspect", "poison")


def read_deaths(row: Row) -> Deaths:
    """Return the counted deaths. Raises CorruptRowError for an invalid attribute."""
    if "deaths" not in row:
        return NO_DEATHS
    return Deaths(
        counted=count(row, "deaths"),
        at=count(row, "died_at") / 1000,
        tried=_read_position(row, TRIED),
        suspect=_read_position(row, "suspect"),
        poison=_read_position(row, "poison"),
    )


def with_deaths(claim: Write, deaths: Deaths | None) -> Write:
    """Return a claim that also stores the counted deaths, if an owner has died.

    The new owner has given no record to user code, so the old one's note is removed.
    """
    values: dict[str, Value] = {}
    if deaths is not None:
        values = {"deaths": deaths.counted, "died_at": math.floor(1000 * deaths.at)}
        for name, position in (("suspect", deaths.suspect), ("poison", deaths.poison)):
            if position is not None:
                values[name] = position.text
    return claim._replace(
        set={**claim.set, **values}, remove=(*claim.remove, TRIED, NOTES)
    )


def forgetting(write: Write, names: tuple[str, ...]) -> Write:
    """Return a write of a shard's position that also removes these attributes."""
    return write._replace(remove=(*write.remove, *names))


def note_tried(
    key: Key, shard: ShardRow, position: Position | None, number: int
) -> Write:
    """Store the position of a record before user code gets it.

    With None, remove the stored position. ``number`` counts the notes of the epoch. A
    late request must not replace the note of a later one.
    """
    is_latest = AnyOf(Compare(NOTES, "absent"), Compare(NOTES, "<=", number))
    condition, values = _owned(shard, is_latest), {NOTES: number}
    if position is None:
        return Write(key, condition, values, remove=(TRIED,))
    return Write(key, condition, {**values, TRIED: position.text})


def forget_deaths(key: Key, shard: ShardRow) -> Write:
    """Remove the counted deaths of a shard that has passed their records."""
    return Write(key, _owned(shard), remove=ATTRIBUTES)


def _owned(shard: ShardRow, *others: Condition) -> AllOf:
    owner, epoch = (
        Compare("owner", "=", shard.owner),
        Compare("epoch", "=", shard.epoch),
    )
    return AllOf(owner, epoch, *others)


def _read_position(row: Row, name: str) -> Position | None:
    if name not in row:
        return None
    try:
        return Position.of_text(get(row, name, str))
    except ConfigurationError:
        raise corrupt(row, name) from None

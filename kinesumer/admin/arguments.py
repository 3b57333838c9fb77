"""Times as options name them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kinesumer.admin.seek_counts import total
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, stream_name
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.rows import timestamp_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.admin.seek import SeekPlan
    from kinesumer.admin.seek_counts import Count
    from kinesumer.core.seek import Step


NAMED = ("LATEST", "TRIM_HORIZON")


_AGO = re.compile(r"([0-9]+)([smhd])")


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time(
    option: str, text: str, now: datetime, names: tuple[str, ...] = ()
) -> datetime:
    """Return the time that an option names; it might have named others, too.

    Raises ConfigurationError.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        known = "".join(f"{name} nor " for name in names)
        raise ConfigurationError(
            f"{option} {text}: neither {known}a time like 2026-01-31T12:00:00Z, nor "
            "how long ago, like 90m, 2h or 3d"
        ) from None
    if found.tzinfo is None:
        raise ConfigurationError(
            f"{option} {text} has no time zone: add Z for UTC, or an offset like +01:00"
        )
    return found


def parse_start(option: str, text: str) -> Start:
    """Return the start that an option names. Raises ConfigurationError."""
    # Heavy, and not needed by who asks for help.
    from kinesumer.model.streams import Start

    if text.upper() in NAMED:
        return Start(type=text.upper())
    return Start.at(parse_time(option, text, datetime.now(UTC), NAMED))


POSITION = re.compile(r"([0-9]{2,129})(?::([0-9]{1,15}))?")
"""The largest place in an aggregate that a row may hold has 16 digits."""


MAX_NAMED = 10
"""Shards that a text names; JSON names all."""


def parse_position(text: str, shard: str | None) -> Position | Start:
    """Return the place that --to names. Raises ConfigurationError."""
    position = POSITION.fullmatch(text)
    if position is None:
        return parse_start("--to", text)
    if shard is None:
        raise ConfigurationError(f"--to {text} is a position: say of which --shard")
    number, part = position.groups()
    return Position(number, None if part is None else int(part))


def position_text(place: Position | Start) -> str:
    """Return a place as --to takes it."""
    if not isinstance(place, Start):
        number, part = place
        return number if part is None else f"{number}:{part}"
    return place.type if place.timestamp is None else timestamp_text(place.timestamp)


def shards_text(count: int) -> str:
    """Return how many shards: "1 shard", "12 shards"."""
    return "1 shard" if count == 1 else f"{count} shards"


def describe_count(count: Count) -> str:
    """Return what is skipped and repeated: "skips 3 records, repeats 1 record"."""
    about = "" if count.exact else "about "
    parts = [
        f"{does} {about}{number:,} record{'' if number == 1 else 's'}"
        for does, number in (("skips", count.skipped), ("repeats", count.repeated))
        if number
    ]
    if count.problem:
        told = f"{', '.join(parts)}; " if parts else ""
        return f"{told}not all could be counted: {escape_unprintable(count.problem)}"
    return ", ".join(parts) or "skips and repeats nothing"


def describe_seek(
    plan: SeekPlan, counts: Mapping[str, Count] | None = None
) -> list[str]:
    """Return what a seek does in one stream: a line for all, then for some shards.

    ``counts`` is what it skips and repeats, by shard id.
    """
    steps = plan.steps
    again = sum(step.row.ended for step in steps)
    ended = f", {again} of them ended and read again" if again else ""
    name = escape_unprintable(stream_name(plan.stream_arn))
    head = (
        f"stream {name}: {shards_text(len(steps))} to {position_text(plan.to)}{ended}"
    )
    lines = [f"{step.row.key.shard_id}  {_from(step)}" for step in steps[:MAX_NAMED]]
    if counts is not None:
        head += f": {describe_count(total(list(counts.values())))}"
        for place, step in enumerate(steps[:MAX_NAMED]):
            lines[place] += f"; {describe_count(counts[step.row.key.shard_id])}"
    left = len(steps) - MAX_NAMED
    return [head, *lines, *([f"… and {left} more"] if left > 0 else [])]


def _from(step: Step) -> str:
    row = step.row
    if step.is_new:
        return "not met yet"
    state = (
        "ended" if row.ended else f"now at {position_text(row.position or row.start)}"
    )
    owner = f", owned by {escape_unprintable(row.owner_id)}" if row.owner_id else ""
    return f"{state}{owner}"

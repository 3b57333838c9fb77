"""Parse times and positions of options, and describe seeks in words."""

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
MAX_NAMED = 10
"""The number of shards or clients that a text names; JSON names all."""

_AGO = re.compile(r"([0-9]+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
# A sequence number has more than one digit; a single one is probably a typing error.
_POSITION = re.compile(r"[0-9]{2,129}(:[0-9]{1,15})?")


def parse_time(
    option: str, text: str, now: datetime, names: tuple[str, ...] = ()
) -> datetime:
    """Return the time that an option's value stands for. Raises ConfigurationError.

    ``names`` are the other values that the option takes.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        known = "".join(f"{name}, " for name in names)
        raise ConfigurationError(
            f"{option} {text}: give {known}a time like 2026-01-31T12:00:00Z, or how "
            "long ago, like 90m, 2h or 3d"
        ) from None
    if time.tzinfo is None:
        raise ConfigurationError(
            f"{option} {text} has no time zone: add Z for UTC, or an offset like +01:00"
        )
    return time


def parse_start(option: str, text: str) -> Start:
    """Return the start that an option's value stands for. Raises ConfigurationError."""
    if text.upper() in NAMED:
        return Start(type=text.upper())
    return Start.at(parse_time(option, text, datetime.now(UTC), NAMED))


def parse_position(text: str, shard: str | None) -> Position | Start:
    """Return the position or start that ``--to`` names. Raises ConfigurationError."""
    if not _POSITION.fullmatch(text):
        return parse_start("--to", text)
    if shard is None:
        raise ConfigurationError(
            f"--to {text} is a position: name its shard by --shard"
        )
    return Position.of_text(text)


def position_text(position: Position | Start) -> str:
    """Return a position or a start as ``--to`` takes it."""
    if not isinstance(position, Start):
        return position.text
    if position.timestamp is None:
        return position.type
    return timestamp_text(position.timestamp)


def shards_text(count: int) -> str:
    """Return a number of shards in words: "1 shard", "12 shards"."""
    return "1 shard" if count == 1 else f"{count} shards"


def first_lines(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    left = len(lines) - MAX_NAMED
    return [*lines[:MAX_NAMED], *([f"… and {left} more"] if left > 0 else [])]


def describe_count(count: Count) -> str:
    """Return a count in words: "skips 3 records, repeats 1 record"."""
    about = "" if count.exact else "about "
    parts = [
        f"{does} {about}{number:,} record{'' if number == 1 else 's'}"
        for does, number in (("skips", count.skipped), ("repeats", count.repeated))
        if number
    ]
    if count.problem:
        known = f"{', '.join(parts)}; " if parts else ""
        return f"{known}not all could be counted: {escape_unprintable(count.problem)}"
    return ", ".join(parts) or "skips and repeats nothing"


def describe_seek(
    plan: SeekPlan, counts: Mapping[str, Count] | None = None
) -> list[str]:
    """Return what a seek does in one stream: a line for all, then for some shards.

    ``counts`` holds what it skips and repeats, by shard id.
    """
    steps = plan.steps
    again = sum(step.row.ended for step in steps)
    ended = f", {again} of them ended and read again" if again else ""
    name, to = escape_unprintable(stream_name(plan.stream_arn)), position_text(plan.to)
    head = f"stream {name}: {shards_text(len(steps))} to {to}{ended}"
    if counts is not None:
        head += f": {describe_count(total(list(counts.values())))}"
    lines = []
    for step in steps:
        shard_id = step.row.key.shard_id
        effect = "" if counts is None else f"; {describe_count(counts[shard_id])}"
        lines.append(f"{shard_id}  {_current(step)}{effect}")
    return [head, *first_lines(lines)]


def _current(step: Step) -> str:
    row = step.row
    if step.is_new:
        return "not consumed yet"
    now = position_text(row.position or row.start)
    state = "ended" if row.ended else f"now at {now}"
    owner = f", owned by {escape_unprintable(row.owner_id)}" if row.owner_id else ""
    return f"{state}{owner}"

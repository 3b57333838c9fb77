"""Parse positions in command-line options, and describe seeks in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, stream_name
from kinesumer.ops.group.seek_counts import total
from kinesumer.runtime.text import (
    MAX_NAMED,
    MAX_STREAM_LETTERS,
    counted,
    duration_text,
    escape_unprintable,
    shorten,
)
from kinesumer.wire.rows import timestamp_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.core.lineage import SeekStep
    from kinesumer.ops.group.seek import SeekPlan
    from kinesumer.ops.group.seek_counts import Count

MAX_POSITION_LETTERS = 24

# A sequence number has up to 129 digits; a single digit is probably a typo.
_POSITION = re.compile(r"[0-9]{2,129}(:[0-9]{1,15})?")


def parse_position(
    text: str, shard: str | None, *, name: str = "--to"
) -> Position | Start:
    """Parse the value of ``name`` as a position or start. Raises ConfigurationError."""
    if not _POSITION.fullmatch(text):
        return Start.parse(text, name=name)
    if shard is None:
        raise ConfigurationError(
            f"{name} {text} is a position: name its shard by --shard"
        )
    return Position.of_text(text)


def position_text(position: Position | Start) -> str:
    """Format a position or a start as a value of ``--to``."""
    if not isinstance(position, Start):
        return position.text
    if position.timestamp is None:
        return position.type
    return timestamp_text(position.timestamp)


def first_lines(lines: list[str]) -> list[str]:
    """Return the first lines, and a line that says how many more there are."""
    left = len(lines) - MAX_NAMED
    return [*lines[:MAX_NAMED], *([f"… and {left} more"] if left > 0 else [])]


def clock_text(at: float, now: float) -> str:
    """Return a time of day in UTC, with its date unless it is the date of ``now``.

    Both are seconds since 1970.
    """
    time, today = (datetime.fromtimestamp(each, UTC) for each in (at, now))
    form = "%H:%M:%S UTC" if time.date() == today.date() else "%Y-%m-%d %H:%M:%S UTC"
    return time.strftime(form)


def describe_count(count: Count, now: float) -> str:
    """Return the effect of a seek: "now 3.0 s behind; skips 40 records".

    ``now`` is the time of the count, in seconds since 1970.
    """
    about = "" if count.exact else "about "
    effects = [
        f"{does} {about}{counted(number, 'record')}"
        for does, number in (("skips", count.skipped), ("re-reads", count.repeated))
        if number
    ]
    if count.repeated and count.repeated_since is not None:
        effects[-1] += f" since {clock_text(count.repeated_since, now)}"
    if count.problem:
        reason = escape_unprintable(count.problem)
        effects.append(f"not all could be counted: {reason}")
    if not effects:
        effects = ["skips and re-reads nothing"]
    return "; ".join([*_current_lag(count), ", ".join(effects)])


def _current_lag(count: Count) -> list[str]:
    if count.seconds_behind is None:
        return []
    if count.seconds_behind == 0:
        return ["now at the tip"]
    return [f"now {duration_text(count.seconds_behind * 1000)} behind"]


def describe_seek(
    plan: SeekPlan, counts: Mapping[str, Count] | None = None
) -> list[str]:
    """Return a line that sums up a stream's seek, and lines for the first shards.

    Without ``counts``, the lines of shards name only their states.
    """
    steps, now = plan.steps, plan.stream.info.now
    again = sum(step.row.ended for step in steps)
    ended = f", {again} of them ended and read again" if again else ""
    name = shorten(escape_unprintable(stream_name(plan.stream.arn)), MAX_STREAM_LETTERS)
    to = position_text(plan.to)
    if isinstance(plan.to, Position):
        to = f"position {shorten(to, MAX_POSITION_LETTERS)}"
    lines = [f"stream {name}: {counted(len(steps), 'shard')} to {to}{ended}"]
    if counts is not None:
        lines.append(describe_count(total(list(counts.values())), now))
    shards = []
    for step in steps:
        shard_id = step.row.key.shard_id
        # The stream's line has the time of the first record that is read again.
        effect = (
            []
            if counts is None
            else [describe_count(counts[shard_id]._replace(repeated_since=None), now)]
        )
        texts = "; ".join([*_state(step), *effect])
        shards.append(f"{shard_id}  {texts}".rstrip())
    return [*lines, *first_lines(shards)]


def _state(step: SeekStep) -> list[str]:
    if step.is_new:
        return ["not consumed yet"]
    if step.row.ended:
        return ["ended"]
    owner = step.row.owner_id
    return [f"owner {escape_unprintable(owner)}"] if owner else []

"""Count how many records a seek skips or re-reads, and describe seeks in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from kinesumer.core.lineage import SeekStep
from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, stream_name
from kinesumer.ops.group.seek import SeekPlan, position_text
from kinesumer.ops.group.shard_reads import (
    MAX_READS,
    READ_INTERVAL_SECONDS,
    PacedReader,
    ReadPoint,
    ShardSampler,
    gather_by_key,
)
from kinesumer.runtime.text import (
    MAX_NAMED,
    MAX_STREAM_LETTERS,
    counted,
    duration_text,
    escape_unprintable,
    shorten,
)


class Count(NamedTuple):
    """The effect of a seek on one shard, or on several together."""

    skipped: int = 0  # records that no client has received or will receive
    repeated: int = 0  # records that clients have received and will receive again
    # Whether the records were counted rather than estimated from samples.
    exact: bool = True
    problem: str = ""  # why some or all records couldn't be counted
    # How long the next record has waited: 0 at the tip, None in a shard that has ended.
    seconds_behind: float | None = None
    # When the first repeated record arrived, in Unix time; None if none is repeated.
    repeated_since: float | None = None


def total(counts: Iterable[Count]) -> Count:
    """Return the sum of counts: the largest lag, the earliest time, one problem."""
    skipped, repeated, exact, problems, lags, times = zip(Count(), *counts, strict=True)
    return Count(
        sum(skipped),
        sum(repeated),
        all(exact),
        next(filter(None, problems), ""),
        max((lag for lag in lags if lag is not None), default=None),
        min((time for time in times if time is not None), default=None),
    )


async def count_seek(
    plan: SeekPlan, reader: PacedReader | None = None
) -> dict[str, Count]:
    """Count the records that a seek skips or repeats, by shard id."""
    source, now = plan.stream.source, plan.stream.info.now
    reader = reader or PacedReader(READ_INTERVAL_SECONDS)
    keys = [step.row.key for step in plan.steps]
    samplers = [ShardSampler(reader, source, key, now) for key in keys]
    return await gather_by_key(
        {
            key.shard_id: _count_step(sampler, step, plan.to)
            for key, sampler, step in zip(keys, samplers, plan.steps, strict=True)
        }
    )


async def _count_step(
    sampler: ShardSampler, step: SeekStep, to: Position | Start
) -> Count:
    row = step.row
    try:
        then = await sampler.read_first(to)
        if row.ended:  # clients have read the whole shard
            return await _repeated(sampler, then, None)
        now = await sampler.read_first(row.position or row.start)
        behind = max(sampler.now() - now.at, 0.0) if now.page.records else 0.0
        first, other = now.sequence_number, then.sequence_number
        if first == other:
            return Count(seconds_behind=behind)
        if first is None or (other is not None and other < first):
            count = await _repeated(sampler, then, now)
            return count._replace(seconds_behind=behind)
        skipped, exact = await sampler.count(now, then, MAX_READS)
        return Count(skipped, 0, exact, seconds_behind=behind)
    except KinesumerError as error:
        return Count(problem=str(error))


async def _repeated(
    sampler: ShardSampler, first: ReadPoint, last: ReadPoint | None
) -> Count:
    records, exact = await sampler.count(first, last, MAX_READS)
    return Count(0, records, exact, repeated_since=first.at if records else None)


# --- in words -------------------------------------------------------------------------


def first_lines(lines: list[str]) -> list[str]:
    """Return the first lines, and a line that says how many more there are."""
    left = len(lines) - MAX_NAMED
    return [*lines[:MAX_NAMED], *([f"… and {left} more"] if left > 0 else [])]


def _clock_text(at: float, now: float) -> str:
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
        effects[-1] += f" since {_clock_text(count.repeated_since, now)}"
    if count.problem:
        reason = escape_unprintable(count.problem)
        effects.append(f"not all could be counted: {reason}")
    text = ", ".join(effects) or "skips and re-reads nothing"
    if (seconds := count.seconds_behind) is None:
        return text
    behind = f"{duration_text(seconds * 1000)} behind" if seconds else "at the tip"
    return f"now {behind}; {text}"


def describe_seek(
    plan: SeekPlan, counts: Mapping[str, Count] | None = None
) -> list[str]:
    """Return a line that sums up a stream's seek, and lines for the first shards."""
    steps, now = plan.steps, plan.stream.info.now
    again = sum(step.row.ended for step in steps)
    ended = f", {again} of them ended and read again" if again else ""
    name = shorten(escape_unprintable(stream_name(plan.stream.arn)), MAX_STREAM_LETTERS)
    to = position_text(plan.to)
    if isinstance(plan.to, Position):
        to = f"position {shorten(to, MAX_STREAM_LETTERS)}"
    lines = [f"stream {name}: {counted(len(steps), 'shard')} to {to}{ended}"]
    if counts is not None:
        lines.append(describe_count(total(counts.values()), now))
    shards = []
    for step in steps:
        shard_id, texts = step.row.key.shard_id, _state(step)
        if counts is not None:
            # The stream's line has the time of the first record that is read again.
            count = counts[shard_id]._replace(repeated_since=None)
            texts.append(describe_count(count, now))
        shards.append(f"{shard_id}  {'; '.join(texts)}".rstrip())
    return [*lines, *first_lines(shards)]


def _state(step: SeekStep) -> list[str]:
    if step.is_new:
        return ["not consumed yet"]
    if step.row.ended:
        return ["ended"]
    owner = step.row.owner_id
    return [f"owner {escape_unprintable(owner)}"] if owner else []

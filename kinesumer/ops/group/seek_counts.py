"""Count how many records a seek skips or re-reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import KinesumerError
from kinesumer.ops.group.sampling import (
    TIP_SECONDS,
    ShardSampler,
    estimate_records,
    is_at_tip,
    page_end,
    page_start,
    sample_page,
)
from kinesumer.ops.group.shard_reads import PacedReader, gather_by_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.core.lineage import SeekStep
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import Start
    from kinesumer.ops.group.seek import SeekPlan

# The number of small pages that are counted before the rest is estimated.
COUNTED_PAGES = 12
SAMPLES = 4  # parts into which the rest of a shard is divided for sampling
# The time between two reads of a shard, since consumers share its five reads a second.
READ_INTERVAL_SECONDS = 0.25


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


def total(counts: Sequence[Count]) -> Count:
    """Return the sum of counts: the largest lag, the earliest time, one problem."""
    lags = (c.seconds_behind for c in counts if c.seconds_behind is not None)
    times = (c.repeated_since for c in counts if c.repeated_since is not None)
    return Count(
        sum(count.skipped for count in counts),
        sum(count.repeated for count in counts),
        all(count.exact for count in counts),
        next((count.problem for count in counts if count.problem), ""),
        max(lags, default=None),
        min(times, default=None),
    )


class ReadPoint(NamedTuple):
    """The place in a shard at which reading begins."""

    page: Page  # the first page from this place; empty at the shard's tip
    at: float  # the first record's arrival, in Unix time; the current time at the tip

    @property
    def sequence_number(self) -> int | None:
        """The first record's sequence number; None at the tip."""
        records = self.page.records
        return _number(records[0]) if records else None


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
        then = await _find_point(sampler, to)
        if row.ended:  # clients have read the whole shard
            count = await _count_between(sampler, then, None)
            return _repeated_from(then, count)
        now = await _find_point(sampler, row.position or row.start)
        behind = max(sampler.now() - now.at, 0.0) if now.page.records else 0.0
        first, other = now.sequence_number, then.sequence_number
        if first == other:
            return Count(seconds_behind=behind)
        if first is None or (other is not None and other < first):
            count = await _count_between(sampler, then, now)
            return _repeated_from(then, count._replace(seconds_behind=behind))
        skipped = await _count_between(sampler, now, then)
        return Count(skipped.repeated, 0, skipped.exact, seconds_behind=behind)
    except KinesumerError as error:
        return Count(problem=str(error))


def _repeated_from(first: ReadPoint, count: Count) -> Count:
    return count._replace(repeated_since=first.at) if count.repeated else count


async def _find_point(sampler: ShardSampler, after: Position | Start) -> ReadPoint:
    page = await sampler.read_first(after)
    return ReadPoint(page, page_start(page, sampler.now()))


async def _count_between(
    sampler: ShardSampler, first: ReadPoint, last: ReadPoint | None
) -> Count:
    """Count the records between two points, or up to the tip, as repeated."""
    end = last.sequence_number if last is not None else None
    page, began, counted = first.page, first.at, 0
    for _ in range(COUNTED_PAGES):
        before = [r for r in page.records if end is None or _number(r) < end]
        counted += len(before)
        if is_at_tip(page) or len(before) < len(page.records):
            return Count(repeated=counted)
        began = page_end(page, sampler.now())
        page = await sampler.read_more(page)
    now = sampler.now()
    until = now if last is None or end is None else last.at
    seconds = max(until - began, 0.0)
    starts = [began + seconds * part / SAMPLES for part in range(1, SAMPLES)]
    samples = [
        sample_page(page, began, now),
        *[await sampler.since(start) for start in [*starts, until - TIP_SECONDS]],
    ]
    records = estimate_records(counted, round(seconds * 1000), samples)
    return Count(repeated=records, exact=False)


def _number(record: Record) -> int:
    return int(record.sequence_number)

"""Count how many records a seek skips or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag_trend import (
    estimate_records,
    is_at_tip,
    page_millis_behind,
    sample_page,
)
from kinesumer.admin.sampling import TIP_SECONDS, ShardSampler
from kinesumer.admin.shard_reads import PacedReader, ServiceClock
from kinesumer.errors import KinesumerError
from kinesumer.runtime.tasks import gather_or_cancel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.admin.seek import SeekPlan
    from kinesumer.core.seek import Step
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import Start

COUNTED_PAGES = 12
"""The number of small pages that are counted before the rest is estimated."""
SAMPLES = 4
"""The number of parts of the rest; a sample is taken at each of their ends."""
READ_INTERVAL_SECONDS = 0.25
"""The time between two reads of a shard, since consumers share its five reads a second.
"""


class Count(NamedTuple):
    """The effect of a seek on one shard, or on several together."""

    skipped: int = 0
    """Records that no client has received or will receive."""
    repeated: int = 0
    """Records that clients have received and will receive again."""
    exact: bool = True
    """Whether the records were counted rather than estimated from samples."""
    problem: str = ""
    """Why some or all records couldn't be counted."""


def total(counts: Sequence[Count]) -> Count:
    """Return the sum of counts, with the first problem."""
    return Count(
        sum(count.skipped for count in counts),
        sum(count.repeated for count in counts),
        all(count.exact for count in counts),
        next((count.problem for count in counts if count.problem), ""),
    )


class ReadPoint(NamedTuple):
    """The place in a shard at which reading begins."""

    page: Page
    """The first page from there on; empty at the shard's tip."""
    at: float
    """When its first record arrived, in seconds since 1970; now at the tip."""

    @property
    def sequence_number(self) -> int | None:
        """The first record's sequence number; None at the tip."""
        records = self.page.records
        return _number(records[0]) if records else None


async def count_seek(
    plan: SeekPlan, reader: PacedReader | None = None
) -> dict[str, Count]:
    """Return what a seek skips and repeats in each of its shards, by shard id."""
    source, clock = plan.stream.source, ServiceClock(plan.stream.info.now)
    reader = reader or PacedReader(READ_INTERVAL_SECONDS)
    counts = await gather_or_cancel(
        _count_step(ShardSampler(reader, source, step.row.key, clock), step, plan.to)
        for step in plan.steps
    )
    ids = [step.row.key.shard_id for step in plan.steps]
    return dict(zip(ids, counts, strict=True))


async def _count_step(sampler: ShardSampler, step: Step, to: Position | Start) -> Count:
    row = step.row
    try:
        then = await _find_point(sampler, to)
        if row.ended:  # all of it has been read
            return await _count_between(sampler, then, None)
        now = await _find_point(sampler, row.position or row.start)
        first, other = now.sequence_number, then.sequence_number
        if first == other:
            return Count()
        if first is None or (other is not None and other < first):
            return await _count_between(sampler, then, now)
        skipped = await _count_between(sampler, now, then)
        return Count(skipped.repeated, 0, skipped.exact)
    except KinesumerError as error:
        return Count(problem=str(error))


async def _find_point(sampler: ShardSampler, after: Position | Start) -> ReadPoint:
    page = await sampler.read_first(after)
    now = sampler.clock.now()
    return ReadPoint(page, now - page_millis_behind(page, now) / 1000)


async def _count_between(
    sampler: ShardSampler, first: ReadPoint, last: ReadPoint | None
) -> Count:
    """Count the records from a point to another one or to the tip, as repeated."""
    end = last.sequence_number if last is not None else None
    page, began, counted = first.page, first.at, 0
    for _ in range(COUNTED_PAGES):
        before = [r for r in page.records if end is None or _number(r) < end]
        counted += len(before)
        if is_at_tip(page) or len(before) < len(page.records):
            return Count(repeated=counted)
        began = sampler.clock.now() - page.millis_behind / 1000
        page = await sampler.read_more(page)
    now = sampler.clock.now()
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

"""How many records a seek skips or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag_trend import (
    estimate_records,
    is_at_tip,
    page_millis_behind,
    sample_page,
)
from kinesumer.admin.sampling import TIP_SECONDS, read_more, sample_since
from kinesumer.admin.shard_reads import PacedReader, ServiceClock
from kinesumer.errors import KinesumerError
from kinesumer.runtime.tasks import gather_or_cancel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.admin.seek import SeekPlan
    from kinesumer.core.seek import Step
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import ShardKey, Start
    from kinesumer.ports import StreamSource


class Count(NamedTuple):
    """What a seek does to one shard, or to several together."""

    skipped: int = 0
    """Records that no client has got, and none will get."""
    repeated: int = 0
    """Records that clients have got, and will get again."""
    exact: bool = True
    """Whether they were counted; else they are estimated from samples."""
    problem: str = ""
    """Why they couldn't be counted, or not all of them."""


def total(counts: Sequence[Count]) -> Count:
    """Return the sum of counts; its problem is the first one."""
    return Count(
        sum(count.skipped for count in counts),
        sum(count.repeated for count in counts),
        all(count.exact for count in counts),
        next((count.problem for count in counts if count.problem), ""),
    )


COUNTED_PAGES = 12
"""Small pages of a shard that are gone through before the rest is estimated."""


SAMPLES = 4
"""Parts of the rest between whose ends it is sampled."""


READ_INTERVAL_SECONDS = 0.25
"""Between two reads of a shard, whose consumers have the same five reads a second."""


EMPTY_PAGES = 20
"""Pages may be empty where there are records further on; so many are gone through."""


class ReadPoint(NamedTuple):
    """Where a shard's reading begins, or would begin."""

    page: Page
    """What comes first there; it is empty at the shard's tip."""
    at: float
    """When that arrived, in seconds since 1970; now, if there is nothing."""

    @property
    def sequence_number(self) -> int | None:
        """Return that of the first record; None at the tip."""
        records = self.page.records
        return _number(records[0]) if records else None


async def count_seek(
    plan: SeekPlan, asking: PacedReader | None = None
) -> dict[str, Count]:
    """Return what a seek skips and repeats in each of its shards, by shard id."""
    source, clock = plan.stream.source, ServiceClock(plan.stream.info.now)
    asking = PacedReader(READ_INTERVAL_SECONDS) if asking is None else asking
    counts = await gather_or_cancel(
        _of_step(asking, source, step, plan.to, clock) for step in plan.steps
    )
    ids = [step.row.key.shard_id for step in plan.steps]
    return dict(zip(ids, counts, strict=True))


async def _of_step(
    asking: PacedReader,
    source: StreamSource,
    step: Step,
    to: Position | Start,
    clock: ServiceClock,
) -> Count:
    row = step.row
    try:
        then = await _place(asking, source, row.key, to, clock)
        if row.ended:  # all of it has been read
            return await _count(asking, source, row.key, then, None, clock)
        position = row.position or row.start
        now = await _place(asking, source, row.key, position, clock)
        first, other = now.sequence_number, then.sequence_number
        if first == other:
            return Count()
        if first is None or (other is not None and other < first):
            return await _count(asking, source, row.key, then, now, clock)
        skipped = await _count(asking, source, row.key, now, then, clock)
        return Count(skipped.repeated, 0, skipped.exact)
    except KinesumerError as error:
        return Count(problem=str(error))


async def _place(
    asking: PacedReader,
    source: StreamSource,
    key: ShardKey,
    after: Position | Start,
    clock: ServiceClock,
) -> ReadPoint:
    """Return what comes first after a place."""
    page = await asking.read(source, key, after, 1)
    for _ in range(EMPTY_PAGES):
        if page.records or is_at_tip(page):
            break
        assert page.next_iterator is not None
        page = await asking.read_on(source, key, page.next_iterator, 1)
    now = clock.now()
    return ReadPoint(page, now - page_millis_behind(page, now) / 1000)


async def _count(
    asking: PacedReader,
    source: StreamSource,
    key: ShardKey,
    first: ReadPoint,
    last: ReadPoint | None,
    clock: ServiceClock,
) -> Count:
    """Return how many records there are from a place on, before another or the tip.

    They count as repeated.
    """
    end = last.sequence_number if last is not None else None
    page, began, found = first.page, first.at, 0
    for _ in range(COUNTED_PAGES):
        before = [r for r in page.records if end is None or _number(r) < end]
        found += len(before)
        if is_at_tip(page) or len(before) < len(page.records):
            return Count(repeated=found)
        began = clock.now() - page.millis_behind / 1000
        page = await read_more(asking, source, key, page)
    now = clock.now()
    until = now if last is None or end is None else last.at
    seconds = max(until - began, 0.0)
    samples = [sample_page(page, began, now)]
    for part in range(1, SAMPLES):
        moment = began + seconds * part / SAMPLES
        samples.append(await sample_since(asking, source, key, moment, clock))
    samples.append(await sample_since(asking, source, key, until - TIP_SECONDS, clock))
    return Count(
        repeated=estimate_records(found, round(seconds * 1000), samples), exact=False
    )


def _number(record: Record) -> int:
    return int(record.sequence_number)

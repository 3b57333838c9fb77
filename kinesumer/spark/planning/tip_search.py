"""Search for a shard's tip by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesumer.spark.offsets.model import After
    from kinesumer.spark.planning.probe import ProbedRecord, ProbeResult, ShardProbe

RESOLUTION_SECONDS = 0.002
MAX_LOOKS = 40
WALK_RECORDS, WALK_PAGES = 10_000, 5
"""Limits of reading ahead where a bisection by time fails: servers without limits
accept many records in one moment."""
BURST_PER_SECOND = 4_000.0
SLACK_SECONDS = 2.0
"""The maximum difference of clocks."""


class TipBounds(NamedTuple):
    """Known bounds of a tip, and the size of a probe."""

    now: float
    sample: int
    ahead: int
    """The number of records to read ahead, in case the tip is near."""
    known_quiet: bool = False
    """True if it is known that nothing has arrived since ``now``."""


class TipResult(NamedTuple):
    """The last record that the search found."""

    last: ProbedRecord
    at_tip: bool = False
    closed: bool = False
    """The shard is closed, and nothing follows."""

    def within(self, target: After) -> TipResult:
        """Return this result, or the target if the result lies after it."""
        if not self.closed and self.last.position <= target.position:
            return self
        last = self.last._replace(position=target.position, arrived_at=target.seen)
        return TipResult(last)


async def find_tip(
    probe: ShardProbe, result: ProbeResult, bound: TipBounds
) -> TipResult:
    """Continue from a probe that ended before the tip, to about the tip."""
    result = await probe.further(result, bound.ahead)
    if result.at_tip:
        return remember_tip(probe, result)
    if bound.known_quiet:
        return await _bisect(probe, result, bound)
    there = await probe.at(bound.now, bound.sample)
    if _is_newer(there, result):
        return remember_tip(probe, there)
    if there.at_tip and there.closed:
        return TipResult(result.records[-1], closed=True)
    if there.at_tip and there.records:
        return TipResult(result.records[-1], at_tip=True)
    if not there.at_tip:
        return await _walk(probe, result, bound)
    return await _bisect(probe, result, bound)


async def _bisect(
    probe: ShardProbe, result: ProbeResult, bound: TipBounds
) -> TipResult:
    """Find the tip between the last known record and a time without later records.

    The first search of a quiet shard stops when it would have to wait. The next search
    continues to the tip: an old tip takes two batches at most.
    """
    high, resumed = bound.now, False
    best = result
    if probe.quiet is not None and probe.quiet[0] < high:
        there = await probe.at(probe.quiet[1] - SLACK_SECONDS, bound.sample)
        if _is_newer(there, best):
            best = there
        elif there.at_tip:
            high, resumed = probe.quiet[0], True
    for _ in range(MAX_LOOKS):
        low = best.records[-1].arrived_at
        if best.at_tip or high - low <= RESOLUTION_SECONDS:
            break
        if not resumed and not probe.may_read:
            break
        middle = (low + high) / 2
        there = await probe.at(middle, bound.sample)
        if _is_newer(there, best):
            best = there
        elif there.at_tip:
            high = middle
        else:
            break
    probe.quiet = (high, bound.now)
    low = best.records[-1].arrived_at
    if best.at_tip:
        return remember_tip(probe, best)
    if best is result or high - low <= RESOLUTION_SECONDS:
        return await _walk(probe, best, bound)
    return remember_tip(probe, best)


async def _walk(probe: ShardProbe, result: ProbeResult, bound: TipBounds) -> TipResult:
    """Read ahead, if a bisection fails or would have to wait."""
    result = await probe.further(result, bound.ahead)
    for _ in range(WALK_PAGES):
        if result.at_tip or result.iterator is None or not _is_burst(result):
            break
        result.records = result.records[-1:]
        result = await probe.further(result, WALK_RECORDS)
    return remember_tip(probe, result)


def remember_tip(probe: ShardProbe, result: ProbeResult) -> TipResult:
    """Return the last record of a probe, and store the iterator after it."""
    last = result.records[-1]
    if result.iterator is not None:
        probe.keep_after(last, result)
    return TipResult(last, result.at_tip, result.closed)


def _is_newer(there: ProbeResult, than: ProbeResult) -> bool:
    return bool(there.records) and there.records[-1] > than.records[-1]


def _is_burst(result: ProbeResult) -> bool:
    """Tell whether records arrived faster than AWS allows."""
    first, last = result.records[0], result.records[-1]
    span = last.arrived_at - first.arrived_at
    return len(result.records) > 1 and span * BURST_PER_SECOND < len(result.records)

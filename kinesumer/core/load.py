"""Measure the load that shards cause, report it, and remember what members report."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, zip_longest
from math import inf
from typing import Generic, NamedTuple, TypeVar

from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.streams import ShardKey

K = TypeVar("K")

# An average is that of this time, or of the time since the load changed.
AVERAGE_SECONDS = 180.0


class ChangeThreshold(NamedTuple):
    """A change: the last seconds' average differs by more than so many percent."""

    seconds: float
    percent: int


# So noise is averaged out over minutes, but changes are followed within seconds.
# Averages of noise differ less if they cover a longer time.
CHANGES = (
    ChangeThreshold(10.0, 30),
    ChangeThreshold(30.0, 15),
    ChangeThreshold(60.0, 10),
)
# The least time between two counts that are kept, and between two comparisons of plans.
COUNTS_SECONDS = 5.0
# A shard's load counts as known after it has been measured for this long.
MIN_MEASURED_SECONDS = 6.0
# After this time without a report, the last known load or lag of a shard isn't used.
UNKNOWN_SECONDS = 60.0

# The work of a shard is in microseconds of a processor per second. These are the costs
# of a shard without records, of a record and of a byte, beside the user code's time.
SHARD_MICROSECONDS = 1000
RECORD_MICROSECONDS = 10
BYTE_MICROSECONDS = 0.02


def work_of(load: Load) -> int:
    """Return the work of a shard, as one whole number."""
    return round(
        SHARD_MICROSECONDS
        + RECORD_MICROSECONDS * load.records_per_second
        + BYTE_MICROSECONDS * load.bytes_per_second
        + 1e6 * load.handler_seconds_per_second
    )


def work_of_report(report: LoadReport) -> int:
    """Return the work of all shards of a report."""
    return work_of(report.load) + SHARD_MICROSECONDS * (report.shards - 1)


@dataclass(eq=False, slots=True)
class LoadMeter:
    """Counts what one owner of a shard reads, and the time that user code takes."""

    records: int = 0
    size: int = 0  # bytes of the records' data
    handler_seconds: float = 0.0


class _Counts(NamedTuple):
    """The counts of a meter at one time."""

    at: float
    size: int
    records: int
    handler_seconds: float

    def average_until(self, now: _Counts) -> Load:
        """Return the average load from this time to a later one."""
        seconds = now.at - self.at
        return Load(
            (now.size - self.size) / seconds,
            (now.records - self.records) / seconds,
            (now.handler_seconds - self.handler_seconds) / seconds,
        )


class _History(NamedTuple):
    """The counts of a meter, the oldest first, and the last change of its load."""

    counts: list[_Counts]
    # Until this time, the average is that of the last ``recent_seconds``.
    changed_until: float = -inf
    recent_seconds: float = AVERAGE_SECONDS


class LoadAverages(Generic[K]):
    """Averages what meters count."""

    def __init__(self) -> None:
        self._histories: dict[K, _History] = {}

    def update(self, meters: Mapping[K, LoadMeter], now: float) -> dict[K, Load]:
        """Return the load of each meter that has been known for long enough.

        ``meters`` holds all meters, so that those of lost shards are forgotten.
        """
        before, self._histories = self._histories, {}
        loads: dict[K, Load] = {}
        for key, meter in meters.items():
            counts = _Counts(now, meter.size, meter.records, meter.handler_seconds)
            history = _since_change(before.get(key, _History([])), counts)
            self._histories[key], kept = history, history.counts
            if kept and now - kept[0].at >= MIN_MEASURED_SECONDS:
                loads[key] = kept[0].average_until(counts)
            if not kept or now - kept[-1].at >= COUNTS_SECONDS:
                kept.append(counts)
        return loads


def _since_change(history: _History, now: _Counts) -> _History:
    """Return the counts of the last minutes, or of the time since the load changed."""
    counts, changed_until, recent_seconds = history
    for seconds, percent in CHANGES:
        recent = _last(counts, now, seconds)
        if len(recent) == len(counts):
            break
        whole, last = (work_of(part[0].average_until(now)) for part in (counts, recent))
        if 100 * abs(last - whole) > percent * whole:
            # At first, these seconds also have counts from before the change.
            changed_until = now.at + seconds + COUNTS_SECONDS
            recent_seconds = seconds
            break
    has_changed = now.at <= changed_until
    kept = _last(counts, now, recent_seconds if has_changed else AVERAGE_SECONDS)
    return _History(kept, changed_until, recent_seconds)


def _last(counts: list[_Counts], now: _Counts, seconds: float) -> list[_Counts]:
    """Return the counts of the last seconds, or all counts if there are fewer."""
    older = bisect_right(counts, now.at - seconds, key=lambda one: one.at)
    return counts[max(0, older - 1) :]


def report_loads(
    loads: Mapping[tuple[ShardKey, int], Load], most: int
) -> list[LoadReport]:
    """Return at most ``most`` reports of shards, by key and starting hash key.

    If there are more shards, reports cover several successive shards of a stream. Those
    reports have as little work as possible, so that busy shards have their own ones.
    Each stream has one report at least.
    """
    ordered = sorted((key.stream_arn, at, loads[key, at]) for key, at in loads)
    streams = [list(shards) for _, shards in groupby(ordered, lambda shard: shard[0])]
    sums = [
        list(accumulate((work_of(load) for *_, load in shards), initial=0))
        for shards in streams
    ]
    low, high = 0, sum(each[-1] for each in sums)
    while low < high:
        middle = (low + high) // 2
        if sum(len(_cuts(each, middle)) for each in sums) <= most:
            high = middle
        else:
            low = middle + 1
    return [
        _report(shards[begin:end])
        for shards, each in zip(streams, sums, strict=True)
        for begin, end in _cuts(each, high)
    ]


def _cuts(sums: Sequence[int], work: int) -> list[tuple[int, int]]:
    """Cut shards into runs with at most this work, or of a single shard."""
    cuts, end = list[tuple[int, int]](), 0
    while end < len(sums) - 1:
        begin = end
        end = max(begin + 1, bisect_right(sums, sums[begin] + work) - 1)
        cuts.append((begin, end))
    return cuts


def _report(shards: Sequence[tuple[str, int, Load]]) -> LoadReport:
    arn, first, _ = shards[0]
    rates = zip(*(load for *_, load in shards), strict=True)
    return LoadReport(arn, first, len(shards), Load(*map(sum, rates)))


class KnownLoads:
    """The last load of each shard that a member has reported.

    So a shard's load stays known while the shard moves to another member.
    """

    def __init__(self) -> None:
        self.loads: Mapping[tuple[str, int], Load] = {}  # by ARN and starting hash key
        # When a shard without a known load was first planned.
        self._unknown_since: dict[tuple[str, int], float] = {}

    def observe(
        self, reports: Iterable[LoadReport], shards: Mapping[str, Sequence[int]]
    ) -> None:
        """Record what members report.

        ``shards`` holds the starting hash keys of each stream's open shards. Shards
        that aren't among them are forgotten.
        """
        loads: dict[tuple[str, int], Load] = {}
        ordered = sorted(reports, key=lambda report: report[:2])
        for report, following in zip_longest(ordered, ordered[1:]):
            arn, first, count, load = report
            keys = shards.get(arn, ())
            begin = bisect_left(keys, first)
            end = min(begin + count, len(keys))
            if following is not None and following[0] == arn:
                # Another member may own the shards from there on.
                end = min(end, max(begin + 1, bisect_left(keys, following[1])))
            for key in keys[begin:end]:
                loads[arn, key] = Load(*(rate / (end - begin) for rate in load))
        every = {(arn, key) for arn, keys in shards.items() for key in keys}
        known = {**self.loads, **loads}
        self.loads = {shard: known[shard] for shard in every & known.keys()}

    def work(
        self, shards: Mapping[str, Sequence[int]], now: float
    ) -> tuple[dict[str, list[int]], bool]:
        """Return the work of each shard, and whether it is known well enough."""
        every = [(arn, key) for arn, keys in shards.items() for key in keys]
        since = {
            s: self._unknown_since.get(s, now) for s in every if s not in self.loads
        }
        self._unknown_since = since
        known = {shard: work_of(load) for shard, load in self.loads.items()}
        usual = sum(known.values()) // len(known) if known else SHARD_MICROSECONDS
        work = {
            arn: [known.get((arn, key), usual) for key in keys]
            for arn, keys in shards.items()
        }
        is_known = bool(known) and all(
            now - began >= UNKNOWN_SECONDS for began in since.values()
        )
        return work, is_known

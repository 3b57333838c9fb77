"""Decide what a member reports of its shards' loads, if its row has little room."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby

from kinesumer.core.load import work_of
from kinesumer.core.load_assignor import (
    LABELS_SLACK,
    MEMBERS_SLACK,
    Verdict,
    assign_load,
)
from kinesumer.core.plan import Work, previous_ranges, receivers_of
from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import ShardKey


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


def load_reason(
    members: Sequence[MemberRow],
    shards: Mapping[str, Sequence[int]],
    work: Work,
    unknown_shards: int,
) -> str:
    """Return why a plan by load keeps or changes the present ranges of the members.

    The first three arguments are those of ``plan.make_plan``. The load of
    ``unknown_shards`` isn't known.
    """
    previous = previous_ranges(members)
    receivers = receivers_of(members)
    ranges, verdicts = assign_load(
        receivers, shards, work.of_shards, previous, is_known=work.is_known
    )
    if any(m.range != ranges.get(m.client_id, ()) for m in members):
        return _changed_text([verdict for verdict in verdicts if not verdict.is_kept])
    if not work.is_known:
        count = "1 shard" if unknown_shards == 1 else f"{unknown_shards} shards"
        return (
            f"ranges are kept: the load of {count} isn't known yet, and for up to a "
            "minute only shards without a client move"
        )
    return _kept_text(verdicts)


def _gain(verdict: Verdict) -> int:
    return verdict.top_percent - verdict.other_percent


def _taker(verdict: Verdict) -> str:
    is_label = verdict.slack == LABELS_SLACK
    return "label" if is_label else "client with several shards"


def _changed_text(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return (
            "clients have joined, left or changed: only their shards and those that "
            "they take over move"
        )
    verdict = max(verdicts, key=_gain)
    if verdict.slack is None or _gain(verdict) <= 0:
        return "shards move so that no client has more than its max_shards"
    return (
        f"shards move to lower the most work of a {_taker(verdict)} from "
        f"{verdict.top_percent} % to {verdict.other_percent} % of its share: "
        f"{verdict.moved_percent} % of the shards"
    )


def _kept_text(verdicts: Sequence[Verdict]) -> str:
    uneven = [verdict for verdict in verdicts if not verdict.is_even]
    if not uneven:
        return (
            "ranges are kept: no client with several shards has more than "
            f"{MEMBERS_SLACK.keep} % above its share of the work"
        )
    worst = max(uneven, key=lambda verdict: verdict.top_percent)
    top, other = worst.top_percent, worst.other_percent
    if _gain(worst) <= 0:
        return (
            f"ranges are kept: the busiest {_taker(worst)} has {top} % of its share of "
            "the work, and no other successive shards would lower that"
        )
    text = (
        f"ranges are kept: other ranges would lower the most work of a {_taker(worst)} "
        f"only from {top} % to {other} % of its share"
    )
    if worst.moved_percent:
        text += f", and move {worst.moved_percent} % of the shards"
    return text

"""Decide what a member reports of its shards' loads, if its row has little room."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from kinesumer.core.load import work_of
from kinesumer.model.loads import Load, LoadReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

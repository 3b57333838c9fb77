"""Linear partitioning with hysteresis: ranges with even work, of which few move.

The present ranges are kept while no member has much more work than its share, or while
other ranges would hardly lower the most work. Otherwise their bounds move, as little as
necessary.

For example, two members have four shards each, with a work of 10 each. If the work of
the first shard grows to 15, its member has 45, and a share is 42.5. Nothing moves,
because 45 is less than 112 % of the share. If the work grows to 24, the member has 54,
and a share is 47. That is more than 112 %. If the member's last shard moves, the
members have 44 and 50. This lowers the most work by more than 1 %, so the shard moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from itertools import accumulate, groupby, pairwise
from math import ceil
from typing import NamedTuple

from kinesumer.core.assignment import (
    FREE,
    Member,
    Plan,
    make_rows,
    plan_of,
    previous_owners,
)
from kinesumer.core.linear_partition import (
    Partition,
    Span,
    Taker,
    arrange,
    longest_runs,
)
from kinesumer.model.streams import Range


class Slack(NamedTuple):
    """The work that a taker may have above its share, in percent of the share."""

    keep: int  # ranges are kept while no taker has more than this
    aim: int  # other ranges give no taker more than this, if possible


# The figures behind these numbers are in docs/decisions/01-load-plans.md.
MEMBERS_SLACK, LABELS_SLACK = Slack(12, 5), Slack(4, 2)
# Ranges are also kept if others lower the most work by at most so many percent, plus
# as many percent of the part of the shards that move.
LEAST_GAIN_PERCENT, MOVES_GAIN_PERCENT = 1, 10
# Beside a shard that alone has more than a share, the others' top may be so many times
# the slack above the lowest possible one.
HOT_SLACKS = 2


class Verdict(NamedTuple):
    """The reason for which the ranges of some takers were kept or changed.

    Tops are in percent of an even cut. Takers with a single slot don't count, since no
    cut can give them less.
    """

    is_kept: bool
    is_even: bool  # whether the slack is enough to keep the ranges
    top_percent: int  # if the ranges are kept
    other_percent: int  # with the other ranges, or the lowest top that is possible
    moved_percent: int  # how many slots move to other takers with the other ranges
    slack: Slack | None  # None if the work isn't known


def assign_load(
    members: Sequence[Member],
    shards: Mapping[str, Sequence[int]],
    work: Mapping[str, Sequence[int]],
    previous: Mapping[str, Range],
    *,
    is_known: bool = True,
) -> tuple[Plan, list[Verdict]]:
    """Assign each member a contiguous part of each row, by the work of its shards.

    Return the plan, and a verdict for each cut. The first arguments are those of
    ``assign_range``; ``work`` holds the work of each of a stream's ``shards``, and
    ``previous`` each client's range. A member that isn't in ``previous`` has joined.

    Members' work is in proportion to their weights, within the slack. A shard that
    alone exceeds a member's share gets a member of its own, and the others share the
    rest. The members of a label together have the label's share.

    If not all work ``is_known``, shards move only to members without a range, from
    members that are gone, and because of ``max_shards``.
    """
    verdicts: list[Verdict] = []
    loads, used = [0] * len(members), [0] * len(members)
    rows, owners = make_rows(members, shards), []
    for row in rows:
        slots = [
            size
            for arn, keys in groupby(row.slots, lambda slot: slot[0])
            for size in work[arn] or [0] * len(list(keys))
        ]
        takers = {
            m: Taker(members[m].weight, members[m].limit - used[m], loads[m])
            for m in row.requesters
        }
        owner = previous_owners(row, members, previous)
        owner, found = _cut_by_label(
            members, takers, slots, owner, previous, is_known=is_known
        )
        verdicts += found
        owners.append(owner)
        for size, m in zip(slots, owner, strict=True):
            if m != FREE:
                loads[m] += size
                used[m] += 1
    return plan_of(members, rows, owners), verdicts


def _cut_by_label(
    members: Sequence[Member],
    takers: Mapping[int, Taker],
    slots: Sequence[int],
    owner: Sequence[int],
    previous: Collection[str],
    *,
    is_known: bool,
) -> tuple[list[int], list[Verdict]]:
    """Cut a row among the labels, and each label's part among the label's members.

    Return the new owner of each slot.
    """
    groups: dict[str, list[int]] = {}
    for m in takers:
        groups.setdefault(members[m].label, []).append(m)
    labels = [groups[label] for label in sorted(groups)]
    number = {m: n for n, group in enumerate(labels) for m in group}
    planned = {m for m in takers if members[m].client_id in previous}
    whole = {n: _together([takers[m] for m in g]) for n, g in enumerate(labels)}
    spans = longest_runs([number.get(m, FREE) for m in owner])
    slack = LABELS_SLACK if is_known else None
    parts, verdict = _cut(slots, whole, spans, {number[m] for m in planned}, slack)
    result, verdicts = [FREE] * len(slots), [verdict]
    for n, (begin, end) in parts.items():
        inside = {m: takers[m] for m in labels[n]}
        spans = longest_runs([m if m in inside else FREE for m in owner[begin:end]])
        slack = MEMBERS_SLACK if is_known else None
        found, verdict = _cut(slots[begin:end], inside, spans, planned, slack)
        verdicts.append(verdict)
        for m, (first, stop) in found.items():
            result[begin + first : begin + stop] = [m] * (stop - first)
    return result, verdicts


def _together(takers: Sequence[Taker]) -> Taker:
    return Taker(*map(sum, zip(*takers, strict=True)))


def _cut(
    slots: Sequence[int],
    takers: Mapping[int, Taker],
    spans: Mapping[int, Span],
    planned: Collection[int],
    slack: Slack | None,
) -> tuple[dict[int, Span], Verdict]:
    """Return the slots of each taker, and why. ``spans`` are the slots that takers had.

    The takers ``planned`` have been planned for, so that those without a span had no
    slots. If the limits are too low, the last slots are in no span. Without ``slack``,
    only the limits are kept.
    """
    count = min(len(slots), sum(taker.limit for taker in takers.values()))
    sums = list(accumulate(slots[:count], initial=0))
    idle = {t for t in takers if spans and t in planned and t not in spans}
    kept = _arranged(sums, takers, spans, idle, slack)
    if kept.may_stay(0):
        return kept.spans(kept.bounds), kept.verdict(kept.percent(kept.best), 0, True)
    # Takers without slots get some only if others have too much work.
    other = _arranged(sums, takers, spans, set(), slack) if idle else kept
    shifted = other.shifted()
    found = other.spans(shifted)
    stays = sum(_common(spans[taker], found[taker]) for taker in spans)
    moved = count - stays if spans else 0
    is_kept = kept.may_stay(moved)
    moved_percent = -(-100 * moved // max(1, count))
    verdict = kept.verdict(other.top_percent(shifted), moved_percent, is_kept)
    return kept.spans(kept.bounds) if is_kept else found, verdict


def _common(one: Span, other: Span) -> int:
    """Return how many slots two spans have in common."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def _arranged(
    sums: Sequence[int],
    takers: Mapping[int, Taker],
    spans: Mapping[int, Span],
    idle: Set[int],
    slack: Slack | None,
) -> _Cut:
    """Return the cut in which takers keep their spans, and ``idle`` ones get none."""
    weights = {t: taker.weight for t, taker in takers.items()}
    order, wanted = arrange(sums, weights, spans, idle)
    partition = Partition(sums, [takers[t] for t in order])
    best = partition.most if slack is None else partition.lowest_top()
    return _Cut(partition, order, [0, *wanted, len(sums) - 1], slack, best)


class _Cut(NamedTuple):
    """A row, its takers in an order, and the bounds that they prefer."""

    partition: Partition
    order: Sequence[int]
    bounds: Sequence[int]
    slack: Slack | None  # None if only the limits matter
    best: int  # the lowest possible top

    def may_stay(self, moved: int) -> bool:
        """Return whether to keep the preferred bounds.

        Other bounds would move ``moved`` slots. In a small group, one slot is many
        percent, but the least that can move.
        """
        top = self.best
        if self.slack is not None:
            count = max(1, len(self.partition.sums) - 1)
            percent = (
                LEAST_GAIN_PERCENT + max(0, moved - 1) * MOVES_GAIN_PERCENT // count
            )
            top = max(self._share(self.slack.keep), top + top * percent // 100)
        return self.partition.fits(self.bounds, top)

    def shifted(self) -> list[int]:
        """Return bounds near the preferred ones that give no taker much work."""
        top = self.best
        if self.slack is not None:
            top = max(top, self._share(self.slack.aim))
        return self.partition.nearest(self.bounds, top)

    def spans(self, bounds: Sequence[int]) -> dict[int, Span]:
        """Return the slots that bounds give to each taker."""
        return dict(zip(self.order, pairwise(bounds), strict=True))

    def verdict(self, other_percent: int, moved_percent: int, is_kept: bool) -> Verdict:
        """Return why the preferred bounds are kept, or changed to others."""
        slack, top = self.slack, self.top_percent(self.bounds)
        is_even = slack is None or self.partition.fits(
            self.bounds, self._share(slack.keep)
        )
        return Verdict(is_kept, is_even, top, other_percent, moved_percent, slack)

    def top_percent(self, bounds: Sequence[int]) -> int:
        """Return the top that bounds give, in percent of an even cut."""
        return self.percent(self.partition.top(bounds))

    def percent(self, top: float) -> int:
        """Return a top in percent of an even cut."""
        return ceil(100 * top * self._weight / max(1, self.partition.most))

    @property
    def _weight(self) -> int:
        return sum(taker.weight for taker in self.partition.takers)

    def _share(self, percent: int) -> int:
        """Return the work per weight in an even cut, and some percent more.

        Beside a hot shard, all others can have less. This evens them out.
        """
        even = -(-self.partition.most * (100 + percent) // (100 * self._weight))
        return min(even, self.best + self.best * HOT_SLACKS * percent // 100)

"""Assign contiguous ranges whose work is in proportion to the members' weights.

A plan is changed only where it must: ranges keep their order and their ends as long as
no member has much more work than its share. All numbers are whole, so that comparisons
are exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, groupby, pairwise
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.assignment import (
    FREE,
    make_rows,
    plan_of,
    previous_owners,
)
from kinesumer.core.load_order import arrange, longest_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.core.assignment import Member, Plan
    from kinesumer.core.load_order import Span
    from kinesumer.model.streams import Range


class Slack(NamedTuple):
    """The work that a taker may have above its share, in percent of the share."""

    keep: int  # a plan is kept while no taker has more than this
    aim: int  # a new plan gives no taker more than this, if possible


MEMBERS_SLACK, LABELS_SLACK = Slack(10, 5), Slack(4, 2)


class Gain(NamedTuple):
    """By how many percent a new plan must lower the most work. Others are kept."""

    least: int
    per_moves: int  # so many percent more if all slots but one move
    # Whether also takers with less than their share, or the greatest top, are evened
    # out.
    evens: bool


# After a change, plans follow the averages closely, which become more exact. Later on,
# averages that differ a little are noise.
STEADY_GAIN = Gain(5, 40, evens=False)
CHANGED_GAIN = Gain(1, 2, evens=True)
# How often each two neighbours are evened out.
EVEN_ROUNDS = 8


class Taker(NamedTuple):
    """A member, or the members of a label together, that gets slots of a row."""

    weight: int
    limit: float  # the greatest number of slots
    load: int = 0  # the work of its slots in other rows
    # Whether it has never been planned for. Otherwise it may have had no slots.
    is_new: bool = True


class Verdict(NamedTuple):
    """Why the ranges of some takers were kept or changed.

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
    has_changed: bool = False,
) -> Plan:
    """Assign each member a contiguous part of each row, by the work of its shards.

    The arguments are those of ``assign_sticky``; ``work`` holds the work of each of a
    stream's ``shards``. A member that isn't in ``previous`` has joined.

    Members' work is in proportion to their weights, within the slack. A shard that
    alone exceeds a member's share gets a member of its own, and the others share the
    rest. The members of a label together have the label's share.

    If not all work ``is_known``, shards move only to members without a range, from
    members that are gone, and because of ``max_shards``. If members or their loads have
    just changed (``has_changed``), a smaller gain is enough to move shards.
    """
    plan, _ = judge_load(
        members, shards, work, previous, is_known=is_known, has_changed=has_changed
    )
    return plan


def judge_load(
    members: Sequence[Member],
    shards: Mapping[str, Sequence[int]],
    work: Mapping[str, Sequence[int]],
    previous: Mapping[str, Range],
    *,
    is_known: bool,
    has_changed: bool,
) -> tuple[Plan, list[Verdict]]:
    """Return the plan of ``assign_load``, and a verdict for each cut that it makes."""
    verdicts: list[Verdict] = []
    gain = CHANGED_GAIN if has_changed else STEADY_GAIN
    loads, used = [0] * len(members), [0] * len(members)
    rows, owners = make_rows(members, shards), []
    for row in rows:
        slots = [
            size
            for arn, keys in groupby(row.slots, lambda slot: slot[0])
            for size in work[arn] or [0] * len(list(keys))
        ]
        owner = previous_owners(row, members, previous)
        takers = {
            m: Taker(
                members[m].weight,
                _limit(members[m]) - used[m],
                loads[m],
                members[m].client_id not in previous,
            )
            for m in row.requesters
        }
        owner = _cut_by_label(
            members, takers, slots, owner, verdicts, gain, is_known=is_known
        )
        owners.append(owner)
        for size, m in zip(slots, owner, strict=True):
            if m != FREE:
                loads[m] += size
                used[m] += 1
    return plan_of(members, rows, owners), verdicts


def _limit(member: Member) -> float:
    return inf if member.max_shards is None else member.max_shards


def _cut_by_label(
    members: Sequence[Member],
    takers: Mapping[int, Taker],
    slots: Sequence[int],
    owner: Sequence[int],
    verdicts: list[Verdict],
    gain: Gain,
    *,
    is_known: bool,
) -> list[int]:
    """Cut a row among the labels, and each label's part among the label's members."""
    groups: dict[str, list[int]] = {}
    for member in takers:
        groups.setdefault(members[member].label, []).append(member)
    names = sorted(groups)
    number = {m: n for n, name in enumerate(names) for m in groups[name]}
    whole = dict(enumerate(_together(takers[m] for m in groups[n]) for n in names))
    spans = longest_runs([number.get(m, FREE) for m in owner])
    slack = LABELS_SLACK if is_known else None
    parts, verdict = _cut(slots, whole, spans, slack, gain)
    verdicts.append(verdict)
    result = [FREE] * len(slots)
    for label, (begin, end) in parts.items():
        inside = {m: takers[m] for m in groups[names[label]]}
        spans = longest_runs([m if m in inside else FREE for m in owner[begin:end]])
        slack = MEMBERS_SLACK if is_known else None
        found, verdict = _cut(slots[begin:end], inside, spans, slack, gain)
        verdicts.append(verdict)
        for m, (first, stop) in found.items():
            result[begin + first : begin + stop] = [m] * (stop - first)
    return result


def _together(takers: Iterable[Taker]) -> Taker:
    weights, limits, loads, are_new = zip(*takers, strict=True)
    return Taker(sum(weights), sum(limits), sum(loads), all(are_new))


def _cut(
    slots: Sequence[int],
    takers: Mapping[int, Taker],
    spans: Mapping[int, Span],
    slack: Slack | None,
    gain: Gain,
) -> tuple[dict[int, Span], Verdict]:
    """Return the slots of each taker, and why. ``spans`` are the slots that takers had.

    If the limits are too low, the last slots are in no span. Without ``slack``, only
    the limits are kept.
    """
    count = int(min(len(slots), sum(taker.limit for taker in takers.values())))
    sums = list(accumulate(slots[:count], initial=0))
    idle = {t for t in takers if spans and t not in spans and not takers[t].is_new}
    weights = {t: taker.weight for t, taker in takers.items()}
    order, wanted = arrange(sums, weights, spans, idle)
    kept = _Cut(sums, [takers[t] for t in order], [0, *wanted, count], slack, gain)
    result = dict(zip(order, pairwise(kept.bounds), strict=True))
    if kept.is_good_enough(0):
        return result, kept.verdict(kept.lowest_percent, 0, is_kept=True)
    # Takers without slots get some only if others have too much work.
    order, wanted = arrange(sums, weights, spans, set())
    cut = _Cut(sums, [takers[t] for t in order], [0, *wanted, count], slack, gain)
    others = cut.shift()
    shifted = dict(zip(order, pairwise(others), strict=True))
    stays = sum(_common(spans[taker], shifted[taker]) for taker in spans)
    moved = count - stays if spans else 0
    moved_percent = -(-100 * moved // max(1, count))
    is_kept = kept.is_good_enough(moved)
    verdict = kept.verdict(cut.top_percent(others), moved_percent, is_kept=is_kept)
    return result if is_kept else shifted, verdict


def _common(one: Span, other: Span) -> int:
    """Return how many slots two spans have in common."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


class _Cut:
    """A row that takers in a fixed order cut into ranges.

    A taker's *top* is the work that it has per weight. A single slot never exceeds it,
    unless its taker has work in other rows.
    """

    def __init__(
        self,
        sums: Sequence[int],
        takers: Sequence[Taker],
        bounds: Sequence[int],
        slack: Slack | None,
        gain: Gain,
    ) -> None:
        """``bounds`` are the preferred ones. Without ``slack``, work doesn't matter."""
        self._sums, self._takers = sums, takers
        self.bounds, self._slack, self._gain = bounds, slack, gain
        self._count = len(sums) - 1
        # No top is greater.
        self._most = sums[-1] + sum(taker.load for taker in takers)
        self._best = self._most if slack is None else self._lowest_top()

    def is_good_enough(self, moved: int) -> bool:
        """Return whether to keep the preferred bounds.

        Other bounds would move so many slots. The more of them move, the more must the
        greatest top fall. In a small group, one slot is many percent, but the least
        that can move.
        """
        if self._slack is None:
            return self._fits(self._best)
        more = max(0, moved - 1) * self._gain.per_moves // max(1, self._count)
        gain = self._gain.least + more
        least = self._best + self._best * gain // 100
        return self._fits(max(self._share(self._slack.keep), least))

    def shift(self) -> list[int]:
        """Return bounds near the preferred ones that give no taker much work."""
        top = self._best
        if self._slack is not None:
            top = max(top, self._share(self._slack.aim))
        firsts, found = self._firsts(top), [0]
        for taker, wanted, first in zip(
            self._takers, self.bounds[1:], [*firsts[1:], self._count], strict=True
        ):
            begin = found[-1]
            furthest = self._reach(taker, begin, top)
            found.append(min(max(wanted, first, begin), furthest))
        if self._slack is not None and self._gain.evens:
            self._even_out(found, self._share(self._slack.aim))
        return found

    def _even_out(self, bounds: list[int], aim: int) -> None:
        """Even out neighbours of which one has more than ``aim``.

        Measured work is not exact. If many takers had the greatest top that is allowed,
        some of them would in fact have more.
        """
        for _ in range(EVEN_ROUNDS):
            for at, (left, right) in enumerate(pairwise(self._takers), 1):
                begin, bound, end = bounds[at - 1 : at + 2]
                tops = self._top(left, begin, bound), self._top(right, bound, end)
                if max(tops) > aim:
                    bounds[at] = self._middle(left, right, (begin, bound, end))

    def _middle(self, left: Taker, right: Taker, bounds: tuple[int, int, int]) -> int:
        """Return the bound between two takers with which the greater top is lowest."""
        begin, bound, end = bounds
        low = int(max(begin, end - right.limit))
        high = int(min(end, begin + left.limit))

        def tops(at: int) -> tuple[float, float]:
            return self._top(left, begin, at), self._top(right, at, end)

        def left_has_more(at: int) -> bool:
            one, other = tops(at)
            return one >= other

        at = low + bisect_left(range(low, high), True, key=left_has_more)
        return min(bound, max(low, at - 1), at, key=lambda at: max(tops(at)))

    def verdict(
        self, other_percent: int, moved_percent: int, *, is_kept: bool
    ) -> Verdict:
        """Return why the preferred bounds are kept, or changed to others."""
        slack, top = self._slack, self.top_percent(self.bounds)
        is_even = slack is None or self._fits(self._share(slack.keep))
        return Verdict(is_kept, is_even, top, other_percent, moved_percent, slack)

    def top_percent(self, bounds: Sequence[int]) -> int:
        """Return the top that bounds give, in percent of an even cut."""
        spans = zip(self._takers, pairwise(bounds), strict=True)
        tops = (self._top(taker, begin, end) for taker, (begin, end) in spans)
        return self._percent(max(tops, default=0))

    def _top(self, taker: Taker, begin: int, end: int) -> float:
        """Return the top of a taker with a span, or 0 if no span can give it less."""
        if end - begin > 1 or (taker.load and end > begin):
            return (self._sums[end] - self._sums[begin] + taker.load) / taker.weight
        return 0.0

    @property
    def lowest_percent(self) -> int:
        """The lowest possible top, in percent of an even cut."""
        return self._percent(self._best)

    def _percent(self, top: float) -> int:
        weight = sum(taker.weight for taker in self._takers)
        return ceil(100 * top * weight / max(1, self._most))

    def _share(self, percent: int) -> int:
        """Return the work per weight in an even cut, and some percent more.

        Beside a hot shard, all others can have less. To even them out, they have at
        most twice as many percent more than the lowest possible top.
        """
        weight = sum(taker.weight for taker in self._takers)
        even = -(-self._most * (100 + percent) // (100 * weight))
        lowest = self._best + self._best * 2 * percent // 100
        return min(even, lowest) if self._gain.evens else even

    def _lowest_top(self) -> int:
        """Return the lowest top with which the takers can have all slots."""
        low, high = 0, self._most
        while low < high:
            middle = (low + high) // 2
            if self._firsts(middle)[0] == 0:
                high = middle
            else:
                low = middle + 1
        return high

    def _fits(self, top: int) -> bool:
        """Return whether the preferred bounds keep to ``top`` and to all limits."""
        spans = pairwise(self.bounds)
        return all(
            end == begin or self._reach(taker, begin, top) >= end
            for taker, (begin, end) in zip(self._takers, spans, strict=True)
        )

    def _reach(self, taker: Taker, begin: int, top: int) -> int:
        """Return the greatest end of a range of a taker that begins at a slot."""
        budget = self._sums[begin] + max(0, top * taker.weight - taker.load)
        end = bisect_right(self._sums, budget) - 1
        if not taker.load:
            end = max(end, begin + 1)
        return int(min(end, begin + taker.limit, self._count))

    def _firsts(self, top: int) -> list[int]:
        """Return the lowest slot from which each taker and the next reach the end.

        The first taker's is 0 only if the takers can have all slots.
        """
        end, found = self._count, []
        for taker in reversed(self._takers):
            budget = self._sums[end] - max(0, top * taker.weight - taker.load)
            begin = min(bisect_left(self._sums, budget), end)
            if not taker.load:
                begin = min(begin, end - 1)
            end = int(max(begin, end - taker.limit, 0))
            found.append(end)
        return found[::-1]

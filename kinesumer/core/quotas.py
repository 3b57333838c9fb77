"""Weighted max-min fair shares (water-filling), rounded to whole slots.

All claimants get the same number of slots per weight, the *level*. A claimant whose
limit is lower gets only its limit, and the others share the rest. What a claimant has
of other slots counts. For example, four claimants divide 12 slots at level 3:

    weight  limit  has of others   share
         1     12              0       3
         2     12              0       6
         1      1              0       1
         1     12              1       2
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple


class Claimant(NamedTuple):
    """One that gets a share of some slots."""

    weight: int
    limit: int  # the greatest number of these slots
    held: int = 0  # the number of other slots that it has

    def share_at(self, level: Fraction) -> Fraction:
        """Return its share if all claimants have ``level`` slots per weight."""
        room = level * self.weight - self.held
        return min(max(room, Fraction(0)), Fraction(self.limit))


def whole_shares(slots: int, claimants: Sequence[Claimant]) -> list[int]:
    """Return each claimant's number of slots, which is at most its limit.

    It differs from the exact share by less than one slot. So does the number of slots
    of each run of successive claimants. If the limits are too low, slots are left.
    """
    # Halves are rounded up. A whole share stays whole, since both its ends are rounded
    # alike.
    ends = accumulate(fair_shares(slots, claimants), initial=Fraction(1, 2))
    return [int(after) - int(before) for before, after in pairwise(ends)]


def fair_shares(slots: int, claimants: Sequence[Claimant]) -> list[Fraction]:
    """Return each claimant's exact share of the slots."""

    def shares_at(level: Fraction) -> list[Fraction]:
        return [claimant.share_at(level) for claimant in claimants]

    def taken(level: Fraction) -> Fraction:
        return sum(shares_at(level), Fraction(0))

    # Between two successive ones of these levels, all shares grow at constant rates.
    levels = sorted(
        {
            Fraction(claimant.held + part, claimant.weight)
            for claimant in claimants
            for part in (0, claimant.limit)
        }
    )
    at = bisect_right(levels, Fraction(slots), key=taken)
    if at == len(levels):
        return [Fraction(claimant.limit) for claimant in claimants]
    low, high = levels[at - 1], levels[at]
    part = (slots - taken(low)) / (taken(high) - taken(low))
    return shares_at(low + (high - low) * part)

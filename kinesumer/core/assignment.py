"""Assign hash-key ranges to members, as fair shares.

All streams that are requested by the same members form one row of *slots*, ordered by
ARN and hash key. A slot stands for a shard, and is its starting hash key. If members
request different streams, there are several rows, and the members' slots are balanced
over all rows together.

The shares are weighted max-min fair (water-filling), rounded to whole slots. All
claimants get the same number of slots per weight, the *level*. A claimant whose limit
is lower gets only its limit, and the others share the rest. What a claimant has of
other slots counts. For example, four claimants divide 12 slots at level 3:

    weight  limit  has of others   share
         1     12              0       3
         2     12              0       6
         1      1              0       1
         1     12              1       2
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from kinesumer.model.streams import HASH_KEYS, Interval, Range

Plan = dict[str, Range]

FREE = -1  # stands for the owner of a free slot


class Member(NamedTuple):
    """The properties of a client that an assignment depends on."""

    client_id: str
    weight: int
    streams: frozenset[str]  # the ARNs of the streams that it requests
    # The client's zone or cluster. The members of a label together get a fair share.
    label: str = ""
    max_shards: int | None = None

    @property
    def limit(self) -> int:
        """The greatest number of slots that it may have."""
        return sys.maxsize if self.max_shards is None else self.max_shards


def assign_range(
    members: Sequence[Member], shards: Mapping[str, Sequence[int]]
) -> Plan:
    """Assign each member a contiguous part of each row, in order of the members.

    ``members`` are sorted by client id. ``shards`` holds each stream's open shards as
    ascending starting hash keys; a stream without shards counts as one slot. Streams
    that no member requests are left out.

    Members get fair shares of slots, by weight. If all members request the same
    streams, each member's number of slots differs from its share by less than one, and
    so does each label's. Otherwise the rows are divided one after the other, those with
    the fewest members first, so that the members of later rows make up for earlier
    ones.

    No member gets more than ``max_shards`` slots. If too few slots are permitted, the
    last slots of a row belong to no member.
    """
    rows = make_rows(members, shards)
    owners, held = [], [0] * len(members)
    for row in rows:
        sizes = _sizes(members, row, held)
        owner = [m for m in row.requesters for _ in range(sizes[m])]
        owners.append(owner + [FREE] * (len(row.slots) - len(owner)))
        for m, size in sizes.items():
            held[m] += size
    return plan_of(members, rows, owners)


def _sizes(
    members: Sequence[Member], row: SlotRow, held: Sequence[int]
) -> dict[int, int]:
    """Return how many slots of a row each member gets. It has ``held`` of other rows.

    The members of a label follow each other, so that rounding favours no label. For
    example, two clusters of 100 members share 500 slots, and their ids alternate.
    Rounded in the order of ids, each member of one cluster could get three slots, and
    each member of the other cluster two.
    """
    slots = len(row.slots)
    order = sorted(row.requesters, key=lambda m: members[m].label)
    claimants = [
        Claimant(members[m].weight, min(slots, members[m].limit - held[m]), held[m])
        for m in order
    ]
    return dict(zip(order, whole_shares(slots, claimants), strict=True))


# --- rows ----------------------------------------------------------------------------


class SlotRow(NamedTuple):
    """The streams that the same members request, in one sequence of slots."""

    requesters: tuple[int, ...]  # indexes of members, ascending
    # Pairs of stream ARN and starting hash key, ascending. Each stream's first key is
    # 0.
    slots: list[tuple[str, int]]


def make_rows(
    members: Sequence[Member], shards: Mapping[str, Sequence[int]]
) -> list[SlotRow]:
    """Group the streams by the members that request them, fewest members first."""
    slots: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for arn in sorted(shards):
        requesters = tuple(
            i for i, member in enumerate(members) if arn in member.streams
        )
        if requesters:
            row = slots.setdefault(requesters, [])
            row.append((arn, 0))
            row.extend((arn, key) for key in shards[arn][1:])
    return [
        SlotRow(requesters, slots[requesters])
        for requesters in sorted(
            slots, key=lambda requesters: (len(requesters), requesters)
        )
    ]


def plan_of(
    members: Sequence[Member],
    rows: Sequence[SlotRow],
    owners: Sequence[Sequence[int]],
) -> Plan:
    """Turn the slots' owners into intervals without overlaps.

    The intervals cover each stream, except for the slots that are FREE.
    """
    intervals: list[list[Interval]] = [[] for _ in members]
    for row, owner in zip(rows, owners, strict=True):
        runs = groupby(zip(row.slots, owner, strict=True), lambda it: (it[0][0], it[1]))
        begun = [(arn, holder, next(run)[0][1]) for (arn, holder), run in runs]
        ends = [key - 1 if key else HASH_KEYS - 1 for _, _, key in begun[1:]]
        ends.append(HASH_KEYS - 1)
        for (arn, holder, first), last in zip(begun, ends, strict=True):
            if holder != FREE:
                intervals[holder].append(Interval(arn, first, last))
    return {
        member.client_id: tuple(sorted(ranges))
        for member, ranges in zip(members, intervals, strict=True)
    }


def previous_owners(
    row: SlotRow, members: Sequence[Member], previous: Mapping[str, Range]
) -> list[int]:
    """Return each slot's previous owner or FREE. Of two owners, return the first."""
    owner = [FREE] * len(row.slots)
    for requester in row.requesters:
        for arn, first, last in previous.get(members[requester].client_id, ()):
            begin = bisect_left(row.slots, (arn, first))
            for slot in range(begin, bisect_right(row.slots, (arn, last))):
                if owner[slot] == FREE:
                    owner[slot] = requester
    return owner


def runs_of(owner: Sequence[int]) -> list[tuple[int, int]]:
    """Return the start and end of each run of slots with one owner."""
    cuts = [i for i in range(1, len(owner)) if owner[i] != owner[i - 1]]
    return list(zip([0, *cuts], [*cuts, len(owner)], strict=True))


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

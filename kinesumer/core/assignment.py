"""Assigns hash-key ranges to members.

All streams that the same members request form one row of *slots*, ordered by ARN and
hash key. A slot is a shard's starting hash key. If members request different streams,
there are several rows, and the members' slots are balanced over all rows together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.balance import Pool, Weights, balance, shares_of
from kinesumer.model.streams import HASH_KEYS, Interval, Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Plan = dict[str, Range]

FREE = -1
"""The owner of a slot without an owner."""


class Member(NamedTuple):
    """A client as the assignors need it."""

    client_id: str
    weight: int
    streams: frozenset[str]
    """The ARNs of the streams that it requests."""
    label: str = ""
    """Its zone or cluster: the members of a label get their fair share together."""


def assign_range(
    members: Sequence[Member], shards: Mapping[str, Sequence[int]]
) -> Plan:
    """Assign each member a contiguous part of each row, in order of the members.

    ``members`` are sorted by client id. ``shards`` holds each stream's open shards as
    ascending starting hash keys; a stream without shards is one slot. Streams that no
    member requests are left out. If all members request the same streams and have equal
    weights, sizes differ by at most one. Without labels the cuts are those of Kinesumer
    for Go. With labels each label's total is less than one slot off its fair share.
    """
    rows = _rows(members, shards)
    pools, claims = [row.pool for row in rows], _weights_of(members)
    owned = [dict.fromkeys(row.requesters, 0) for row in rows]
    if len(rows) > 1:
        balance(claims, pools, owned)
    else:
        owned = [shares_of(claims, pool) for pool in pools]
    owners = [
        [requester for requester in row.requesters for _ in range(counts[requester])]
        for row, counts in zip(rows, owned, strict=True)
    ]
    return _plan(members, rows, owners)


def assign_sticky(
    members: Sequence[Member],
    shards: Mapping[str, Sequence[int]],
    previous: Mapping[str, Range],
) -> Plan:
    """Move only shards without an owner and those above a member's fair share.

    The arguments are those of ``assign_range``; ``previous`` holds each client's range.
    A member's excess comes off the ends of its shortest runs. Free slots go to
    neighbours first, so that each member has few runs. A label's slots above its share
    are excess, too.
    """
    rows = _rows(members, shards)
    owners = [_previous_owners(row, members, previous) for row in rows]
    owned = [
        dict.fromkeys(row.requesters, 0) | Counter(filter(FREE.__lt__, owner))
        for row, owner in zip(rows, owners, strict=True)
    ]
    balance(_weights_of(members), [row.pool for row in rows], owned)
    for owner, counts in zip(owners, owned, strict=True):
        _release_excess(owner, counts)
        _fill(owner, counts)
    return _plan(members, rows, owners)


# --- rows ----------------------------------------------------------------------------


class _Row(NamedTuple):
    """The streams that the same members request, in one sequence of slots."""

    requesters: tuple[int, ...]
    """Indexes of members, ascending."""
    slots: list[tuple[str, int]]
    """(stream ARN, starting hash key), ascending; each stream's first is 0."""

    @property
    def pool(self) -> Pool:
        """The row as ``balance()`` needs it."""
        return Pool(self.requesters, len(self.slots))


def _weights_of(members: Sequence[Member]) -> Weights:
    return Weights([m.weight for m in members], [m.label for m in members])


def _rows(members: Sequence[Member], shards: Mapping[str, Sequence[int]]) -> list[_Row]:
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
        _Row(requesters, slots[requesters])
        for requesters in sorted(
            slots, key=lambda requesters: (len(requesters), requesters)
        )
    ]


def _plan(
    members: Sequence[Member], rows: Sequence[_Row], owners: Sequence[Sequence[int]]
) -> Plan:
    """Turn the owner of each slot into intervals that tile every stream."""
    intervals: list[list[Interval]] = [[] for _ in members]
    for row, owner in zip(rows, owners, strict=True):
        runs = groupby(zip(row.slots, owner, strict=True), lambda it: (it[0][0], it[1]))
        begun = [(arn, holder, next(run)[0][1]) for (arn, holder), run in runs]
        ends = [key - 1 if key else HASH_KEYS - 1 for _, _, key in begun[1:]]
        ends.append(HASH_KEYS - 1)
        for (arn, holder, first), last in zip(begun, ends, strict=True):
            intervals[holder].append(Interval(arn, first, last))
    return {
        member.client_id: tuple(sorted(ranges))
        for member, ranges in zip(members, intervals, strict=True)
    }


def _previous_owners(
    row: _Row, members: Sequence[Member], previous: Mapping[str, Range]
) -> list[int]:
    """Return each slot's owner, or FREE; if two members claim a slot, the first."""
    owner = [FREE] * len(row.slots)
    for requester in row.requesters:
        for arn, first, last in previous.get(members[requester].client_id, ()):
            begin = bisect_left(row.slots, (arn, first))
            for slot in range(begin, bisect_right(row.slots, (arn, last))):
                if owner[slot] == FREE:
                    owner[slot] = requester
    return owner


# --- which slots ---------------------------------------------------------------------


def _release_excess(owner: list[int], counts: Mapping[int, int]) -> None:
    """Free the slots above the members' counts, from the ends of the shortest runs."""
    excess = Counter(filter(FREE.__lt__, owner))
    excess.subtract(counts)
    for begin, end in sorted(_runs(owner), key=lambda run: run[1] - run[0]):
        holder = owner[begin]
        count = min(excess[holder], end - begin)
        if count > 0:
            excess[holder] -= count
            owner[end - count : end] = [FREE] * count


def _fill(owner: list[int], counts: Mapping[int, int]) -> None:
    """Assign free slots to members below their counts, neighbours first."""
    missing = dict(counts)
    for holder, number in Counter(filter(FREE.__lt__, owner)).items():
        missing[holder] -= number
    for begin, end in _free_runs(owner):
        if begin:
            begin += _give(owner, begin, end, owner[begin - 1], missing)
        if end < len(owner):
            receiver = owner[end]
            _give(owner, max(begin, end - missing[receiver]), end, receiver, missing)
    for begin, end in _free_runs(owner):
        while begin < end:
            receiver = max(missing, key=lambda m: (missing[m], -m))
            begin += _give(owner, begin, end, receiver, missing)


def _give(
    owner: list[int], begin: int, end: int, receiver: int, missing: dict[int, int]
) -> int:
    """Assign slots from the start of a free run to a member; return how many."""
    count = min(end - begin, missing[receiver])
    owner[begin : begin + count] = [receiver] * count
    missing[receiver] -= count
    return count


def _free_runs(owner: Sequence[int]) -> list[tuple[int, int]]:
    return [run for run in _runs(owner) if owner[run[0]] == FREE]


def _runs(owner: Sequence[int]) -> list[tuple[int, int]]:
    """Return the start and end of each run of slots with one owner."""
    cuts = [i for i in range(1, len(owner)) if owner[i] != owner[i - 1]]
    return list(zip([0, *cuts], [*cuts, len(owner)], strict=True))

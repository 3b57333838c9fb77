"""How many slots each member gets: evenly by weight, and evenly by label as well.

Rounding must be even across labels. Otherwise, if the members of two clusters alternate
in the order of ids, all of one cluster may get the share rounded up, and all of the
other the share rounded down. With 500 slots and 100 members each that is 300 and 200.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import accumulate, pairwise
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Weights(NamedTuple):
    """The weight and label of each member, by index."""

    weights: Sequence[int]
    labels: Sequence[str]
    """Members without a label share the label ""."""

    def groups(self, requesters: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the members of each label, with labels in order."""
        found: dict[str, list[int]] = {}
        for requester in sorted(requesters, key=lambda m: (self.labels[m], m)):
            found.setdefault(self.labels[requester], []).append(requester)
        return {label: tuple(group) for label, group in found.items()}


class Pool(NamedTuple):
    """Slots that the same members request."""

    requesters: tuple[int, ...]
    """Indexes of members, ascending."""
    slots: int


def shares_of(members: Weights, pool: Pool) -> dict[int, int]:
    """Return how many slots each member gets of a single pool.

    With labels the pool is cut in order of the labels, so that rounding errors sum up
    to less than one slot per label. This uses integers, so exact shares stay exact.
    """
    groups = members.groups(pool.requesters)
    order = [requester for group in groups.values() for requester in group]
    weights = [members.weights[requester] for requester in order]
    if len(groups) < 2:
        return dict(zip(order, shares(pool.slots, weights), strict=True))
    whole = sum(weights)
    parts = accumulate(weights, initial=0)
    cuts = [(2 * part * pool.slots + whole) // (2 * whole) for part in parts]
    sizes = (after - before for before, after in pairwise(cuts))
    return dict(zip(order, sizes, strict=True))


def shares(slots: int, weights: Sequence[int]) -> list[int]:
    """Return how many slots each weight gets, in order.

    With equal weights the cuts are those of Kinesumer for Go, which uses floating
    point: ``round(i * (S / N))`` for each i, with halves away from zero. Integers or
    Python's ``round`` would give other cuts for some fleets.
    """
    common = gcd(*weights)
    each = slots / (sum(weights) // common)
    sizes, total, cut = [], 0, 0
    for weight in weights:
        total += weight // common
        size = _round(total * each) - cut
        cut += size
        sizes.append(size)
    return sizes


def _round(value: float) -> int:
    """Round a non-negative number, halves up."""
    whole = int(value)
    return whole + (value - whole >= 0.5)


def balance(
    members: Weights, pools: Sequence[Pool], owned: Sequence[dict[int, int]]
) -> None:
    """Change ``owned`` so that all slots are owned, as evenly as possible.

    With a single pool each label gets its share, rounded down or up, and the slots are
    even within the label. With several pools the members' totals are made even first,
    and labels decide between equally even results.
    """
    if len(pools) > 1:
        _balance(members.weights, pools, owned)
        _even_labels(members, owned)
        return
    for pool, counts in zip(pools, owned, strict=True):
        groups = members.groups(pool.requesters)
        totals = _totals(members, groups, pool.slots, counts)
        for label, requesters in groups.items():
            part = {requester: counts[requester] for requester in requesters}
            _shrink(members.weights, part, totals[label])
            _balance(members.weights, [Pool(requesters, totals[label])], [part])
            counts.update(part)


def _totals(
    members: Weights,
    groups: Mapping[str, Sequence[int]],
    slots: int,
    counts: Mapping[int, int],
) -> dict[str, int]:
    """Return how many slots each label gets: its share, rounded down or up.

    Labels that own more than the share rounded down are rounded up first, so that
    fewer slots move.
    """
    weights = {
        label: sum(members.weights[m] for m in group) for label, group in groups.items()
    }
    owned = {label: sum(counts[m] for m in group) for label, group in groups.items()}
    whole = sum(weights.values())
    totals = {label: slots * weight // whole for label, weight in weights.items()}
    order = sorted(
        (label for label in weights if slots * weights[label] % whole),
        key=lambda label: (
            owned[label] <= totals[label],
            -(slots * weights[label] % whole),
            label,
        ),
    )
    for label in order[: slots - sum(totals.values())]:
        totals[label] += 1
    return totals


def _shrink(weights: Sequence[int], counts: dict[int, int], total: int) -> None:
    """Remove slots above ``total`` from the members that own the most."""
    for _ in range(sum(counts.values()) - total):
        giver = max(counts, key=lambda m: (2 * counts[m] - 1) / weights[m])
        counts[giver] -= 1


def _balance(
    weights: Sequence[int], pools: Sequence[Pool], owned: Sequence[dict[int, int]]
) -> None:
    """Assign free slots, then move slots while that makes the members more even.

    The result has the smallest possible sum of (slots² / weight) over the members.
    """
    totals = _sizes(weights, owned)
    for pool, counts in zip(pools, owned, strict=True):
        heap = [((2 * totals[m] + 1) / weights[m], m) for m in pool.requesters]
        heapify(heap)
        for _ in range(pool.slots - sum(counts.values())):
            receiver = heap[0][1]
            counts[receiver] += 1
            totals[receiver] += 1
            heapreplace(
                heap, ((2 * totals[receiver] + 1) / weights[receiver], receiver)
            )
    while chain := _improvement(totals, weights, owned):
        _pass_on(chain, owned)
        totals[chain[0][0]] -= 1
        totals[chain[-1][2]] += 1


_Chain = list[tuple[int, int, int]]
"""Moves of one slot each: (giver, pool index, receiver). Each receiver gives next."""


def _pass_on(chain: _Chain, owned: Sequence[dict[int, int]]) -> None:
    for giver, pool, receiver in chain:
        owned[pool][giver] -= 1
        owned[pool][receiver] += 1


def _sizes(weights: Sequence[int], owned: Sequence[Mapping[int, int]]) -> list[int]:
    return [sum(counts.get(m, 0) for counts in owned) for m in range(len(weights))]


def _improvement(
    totals: Sequence[int], weights: Sequence[int], owned: Sequence[Mapping[int, int]]
) -> _Chain:
    """Return moves that make the totals more even, or no moves.

    Rounding of quotients is monotonic, so comparing them as floats is safe.
    """
    requesters = {requester for counts in owned for requester in counts}
    worth = {m: (2 * totals[m] - 1) / weights[m] for m in requesters}
    price = {m: (2 * totals[m] + 1) / weights[m] for m in requesters}
    cheapest = min(price.values(), default=0.0)
    givers = [m for m in requesters if worth[m] > cheapest]
    for giver in sorted(givers, key=lambda m: (-worth[m], m)):
        chains = _chains(giver, owned)
        receiver = min(chains, key=lambda m: (price[m], m))
        if worth[giver] > price[receiver]:
            return chains[receiver]
    return []


def _chains(giver: int, owned: Sequence[Mapping[int, int]]) -> dict[int, _Chain]:
    """Return the shortest chain of moves from a member to each reachable member."""
    chains: dict[int, _Chain] = {giver: []}
    waiting, used = [giver], set[int]()
    for member in waiting:
        for pool, counts in enumerate(owned):
            if pool in used or not counts.get(member):
                continue
            used.add(pool)
            for receiver in counts:
                if receiver not in chains:
                    chains[receiver] = [*chains[member], (member, pool, receiver)]
                    waiting.append(receiver)
    return chains


def _even_labels(members: Weights, owned: Sequence[dict[int, int]]) -> None:
    """Move slots between labels where the members stay as even as they are."""
    requesters = sorted({requester for counts in owned for requester in counts})
    groups = list(members.groups(requesters).values())
    while len(groups) > 1 and (chain := _label_move(members.weights, groups, owned)):
        _pass_on(chain, owned)


def _label_move(
    weights: Sequence[int],
    groups: Sequence[Sequence[int]],
    owned: Sequence[Mapping[int, int]],
) -> _Chain:
    """Return moves that make labels more even and members not less even, or none."""
    sizes = _sizes(weights, owned)
    worth, price = dict[int, float](), dict[int, float]()
    for group in groups:
        size, weight = (sum(of[m] for m in group) for of in (sizes, weights))
        worth.update(dict.fromkeys(group, (2 * size - 1) / weight))
        price.update(dict.fromkeys(group, (2 * size + 1) / weight))
    tried = set[tuple[object, ...]]()
    for giver in sorted(worth, key=lambda m: (-worth[m], m)):
        # A member with the same values reaches the same members: skip it.
        gives = tuple(pool for pool, counts in enumerate(owned) if counts.get(giver))
        kind = worth[giver], sizes[giver], weights[giver], gives
        if kind in tried:
            continue
        tried.add(kind)
        chains = _chains(giver, owned)
        lost = (2 * sizes[giver] - 1) / weights[giver]
        alike = [m for m in chains if (2 * sizes[m] + 1) / weights[m] == lost]
        receiver = min(alike, key=lambda m: (price[m], m), default=giver)
        if price[receiver] < worth[giver]:
            return chains[receiver]
    return []

"""Colour slots: stable per client id, all different for as long as there are enough."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HUES, PATTERNS = 8, 4
"""The page's palette. The first pattern is plain."""


def assign_slots(known: Mapping[str, int], client_ids: Iterable[str]) -> dict[str, int]:
    """Return the slot of each client; those that have one keep it.

    A client's name says which hue it would like, so that it mostly has the same one
    after a restart of the server, too. Where that is taken, the next free one is given,
    plain ones before patterned ones, and the least used one where none is free.
    """
    wanted = sorted(set(client_ids))
    slots = {client_id: known[client_id] for client_id in wanted if client_id in known}
    used = Counter(slots.values())
    for client_id in wanted:
        if client_id not in slots:
            first = _preferred(client_id)
            order = [
                pattern * HUES + (first + step) % HUES
                for pattern in range(PATTERNS)
                for step in range(HUES)
            ]
            slots[client_id] = min(order, key=lambda slot: used[slot])
            used[slots[client_id]] += 1
    return slots


def _preferred(client_id: str) -> int:
    return blake2b(client_id.encode(), digest_size=1).digest()[0] % HUES

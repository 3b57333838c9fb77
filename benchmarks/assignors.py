"""Count the shards that plans of each assignor move when clients come and go.

    python -m benchmarks.assignors

All shards have the same load. In each event, a client leaves or joins, or one client is
replaced by another in a single plan. The figures are the shards that move to another
client, in percent of all, on average over 60 events.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kinesumer.core.assignment import Member, assign_range
from kinesumer.core.load_assignor import assign_load
from tests.support.shares import Owners, even, owners

if TYPE_CHECKING:
    from kinesumer.core.assignment import Plan

SIZES = ((100, 10), (1_000, 100))
EVENTS = 60
SETTLING_PLANS = 3  # as many plans by load follow an event at most


class Group:
    """Clients of one stream, whose ids have no order in time."""

    def __init__(self, shards: int, clients: int, *, by_load: bool) -> None:
        self._random, self._by_load = Random(1), by_load
        self._keys = even(shards)
        self._most, self._number = clients, 0
        self._ids: list[str] = []
        self._plan: Plan = {}
        for _ in range(clients):
            self._join()

    def _join(self) -> None:
        self._ids.append(f"{self._random.random():.6f}-{self._number}")
        self._number += 1

    def leave_or_join(self) -> None:
        """Let a client leave or join."""
        if len(self._ids) > 1.05 * self._most or self._random.random() < 0.5:
            self._ids.pop(self._random.randrange(len(self._ids)))
        else:
            self._join()

    def replace(self) -> None:
        """Replace a client by another one."""
        self._ids.pop(self._random.randrange(len(self._ids)))
        self._join()

    def plan(self) -> float:
        """Plan, and return how many percent of the shards move."""
        before, shards = self._owners(), {"s": self._keys}
        members = [Member(each, 1, frozenset("s")) for each in sorted(self._ids)]
        if not self._by_load:
            self._plan = assign_range(members, shards)
        for _ in range(SETTLING_PLANS if self._by_load else 0):
            work = {"s": [1] * len(self._keys)}
            self._plan, _ = assign_load(members, shards, work, self._plan)
        now = self._owners()
        moved = sum(owner != before.get(shard) for shard, owner in now.items())
        return 100 * moved / len(self._keys)

    def _owners(self) -> Owners:
        return owners(self._plan, {"s": self._keys})


def measure(shards: int, clients: int, event: str, *, by_load: bool) -> float:
    """Return how many percent of the shards an event moves, on average."""
    group = Group(shards, clients, by_load=by_load)
    group.plan()
    moved = 0.0
    for _ in range(EVENTS):
        getattr(group, event)()
        moved += group.plan()
    return moved / EVENTS


def main() -> None:
    """Print the figures."""
    for shards, clients in SIZES:
        for event in ("leave_or_join", "replace"):
            by_range, by_load = (
                measure(shards, clients, event, by_load=by_load)
                for by_load in (False, True)
            )
            title = f"{shards:,} shards, {clients} clients, {event}"
            print(f"{title:45}  range {by_range:5.1f} %  load {by_load:5.1f} %")


if __name__ == "__main__":
    main()

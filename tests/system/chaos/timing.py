"""How long shards were without an owner, against section 7 of the protocol."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.system.process import oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.streams import ShardKey
    from tests.system.chaos.starvation import Canary
    from tests.system.process.oracle import Handled, Run

EPSILON = 0.5
"""What requests and the search for records take: ε of section 7."""
QUIET = 0.5
"""A shard that had no record for this long tells nothing of when it was read."""
HAND_OVER = 0.5
"""Section 7: the aim for a planned move."""
SETTLED = 60.0
"""L2, with the default lease."""
DEFAULT_LEASE = 8.0


class Probe(NamedTuple):
    """One thing that was done to a calm fleet."""

    kind: str
    began: float
    ended: float
    shards: frozenset[ShardKey] = frozenset()
    """What a client owned that crashed."""


class Sample(NamedTuple):
    """How long something took, and what was permitted."""

    seconds: float
    bound: float
    lost: float
    """Seconds that the machine took from us meanwhile."""

    @property
    def is_late(self) -> bool:
        """Tell whether it took longer than permitted, on a machine as loaded."""
        return self.seconds > self.bound + self.lost


def crash_bound(config: dict[str, Any], *, led: bool) -> float:
    """Return section 7's bound with a configuration."""
    heartbeat, lease = (
        config["heartbeat_interval_seconds"],
        config["lease_duration_seconds"],
    )
    return float(
        config["leader_interval_seconds"] + lease + (1 + led) * heartbeat + EPSILON
    )


def settled_bound(config: dict[str, Any]) -> float:
    """Return L2's bound, as long as the lease is in proportion to the default."""
    return float(SETTLED * config["lease_duration_seconds"] / DEFAULT_LEASE)


def starved(
    canary: Canary, began: float, ended: float, config: dict[str, Any]
) -> float:
    """Return how much longer a fence may take on a machine as busy.

    Who wasn't run for a while watches for a whole lease again (section 5): it can't
    know whether the others could beat.
    """
    lapses = canary.lapses(began, ended, config["leader_interval_seconds"])
    again = config["lease_duration_seconds"] * lapses
    return float(canary.lost(began, ended) + again)


class Deliveries:
    """When each shard's epochs delivered, and when records came to be."""

    def __init__(self, run: Run) -> None:
        self._epochs: dict[ShardKey, list[list[Handled]]] = defaultdict(list)
        for (shard, _), handled in sorted(
            oracle.by_epoch(run).items(), key=lambda item: item[0]
        ):
            self._epochs[shard].append(handled)
        self._produced = {(p.shard, p.number): p.at for p in run.produced}

    def takeovers(
        self, probe: Probe, config: dict[str, Any], canary: Canary, *, led: bool
    ) -> Iterator[Sample]:
        """Yield how long after a crash each of the lost shards was delivered again."""
        bound = crash_bound(config, led=led)
        for shard in probe.shards:
            first = min(
                (e[0] for e in self._epochs[shard] if e[0].began > probe.began),
                key=lambda h: h.began,
                default=None,
            )
            if first is None or self._produced_at(first) > probe.began + QUIET:
                continue
            lost = starved(canary, probe.began, first.began, config)
            yield Sample(first.began - probe.began, bound, lost)

    def hand_overs(self, probe: Probe, canary: Canary) -> Iterator[Sample]:
        """Yield for how long each shard paused that moved while a probe went on."""
        for old, new in self._moves(probe.began, probe.ended):
            since = max(old.ended, self._produced_at(new))
            if since < new.began:
                lost = canary.lost(since, new.began)
                yield Sample(new.began - since, HAND_OVER, lost)

    def all_moves(self) -> Iterator[float]:
        """Yield every pause between two epochs, whatever went on."""
        for old, new in self._moves(-inf, inf):
            yield new.began - max(old.ended, self._produced_at(new))

    def _moves(self, began: float, ended: float) -> Iterator[tuple[Handled, Handled]]:
        for epochs in self._epochs.values():
            for old, new in pairwise(epochs):
                if began < new[0].began < ended:
                    yield old[-1], new[0]

    def _produced_at(self, handled: Handled) -> float:
        return self._produced[handled.shard, handled.number]


def in_order(seconds: list[float]) -> str:
    """Return median, 99th percentile and maximum as text."""
    if not seconds:
        return "none seen"
    found = sorted(seconds)
    places = (len(found) // 2, min(len(found) - 1, int(len(found) * 0.99)), -1)
    median, late, worst = (found[place] for place in places)
    return f"{median:.2f} / {late:.2f} / {worst:.2f} s, n = {len(found)}"

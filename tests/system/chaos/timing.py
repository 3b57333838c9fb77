"""Compares how long shards had no owner with the limits in the protocol's section 7."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from kinesumer.testing.bounds import crash_bound
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled
from kinesumer.testing.trial.oracle import Run

# If a shard gets no record for this long after a crash, its next delivery doesn't show
# when the takeover happened.
QUIET = 0.5
HAND_OVER = 0.5  # section 7: the goal for a planned move
SETTLED = 60.0  # the limit of promise L2 with the default lease
DEFAULT_LEASE = 8.0
# Kinesis refuses a subscription this soon after the shard's previous one began.
RESUBSCRIBE_SECONDS = 5.0


class Probe(NamedTuple):
    """One operation on a calm fleet."""

    kind: str
    began: float
    ended: float
    shards: frozenset[ShardKey] = frozenset()  # the shards of the crashed client


class Sample(NamedTuple):
    """A measured duration."""

    seconds: float
    lost: float  # seconds lost to the machine's load


# Returns the seconds that the machine's load took between two times.
Lost = Callable[[float, float], float]


def takeover_bound(config: dict[str, Any], *, led: bool, fan_out: bool) -> float:
    """Return how long a shard may pause after a crash, by polling or by fan-out."""
    return crash_bound(Config(**config), led=led) + fan_out * RESUBSCRIBE_SECONDS


def settled_bound(config: dict[str, Any]) -> float:
    """Return the limit of the protocol's promise L2, scaled to the lease duration."""
    return float(SETTLED * config["lease_duration_seconds"] / DEFAULT_LEASE)


class Deliveries:
    """The times of deliveries by shard and epoch, and the times of produced records."""

    def __init__(self, run: Run) -> None:
        self._epochs: dict[ShardKey, list[list[Handled]]] = defaultdict(list)
        for (shard, _), handled in sorted(
            oracle.by_epoch(run).items(), key=lambda item: item[0]
        ):
            self._epochs[shard].append(handled)
        self._produced = {(p.shard, p.number): p.at for p in run.produced}

    def takeovers(
        self, shards: Iterable[ShardKey], probe: Probe, lost: Lost
    ) -> Iterator[Sample]:
        """Yield each lost shard's time between the crash and its next delivery."""
        for shard in shards:
            first = min(
                (e[0] for e in self._epochs[shard] if e[0].began > probe.began),
                key=lambda h: h.began,
                default=None,
            )
            if first and self._produced_at(first) <= probe.began + QUIET:
                took = first.began - probe.began
                yield Sample(took, lost(probe.began, first.began))

    def hand_overs(self, probe: Probe, lost: Lost) -> Iterator[Sample]:
        """Yield the pause of each shard that moved during a probe."""
        for old, new in self._moves(probe.began, probe.ended):
            since = max(old.ended, self._produced_at(new))
            if since < new.began:
                yield Sample(new.began - since, lost(since, new.began))

    def all_moves(self) -> Iterator[float]:
        """Yield every pause between two epochs of a shard, during storms as well."""
        for old, new in self._moves(-inf, inf):
            yield new.began - max(old.ended, self._produced_at(new))

    def _moves(self, began: float, ended: float) -> Iterator[tuple[Handled, Handled]]:
        for epochs in self._epochs.values():
            for old, new in pairwise(epochs):
                if began < new[0].began < ended:
                    yield old[-1], new[0]

    def _produced_at(self, handled: Handled) -> float:
        return self._produced[handled.shard, handled.number]


def in_order(seconds: Iterable[float]) -> str:
    """Return median, 99th percentile and maximum as text."""
    if not (found := sorted(seconds)):
        return "none seen"
    places = (len(found) // 2, min(len(found) - 1, int(len(found) * 0.99)), -1)
    median, late, worst = (found[place] for place in places)
    return f"{median:.2f} / {late:.2f} / {worst:.2f} s, n = {len(found)}"

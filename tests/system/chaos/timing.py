"""Compares how long shards had no owner with the limits in the protocol's section 7."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, groupby, pairwise, product
from math import inf
from typing import Any, NamedTuple

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from kinesumer.testing.bounds import crash_bound
from kinesumer.testing.trial.journal import Handled
from kinesumer.testing.trial.oracle import Run
from kinesumer.testing.trial.verdict import Line
from tests.system.chaos.starvation import Canary

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


class Deliveries:
    """The times of deliveries by shard and epoch, and the times of produced records."""

    def __init__(self, run: Run) -> None:
        self._epochs: dict[ShardKey, list[list[Handled]]] = defaultdict(list)
        in_order = sorted(run.handled, key=lambda h: (h.shard, h.epoch, h.began))
        for (shard, _), handled in groupby(in_order, lambda h: (h.shard, h.epoch)):
            self._epochs[shard].append([*handled])
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


# --- the lines of the verdict ---------------------------------------------------------


def times(
    run: Run,
    config: dict[str, Any],
    probes: list[Probe],
    canary: Canary,
    fan_out_arns: Container[str],
) -> Iterator[Line]:
    """Yield a line for each limit of time, and one for all moves."""

    def starved(began: float, ended: float) -> float:
        """Return how much longer a takeover may take because the machine was busy.

        After a time in which it couldn't run, a leader observes the other clients for a
        whole lease again (section 5), because it can't know whether they could send
        heartbeats.
        """
        lapses = canary.lapses(began, ended, config["leader_interval_seconds"])
        again = config["lease_duration_seconds"] * lapses
        return float(canary.lost(began, ended) + again)

    deliveries = Deliveries(run)
    by_kind: dict[str, list[Probe]] = defaultdict(list)
    for probe in probes:
        by_kind[probe.kind].append(probe)
    crashes = (("a client crashed", False), ("the leader crashed", True))
    ways = ((False, ""), (True, ", fan-out")) if fan_out_arns else ((False, ""),)
    for (kind, led), (fan_out, way) in product(crashes, ways):
        samples = [
            sample
            for probe in by_kind[kind]
            for sample in deliveries.takeovers(
                [s for s in probe.shards if (s.stream_arn in fan_out_arns) == fan_out],
                probe,
                starved,
            )
        ]
        bound = takeover_bound(config, led=led, fan_out=fan_out)
        yield timed(f"taken over after {kind}{way}", samples, bound)
    for kind in ("join", "leave"):
        moved = (deliveries.hand_overs(probe, canary.lost) for probe in by_kind[kind])
        samples = [*chain.from_iterable(moved)]
        yield timed(f"handed over at a {kind}", samples, HAND_OVER, share=0.5)
    settled = [
        Sample(probe.ended - probe.began, starved(probe.began, probe.ended))
        for probe in by_kind["storm over"]
    ]
    bound = SETTLED * config["lease_duration_seconds"] / DEFAULT_LEASE
    yield timed("as planned after a storm", settled, bound)
    yield Line("all moves, in storms too", in_order(deliveries.all_moves()))


def timed(
    what: str, samples: list[Sample], bound: float, *, share: float = 0.0
) -> Line:
    """Return the table's line for durations.

    At most a share of them may exceed the limit by more than the machine's load took.
    """
    over = [s for s in samples if s.seconds > bound]
    late = [s for s in over if s.seconds > bound + s.lost]
    permitted = f"{bound:.1f} s" + (f" for {1 - share:.0%}" if share else "")
    return Line(
        what,
        in_order(s.seconds for s in samples),
        permitted + (f" and starvation ({len(over)} over it)" if over else ""),
        is_kept=len(late) <= share * len(samples),
        is_doubtful=len(over) > share * len(samples),
        is_time=True,
        details=tuple(f"{s.seconds:.2f} s, starved {s.lost:.2f} s" for s in over),
    )

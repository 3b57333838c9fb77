"""The result of a run: the measured and permitted value of each promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from itertools import chain, product
from typing import Any

from kinesumer.testing.trial.oracle import Run
from kinesumer.testing.trial.verdict import Line, Verdict, judge, nothing
from tests.system.chaos.starvation import Canary
from tests.system.chaos.storm import Storm
from tests.system.chaos.timing import (
    HAND_OVER,
    Deliveries,
    Probe,
    Sample,
    in_order,
    settled_bound,
    takeover_bound,
)


def reach(
    run: Run,
    config: dict[str, Any],
    probes: list[Probe],
    canary: Canary,
    storm: Storm,
) -> Verdict:
    return Verdict(
        [
            *judge(
                run, config["drain_timeout_seconds"], config["max_uncommitted_records"]
            ),
            *_times(run, config, probes, canary, storm.fleet.fan_out_arns),
            nothing("clients that ended by themselves", storm.unexpected),
            Line("clients waited for a processor", f"{canary.share():.0%} of the time"),
            Line("this process overslept at most", f"{canary.worst:.2f} s"),
            *(Line(f"  {k}", f"{n} times") for k, n in sorted(storm.counts.items())),
        ]
    )


def _times(
    run: Run,
    config: dict[str, Any],
    probes: list[Probe],
    canary: Canary,
    fan_out_arns: Container[str],
) -> Iterator[Line]:
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
    yield timed("as planned after a storm", settled, settled_bound(config))
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

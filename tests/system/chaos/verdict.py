"""The result of a run: the measured and permitted value of each promise."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import product
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
    starved,
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
    deliveries = Deliveries(run)
    crashes = (("a client crashed", False), ("the leader crashed", True))
    ways = ((False, ""), (True, ", fan-out")) if fan_out_arns else ((False, ""),)
    for (kind, led), (fan_out, way) in product(crashes, ways):
        bound = takeover_bound(config, led=led, fan_out=fan_out)
        samples = [
            sample
            for probe in probes
            if probe.kind == kind
            for sample in deliveries.takeovers(
                [s for s in probe.shards if (s.stream_arn in fan_out_arns) == fan_out],
                probe,
                config,
                canary,
                bound,
            )
        ]
        yield timed(f"taken over after {kind}{way}", samples, bound)
    for kind in ("join", "leave"):
        samples = [
            sample
            for probe in probes
            if probe.kind == kind
            for sample in deliveries.hand_overs(probe, canary)
        ]
        yield aimed(f"handed over at a {kind}", samples)
    bound = settled_bound(config)
    settled = [
        Sample(p.ended - p.began, bound, starved(canary, p.began, p.ended, config))
        for p in probes
        if p.kind == "storm over"
    ]
    yield timed("as planned after a storm", settled, bound)
    yield Line("all moves, in storms too", in_order(list(deliveries.all_moves())))


def timed(what: str, samples: list[Sample], bound: float) -> Line:
    """Return the table's line for durations that must never exceed their limit."""
    over = [s for s in samples if s.seconds > bound]
    return Line(
        what,
        in_order([s.seconds for s in samples]),
        f"{bound:.1f} s" + (f" and starvation ({len(over)} over it)" if over else ""),
        is_kept=not any(s.is_late for s in samples),
        is_doubtful=bool(over),
        is_time=True,
        details=tuple(f"{s.seconds:.2f} s, starved {s.lost:.2f} s" for s in over),
    )


def aimed(what: str, samples: list[Sample]) -> Line:
    """Return the table's line for durations of which half must stay within a goal."""
    over = [s for s in samples if s.seconds > HAND_OVER]
    late = [s for s in samples if s.is_late]
    return Line(
        what,
        in_order([s.seconds for s in samples]),
        f"{HAND_OVER:.1f} s is the aim, for half of them"
        + (f" ({len(over)} over it, {len(late)} not by starvation)" if over else ""),
        is_kept=2 * len(late) <= len(samples),
        is_doubtful=2 * len(over) > len(samples),
        is_time=True,
    )

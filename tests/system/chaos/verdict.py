"""The result of a run: the measured and permitted value of each promise."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.testing.trial import oracle
from tests.system.chaos.timing import (
    HAND_OVER,
    Deliveries,
    Probe,
    Sample,
    crash_bound,
    settled_bound,
    starved,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from kinesumer.testing.trial.oracle import Run
    from tests.system.chaos.starvation import Canary
    from tests.system.chaos.storm import Storm

SHOWN = 10  # at most this many violations of a promise are listed


class Line(NamedTuple):
    what: str
    measured: str
    permitted: str = ""
    is_kept: bool = True
    # The promise was only kept because the machine's load extended its limit.
    is_doubtful: bool = False
    is_time: bool = False  # the promise limits a duration
    details: tuple[str, ...] = ()


class Verdict(NamedTuple):
    lines: list[Line]

    @property
    def is_good(self) -> bool:
        return all(line.is_kept for line in self.lines)

    @property
    def is_safe(self) -> bool:
        return all(line.is_kept or line.is_time for line in self.lines)

    @property
    def is_doubtful(self) -> bool:
        return any(line.is_doubtful for line in self.lines)

    def text(self) -> str:
        rows = [
            ("", "measured", "permitted", ""),
            *((x.what, x.measured, x.permitted, mark(x)) for x in self.lines),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        table = [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in rows
        ]
        details = [f"{line.what}: {d}" for line in self.lines for d in line.details]
        return "\n".join([*table, *details])


def mark(line: Line) -> str:
    if not line.is_kept:
        return "BROKEN"
    if line.is_doubtful:
        return "starved"
    return "kept" if line.permitted else ""


def reach(
    run: Run,
    config: dict[str, Any],
    probes: list[Probe],
    canary: Canary,
    storm: Storm,
) -> Verdict:
    return Verdict(
        [
            *_records(run, config),
            *_times(run, config, probes, canary, storm.fleet.fan_out_arns),
            nothing("clients that ended by themselves", storm.unexpected),
            Line("clients waited for a processor", f"{canary.share():.0%} of the time"),
            Line("this process overslept at most", f"{canary.worst:.2f} s"),
            *(Line(f"  {k}", f"{n} times") for k, n in sorted(storm.counts.items())),
        ]
    )


def nothing(what: str, found: list[str]) -> Line:
    return Line(what, str(len(found)), "0", not found, details=tuple(found[:SHOWN]))


def _records(run: Run, config: dict[str, Any]) -> Iterator[Line]:
    found = oracle.judge(run)
    yield Line("records", f"{len(run.produced)}, handled {len(run.handled)} times")
    for what, broken in found.broken.items():
        yield nothing(what, broken)
    permitted = oracle.allowance(run, config["drain_timeout_seconds"])
    limit = config["max_uncommitted_records"]
    total = limit * permitted.forced.total() + permitted.overdue.total()
    allowed = {s: permitted.records(s, limit) for s in found.repeated}
    too_many = [
        f"{shard}: {count} records of {allowed[shard]}"
        for shard, count in found.repeated.items()
        if count > allowed[shard]
    ]
    yield Line("duplicates", str(found.duplicates), f"{total}", not too_many)
    if found.repeated:
        shard, count = max(found.repeated.items(), key=lambda item: item[1])
        yield Line("  of the shard that had most", f"{count}", f"{allowed[shard]}")
    yield Line(
        "  by how many forced takeovers, overdue records",
        f"{permitted.forced.total()}, {permitted.overdue.total()}",
    )
    yield nothing("shards with more duplicates than permitted", too_many)


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
        bound = crash_bound(config, led=led, fan_out=fan_out)
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
    yield Line(
        "all moves, in storms too", oracle.in_order(list(deliveries.all_moves()))
    )


def timed(what: str, samples: list[Sample], bound: float) -> Line:
    """Return the table's line for durations that must never exceed their limit."""
    over = [s for s in samples if s.seconds > bound]
    return Line(
        what,
        oracle.in_order([s.seconds for s in samples]),
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
        oracle.in_order([s.seconds for s in samples]),
        f"{HAND_OVER:.1f} s is the aim, for half of them"
        + (f" ({len(over)} over it, {len(late)} not by starvation)" if over else ""),
        is_kept=2 * len(late) <= len(samples),
        is_doubtful=2 * len(over) > len(samples),
        is_time=True,
    )

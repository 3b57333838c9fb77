"""Judge a run: for each promise, what was measured and what is permitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kinesumer.runtime.text import MAX_NAMED
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.oracle import Run
from kinesumer.testing.trial.pauses import NOISE_SECONDS, Event, longest_pauses


class Line(NamedTuple):
    """One line of a verdict."""

    what: str
    measured: str
    permitted: str = ""
    is_kept: bool = True
    # The promise was only kept because the machine's load extended its limit.
    is_doubtful: bool = False
    is_time: bool = False  # the promise limits a duration
    details: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """The result in one word."""
        if not self.is_kept:
            return "BROKEN"
        if self.is_doubtful:
            return "starved"
        return "kept" if self.permitted else ""


class Verdict(NamedTuple):
    """The result of a run."""

    lines: list[Line]

    @property
    def is_good(self) -> bool:
        """True if every promise was kept."""
        return all(line.is_kept for line in self.lines)

    @property
    def is_doubtful(self) -> bool:
        """True if a promise was only kept allowing for the machine's load."""
        return any(line.is_doubtful for line in self.lines)

    def faults(self, *, of_time: bool = True) -> list[str]:
        """Return a sentence for each broken promise, perhaps without durations."""
        return [
            f"{x.what}: {x.measured}, permitted {x.permitted}"
            for x in self.lines
            if not x.is_kept and (of_time or not x.is_time)
        ]

    def text(self) -> str:
        """Return a table of all lines, and the violations below it."""
        rows = [
            ("", "measured", "permitted", ""),
            *((x.what, x.measured, x.permitted, x.mark) for x in self.lines),
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


def nothing(what: str, found: list[str]) -> Line:
    """Return the line for violations, of which none is permitted."""
    return Line(what, str(len(found)), "0", not found, details=tuple(found[:MAX_NAMED]))


def judge(
    run: Run, drain_timeout_seconds: float, max_uncommitted_records: int
) -> Iterator[Line]:
    """Yield the lines of the promises about records and positions."""
    found = oracle.judge(run)
    yield Line("records", f"{len(run.produced)}, handled {len(run.handled)} times")
    for what, broken in found.broken.items():
        yield nothing(what, broken)
    permitted = oracle.allowance(run, drain_timeout_seconds)
    limit = max_uncommitted_records
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


def judge_pauses(run: Run, events: list[Event]) -> Iterator[Line]:
    """Yield a line for the longest pause of each cause.

    The bounds are exceeded by noise, since all processes share this machine.
    """
    yield Line(f"longest pauses (with {NOISE_SECONDS:g} s for noise)", "")
    for pause in longest_pauses(run, events):
        bound = pause.bound
        yield Line(
            f"  {pause.name}",
            f"{pause.seconds:.2f} s",
            "" if bound is None else f"{bound:g} s",
            is_kept=bound is None or pause.seconds <= bound + NOISE_SECONDS,
            is_doubtful=bound is not None and pause.seconds > bound,
            is_time=True,
        )


def conclusion(faults: Iterable[str]) -> list[str]:
    """Return the last lines of a report."""
    if texts := [f"  - {text}" for text in faults]:
        return ["NOT GOOD:", *texts]
    return ["GOOD: nothing was lost, and every bound was kept."]


def shard_number(shard_id: str) -> int:
    """Return the number in a shard's ID."""
    return int(shard_id.rpartition("-")[2])

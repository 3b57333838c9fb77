"""Judge a run: for each promise, what was measured and what is permitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from kinesumer.model.table_streams import is_table_stream
from kinesumer.ops.history.check import check_directories
from kinesumer.runtime.text import MAX_NAMED
from kinesumer.testing.bounds import HAND_OVER_SECONDS, STEADY_SECONDS, crash_bound
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled
from kinesumer.testing.trial.oracle import Parents, Run

# Tolerance added to each bound, since one busy machine runs all processes.
NOISE_SECONDS = 2.0


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


def judge_promises(run: Run, histories: Path) -> Iterator[Line]:
    """Yield a line for each promise about records and positions."""
    yield Line("records", f"{len(run.produced)}, handled {len(run.handled)} times")
    for what, found in oracle.PROMISES.items():
        yield nothing(what, list(found(run)))
    verdict = check_directories([histories])
    counts = ", ".join(f"{count:,} {what}" for what, count in verdict.counts.items())
    yield Line("histories", counts)
    for rule, faults in verdict.faults.items():
        yield nothing(f"histories: {rule}", faults)


def judge_repeats(
    run: Run, drain_timeout_seconds: float, max_uncommitted_records: int
) -> Iterator[Line]:
    """Yield the lines about records that were handled more than once."""
    repeated = oracle.repeated(run)
    permitted = oracle.allowance(run, drain_timeout_seconds)
    limit = max_uncommitted_records
    total = limit * permitted.forced.total() + permitted.overdue.total()
    allowed = {s: permitted.records(s, limit) for s in repeated}
    too_many = [
        f"{shard}: {count} records of {allowed[shard]}"
        for shard, count in repeated.items()
        if count > allowed[shard]
    ]
    yield Line("duplicates", str(repeated.total()), f"{total}", not too_many)
    if repeated:
        [(shard, count)] = repeated.most_common(1)
        yield Line("  of the shard that had most", f"{count}", f"{allowed[shard]}")
    yield Line(
        "  by how many forced takeovers, overdue records",
        f"{permitted.forced.total()}, {permitted.overdue.total()}",
    )
    yield nothing("shards with more duplicates than permitted", too_many)


def conclusion(faults: Iterable[str]) -> list[str]:
    """Return the last lines of a report."""
    if texts := [f"  - {text}" for text in faults]:
        return ["NOT GOOD:", *texts]
    return ["GOOD: nothing was lost, and every bound was kept."]


def shard_number(shard_id: str) -> int:
    """Return the number in a shard's ID."""
    return int(shard_id.rpartition("-")[2])


# --- events, and the pauses that they cause -------------------------------------------


@dataclass(kw_only=True)
class Event:
    """A fault or change that the scenario caused. ``at`` is on the monotonic clock."""

    kind: str
    at: float
    text: str
    client: str = ""
    was_leader: bool = False
    # If a client was killed: the shards that it held.
    shards: set[ShardKey] = field(default_factory=set)


class Pause(NamedTuple):
    """A period in which a record waited and no record of its shard was processed."""

    order: int  # the index of the event that caused it
    name: str
    seconds: float
    bound: float | None


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


def longest_pauses(run: Run, events: list[Event]) -> list[Pause]:
    """Return the longest pause of each cause, in the order of the events."""
    longest: dict[str, Pause] = {}
    for pause in _pauses(run, events):
        before = longest.setdefault(pause.name, pause)
        longest[pause.name] = max(before, pause, key=lambda pause: pause.seconds)
    return sorted(longest.values(), key=lambda pause: (pause.order, pause.name))


def _pauses(run: Run, events: list[Event]) -> Iterator[Pause]:
    """Yield all pauses of a run.

    Each record ends a pause when it is first handled. The pause began when the record
    had been produced and the previous record of the shard had been handled.
    """
    produced_at = {record.number: record.at for record in run.produced}
    by_shard: dict[ShardKey, list[Handled]] = defaultdict(list)
    for entry in oracle.first_handled(run).values():
        by_shard[entry.shard].append(entry)
    for shard, entries in by_shard.items():
        ancestors = oracle.ancestors(shard, run.parents)
        last = (by_shard[parent][-1] for parent in ancestors if parent in by_shard)
        before = max(last, key=lambda entry: entry.ended, default=None)
        is_child = before is not None
        for entry in entries:
            start = produced_at.get(entry.number, entry.ended)
            start = max(start, before.ended if before else 0.0)
            pause = _caused(before, entry, events, is_child=is_child)
            pause = _killed(start, entry, events, run.parents, pause) or pause
            yield pause._replace(seconds=max(0.0, entry.ended - start))
            before, is_child = entry, False


def _caused(
    before: Handled | None, entry: Handled, events: list[Event], *, is_child: bool
) -> Pause:
    """Return the pause before a record, as if no client had been killed."""
    if before is None:
        return Pause(0, "from the start to the first record", 0.0, None)
    kinds: tuple[str, ...]
    if is_child:
        kinds, what, bound = ("split", "merge"), "child after parents", STEADY_SECONDS
        if is_table_stream(entry.shard.stream_arn):
            return Pause(len(events) + 1, f"roll-overs of tables: {what}", 0.0, bound)
    elif (before.client, before.epoch) == (entry.client, entry.epoch):
        return Pause(len(events), "otherwise", 0.0, STEADY_SECONDS)
    else:
        kinds, what = ("start", "join", "stop", "kill"), "hand-overs after it"
        bound = HAND_OVER_SECONDS
    past = [n for n, e in enumerate(events) if e.kind in kinds and e.at <= entry.ended]
    return Pause(past[-1], f"{events[past[-1]].text}: {what}", 0.0, bound)


def _killed(
    start: float, entry: Handled, events: list[Event], parents: Parents, other: Pause
) -> Pause | None:
    """Return the pause after a client was killed, if that explains another pause."""
    index = next((n for n, event in enumerate(events) if event.kind == "kill"), None)
    if index is None or other.bound is None or other.order == len(events):
        return None
    event = events[index]
    bound = crash_bound(Config(), led=event.was_leader)
    if entry.ended < event.at or start > event.at + bound:
        return None
    # Without a leader, no client gets the shards that other clients release. So the
    # leader's crash explains every hand-over.
    is_leaderless = event.was_leader and other.bound == HAND_OVER_SECONDS
    shards = {entry.shard, *oracle.ancestors(entry.shard, parents)}
    explains = is_leaderless or event.shards & shards
    return Pause(index, event.text, 0.0, bound) if explains else None

"""Check on the records and rows of a trial what histories can't say.

The checker of histories checks the order of deliveries, their epochs and the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.testing.bounds import REQUESTS_SECONDS
from kinesumer.testing.trial.journal import Handled, Note, Produced

# The parents of each shard.
Parents: TypeAlias = "Mapping[ShardKey, Iterable[ShardKey]]"


class Snapshot(NamedTuple):
    """The rows of a group, as a read that ended at ``at`` found them."""

    at: float
    shards: dict[ShardKey, ShardRow]
    members: dict[str, MemberRow]
    leader: str | None  # client id

    @property
    def live(self) -> dict[str, MemberRow]:
        """The members that are not dead, by client id."""
        return {name: row for name, row in self.members.items() if not row.dead}


def parents_of(rows: Iterable[ShardRow]) -> Parents:
    """Return the parents of each shard whose row has parents."""
    return {
        row.key: [row.key._replace(shard_id=parent) for parent in row.parents]
        for row in rows
        if row.parents
    }


def ancestors(shard: ShardKey, parents: Parents) -> set[ShardKey]:
    """Return the parents of a shard, their parents, and so on."""
    found = set(parents.get(shard, ()))
    return found.union(*(ancestors(parent, parents) for parent in found))


class Run(NamedTuple):
    """All observations of a run."""

    produced: Sequence[Produced]
    handled: Sequence[Handled]
    snapshots: Sequence[Snapshot]
    parents: Parents
    notes: Sequence[Note] = ()
    # Numbers of records in failed requests. Kinesis may have accepted them anyway.
    uncertain: Container[int] = ()


def lost(run: Run) -> Iterable[str]:
    """Yield a violation if some produced records were never handled."""
    seen = {(h.shard.stream_arn, h.number) for h in run.handled}
    missing = [p for p in run.produced if (p.shard.stream_arn, p.number) not in seen]
    if missing:
        yield f"{len(missing)} records lost, the first: {missing[0]}"


def unknown(run: Run) -> Iterable[str]:
    """Yield handled records that were never produced at their position."""
    produced = {(p.shard, p.number, p.position) for p in run.produced}
    for h in run.handled:
        is_known = (h.shard, h.number, h.position) in produced
        if not is_known and h.number not in run.uncertain:
            yield f"{h} was never produced there"


def death_times(run: Run) -> dict[str, float]:
    """Return the time at which each dead session was first seen dead."""
    died: dict[str, float] = {}
    for snapshot in run.snapshots:
        for member in snapshot.members.values():
            if member.dead:
                died.setdefault(member.session, snapshot.at)
    return died


def too_far(run: Run) -> Iterable[str]:
    """Yield records that a stored checkpoint covered before they were handled."""
    first: dict[tuple[str, int], float] = {}
    for h in run.handled:
        name = (h.shard.stream_arn, h.number)
        first[name] = min(first.get(name, h.ended), h.ended)
    waiting = {shard: deque(log) for shard, log in logs(run).items()}
    for snapshot in run.snapshots:
        for key, row in snapshot.shards.items():
            log = waiting.get(key)
            while log and row.position is not None and log[0].position <= row.position:
                p = log.popleft()
                at = first.get((key.stream_arn, p.number))
                if at is None or at > snapshot.at:
                    yield f"{key.shard_id}: the checkpoint covers {p}, not handled yet"


def repeated(run: Run) -> dict[ShardKey, int]:
    """Return how many records of each shard were handled again."""
    seen: set[tuple[str, int]] = set()
    counts: dict[ShardKey, int] = defaultdict(int)
    for h in run.handled:
        if (h.shard.stream_arn, h.number) in seen:
            counts[h.shard] += 1
        seen.add((h.shard.stream_arn, h.number))
    return dict(counts)


def logs(run: Run) -> dict[ShardKey, list[Produced]]:
    """Return the produced records by shard, in the order of their positions."""
    found: dict[ShardKey, list[Produced]] = defaultdict(list)
    for p in sorted(run.produced, key=lambda p: p.position.order):
        found[p.shard].append(p)
    return found


def by_epoch(run: Run) -> dict[tuple[ShardKey, int], list[Handled]]:
    """Return the handled records by shard and epoch, in the order of time."""
    found: dict[tuple[ShardKey, int], list[Handled]] = defaultdict(list)
    for h in sorted(run.handled, key=lambda h: h.began):
        found[h.shard, h.epoch].append(h)
    return found


# --- permitted repeats: I10 of the protocol -------------------------------------------


class Allowance(NamedTuple):
    """The events that permit repeated records, by shard."""

    # Takeovers from an owner that didn't release: it crashed, hung or was fenced.
    forced: Counter[ShardKey]
    # Records whose handling took longer than a hand-over waits.
    overdue: Counter[ShardKey]

    def records(self, shard: ShardKey, max_uncommitted_records: int) -> int:
        """Return how many records of a shard may be repeated."""
        return max_uncommitted_records * self.forced[shard] + self.overdue[shard]


def allowance(run: Run, drain_timeout_seconds: float) -> Allowance:
    """Return what permits repeated records in a run."""
    overdue = Counter(
        h.shard for h in run.handled if h.ended - h.began > drain_timeout_seconds
    )
    return Allowance(Counter(forced(run)), overdue)


def forced(run: Run) -> Iterator[ShardKey]:
    """Yield a shard for each time its owner died without giving it up."""
    peaceful = set(left(run))
    last: dict[ShardKey, ShardRow] = {}
    for seen, then in pairwise([*run.snapshots, *run.snapshots[-1:]]):
        # A snapshot reads members before shards, so it may show a takeover before it
        # shows that the former owner is dead. Then the next snapshot shows the death.
        live = {row.session for row in then.live.values()}
        for key, row in seen.shards.items():
            before = last.get(key)
            last[key] = row
            if before is None or before.epoch == row.epoch or not before.owner:
                continue
            if before.owner not in live | peaceful:
                yield key


def left(run: Run) -> Iterator[str]:
    """Yield the sessions that gave up all shards before they were dead.

    The entry in the journal isn't enough: other clients may have fenced the session
    before it asked to leave. A leaving client writes "gave up" at most the time of its
    requests after it has marked itself dead.
    """
    died = death_times(run)
    for note in run.notes:
        if note.name == "gave up":
            if died.get(note.text, note.at) >= note.at - REQUESTS_SECONDS:
                yield note.text


# Checks that must find nothing in any run. Histories can't say any of this: they don't
# have the data of records, and don't know when a loop has done one.
PROMISES: dict[str, Callable[[Run], Iterable[str]]] = {
    "records lost": lost,
    "records that were never produced": unknown,
    "positions beyond what was done": too_far,
}

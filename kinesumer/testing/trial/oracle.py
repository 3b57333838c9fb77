"""Check the promises on the records and rows of a trial."""

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
from math import inf
from typing import NamedTuple, TypeAlias, TypeVar

from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.testing.bounds import REQUESTS_SECONDS
from kinesumer.testing.trial.journal import Handled, Note, Produced

S = TypeVar("S")
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


class Verdict(NamedTuple):
    """The promises that a run broke, and the records that it repeated."""

    broken: dict[str, list[str]]  # the violations of each promise
    repeated: dict[ShardKey, int]

    @property
    def faults(self) -> list[str]:
        """The violations of all promises."""
        return [fault for found in self.broken.values() for fault in found]

    @property
    def duplicates(self) -> int:
        """The number of repeated records."""
        return sum(self.repeated.values())


def judge(run: Run) -> Verdict:
    """Check all promises on a run."""
    broken = {what: list(found(run)) for what, found in PROMISES.items()}
    return Verdict(broken, repeated(run))


def lost(run: Run) -> Iterable[str]:
    """Yield a violation if some produced records were never handled."""
    seen = {(h.shard.stream_arn, h.number) for h in run.handled}
    missing = [p for p in run.produced if (p.shard.stream_arn, p.number) not in seen]
    if missing:
        yield f"{len(missing)} records lost, the first: {missing[0]}"


def out_of_order(run: Run) -> Iterable[str]:
    """Yield records that were first handled after a later record of their key.

    A child's positions are higher than its parents' positions.
    """
    last: dict[tuple[str, str], Handled] = {}
    seen: set[tuple[str, int]] = set()
    for h in sorted(run.handled, key=lambda h: h.began):
        if (h.shard.stream_arn, h.number) in seen:
            continue
        seen.add((h.shard.stream_arn, h.number))
        before = last.get((h.shard.stream_arn, h.key))
        if before is not None and h.position < before.position:
            yield f"key {h.key}: {h} was handled first after {before}"
        else:
            last[h.shard.stream_arn, h.key] = h


def unknown(run: Run) -> Iterable[str]:
    """Yield handled records that were never produced in their shard."""
    produced = {(p.shard, p.number) for p in run.produced}
    for h in run.handled:
        if (h.shard, h.number) not in produced and h.number not in run.uncertain:
            yield f"{h} was never produced there"


def gaps(run: Run) -> Iterable[str]:
    """Yield gaps and repeats in the records that a shard delivered in one epoch."""
    places = {
        shard: {p.number: i for i, p in enumerate(log)}
        for shard, log in logs(run).items()
    }
    for (shard, epoch), handled in by_epoch(run).items():
        if len({h.client for h in handled}) > 1:
            yield f"{shard.shard_id}: epoch {epoch} belonged to two clients"
        log = places.get(shard, {})
        known = [h for h in handled if h.number in log]
        for before, after in pairwise(known):
            if log[after.number] != log[before.number] + 1:
                yield f"{shard.shard_id}: in one epoch {after} came after {before}"


def zombies(run: Run) -> Iterable[str]:
    """Yield deliveries after a newer epoch had begun, or after the owner had died."""
    begun: dict[ShardKey, dict[int, float]] = defaultdict(dict)
    for (shard, epoch), handled in by_epoch(run).items():
        begun[shard][epoch] = handled[0].began
    owners: dict[tuple[ShardKey, int], str] = {}
    died = death_times(run)
    for snapshot in run.snapshots:
        for shard, row in snapshot.shards.items():
            known = begun[shard].get(row.epoch, snapshot.at)
            begun[shard][row.epoch] = min(known, snapshot.at)
            if row.owner:
                owners[shard, row.epoch] = row.owner
    until = {shard: ends(times) for shard, times in begun.items()}
    for h in run.handled:
        owner = owners.get((h.shard, h.epoch), "")
        late = h.began - min(until[h.shard][h.epoch], died.get(owner, inf))
        if late > 0:
            yield f"{h} was delivered {late:.3f} s after its epoch or session was over"


def death_times(run: Run) -> dict[str, float]:
    """Return the time at which each dead session was first seen dead."""
    died: dict[str, float] = {}
    for snapshot in run.snapshots:
        for member in snapshot.members.values():
            if member.dead:
                died.setdefault(member.session, snapshot.at)
    return died


def ends(begun: Mapping[int, float]) -> dict[int, float]:
    """Return the time at which each epoch ended: the beginning of the next epoch."""
    found, soonest = {}, inf
    for epoch in sorted(begun, reverse=True):
        found[epoch] = soonest
        soonest = min(soonest, begun[epoch])
    return found


def early_children(
    spans: Mapping[S, tuple[float, float]], parents: Mapping[S, Iterable[S]]
) -> list[tuple[S, S]]:
    """Return each shard that was begun before a parent was finished, with that parent.

    ``spans`` maps each shard to the times at which it was begun and finished.
    """
    return [
        (shard, parent)
        for shard, (begun, _) in spans.items()
        for parent in parents.get(shard, ())
        if parent in spans and begun < spans[parent][1]
    ]


def children_before_parents(run: Run) -> Iterable[str]:
    """Yield children that began before all records of a parent were handled.

    Only the first time counts at which a record was handled. A handler that hung may
    later finish a record that another client has handled meanwhile.
    """
    ended: dict[tuple[ShardKey, int], float] = {}
    begun: dict[ShardKey, float] = {}
    for h in run.handled:
        name = (h.shard, h.number)
        ended[name] = min(ended.get(name, h.ended), h.ended)
        begun[h.shard] = min(begun.get(h.shard, h.began), h.began)
    spans = {shard: (at, 0.0) for shard, at in begun.items()}
    for (shard, _), at in ended.items():
        spans[shard] = begun[shard], max(spans[shard][1], at)
    for child, parent in early_children(spans, run.parents):
        yield f"{child} began before its parent {parent} was handled"


def gone_back(run: Run) -> Iterable[str]:
    """Yield checkpoints and epochs that went back, and ended shards that reopened."""
    last: dict[ShardKey, ShardRow] = {}
    for snapshot in run.snapshots:
        for key, row in snapshot.shards.items():
            before = last.get(key)
            if before is not None and before is not row and is_older(row, before):
                yield f"{key.shard_id}: {row} went back from {before}"
            last[key] = row


def is_older(row: ShardRow, before: ShardRow) -> bool:
    """Return whether a row lacks something that an earlier read found in it."""
    if row.epoch < before.epoch or (before.ended and not row.ended):
        return True
    if before.position is None:
        return False
    return row.position is None or row.position < before.position


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


# Checks that must find nothing in any run.
PROMISES: dict[str, Callable[[Run], Iterable[str]]] = {
    "records lost": lost,
    "records that were never produced": unknown,
    "order violations": out_of_order,
    "gaps and repeats within an epoch": gaps,
    "children before their parents": children_before_parents,
    "zombie deliveries": zombies,
    "checkpoints moved back": gone_back,
    "positions beyond what was done": too_far,
}

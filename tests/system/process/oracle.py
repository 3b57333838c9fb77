"""Judges a fleet's run: what was produced, handled and stored, against the promises."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from itertools import pairwise
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kinesumer.model.rows import ShardRow
    from tests.system.process.producer import Produced
    from tests.system.process.state import Snapshot


class Handled(NamedTuple):
    """A record that a client's handler finished with."""

    client: str
    number: int
    key: str
    shard: ShardKey
    position: Position
    epoch: int
    began: float
    ended: float


class Event(NamedTuple):
    """Anything else that a client wrote down."""

    client: str
    name: str
    text: str
    at: float


class Journal:
    """What one process wrote down, read as it grows."""

    def __init__(self, path: Path, client: str) -> None:
        self.handled: list[Handled] = []
        self.events: list[Event] = []
        self._path, self._client = path, client
        self._offset = 0

    def follow(self) -> Journal:
        """Read what is new; a line cut off by the process's death is nothing."""
        if not self._path.exists():
            return self
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(*json.loads(line))
        return self

    def _take(self, kind: str, *fields: Any) -> None:
        if kind == "event":
            self.events.append(Event(self._client, *fields))
            return
        number, key, arn, shard_id, sequence, part, epoch, began, ended = fields
        shard, position = ShardKey(arn, shard_id), Position(sequence, part)
        self.handled.append(
            Handled(self._client, number, key, shard, position, epoch, began, ended)
        )


class Run(NamedTuple):
    """Everything that is known of a run."""

    produced: list[Produced]
    handled: list[Handled]
    snapshots: list[Snapshot]
    parents: Mapping[ShardKey, Sequence[ShardKey]]
    events: Sequence[Event] = ()


class Verdict(NamedTuple):
    """What is wrong, and how often records were handled again, by shard."""

    broken: dict[str, list[str]]
    """Each promise, and how it was broken."""
    repeated: dict[ShardKey, int]

    @property
    def faults(self) -> list[str]:
        """All that is wrong."""
        return [fault for found in self.broken.values() for fault in found]

    @property
    def duplicates(self) -> int:
        """How many records were handled again, over all shards."""
        return sum(self.repeated.values())


def judge(run: Run) -> Verdict:
    """Hold a run against everything that is promised whatever happens."""
    broken = {what: list(found(run)) for what, found in PROMISES.items()}
    return Verdict(broken, repeated(run))


def lost(run: Run) -> Iterable[str]:
    """Everything produced was handled."""
    seen = {(h.shard.stream_arn, h.number) for h in run.handled}
    missing = [p for p in run.produced if (p.shard.stream_arn, p.number) not in seen]
    if missing:
        yield f"{len(missing)} records lost, the first: {missing[0]}"


def out_of_order(run: Run) -> Iterable[str]:
    """The records of a key are first handled in the order of their numbers."""
    last: dict[tuple[str, str], Handled] = {}
    seen: set[tuple[str, int]] = set()
    for h in sorted(run.handled, key=lambda h: h.began):
        if (h.shard.stream_arn, h.number) in seen:
            continue
        seen.add((h.shard.stream_arn, h.number))
        before = last.get((h.shard.stream_arn, h.key))
        if before is not None and before.number > h.number:
            yield f"key {h.key}: {h} was handled first after {before}"
        last[h.shard.stream_arn, h.key] = h


def gaps(run: Run) -> Iterable[str]:
    """Within an epoch deliveries equal the shard's log, without gap or repeat."""
    places = {
        shard: {p.number: i for i, p in enumerate(log)}
        for shard, log in logs(run).items()
    }
    for (shard, epoch), handled in by_epoch(run).items():
        if len({h.client for h in handled}) > 1:
            yield f"{shard.shard_id}: epoch {epoch} belonged to two clients"
        log = places[shard]
        for before, after in pairwise(handled):
            if log[after.number] != log[before.number] + 1:
                yield f"{shard.shard_id}: in one epoch {after} came after {before}"


def zombies(run: Run) -> Iterable[str]:
    """No epoch delivers once a newer one does or owns the shard, or its owner died."""
    begun: dict[ShardKey, dict[int, float]] = defaultdict(dict)
    for (shard, epoch), handled in by_epoch(run).items():
        begun[shard][epoch] = handled[0].began
    owners: dict[tuple[ShardKey, int], str] = {}
    died: dict[str, float] = {}
    for snapshot in run.snapshots:
        for shard, row in snapshot.shards.items():
            known = begun[shard].get(row.epoch, snapshot.at)
            begun[shard][row.epoch] = min(known, snapshot.at)
            if row.owner:
                owners[shard, row.epoch] = row.owner
        for member in snapshot.members.values():
            if member.dead:
                died.setdefault(member.session, snapshot.at)
    until = {shard: ends(times) for shard, times in begun.items()}
    for h in run.handled:
        owner = owners.get((h.shard, h.epoch), "")
        late = h.began - min(until[h.shard][h.epoch], died.get(owner, inf))
        if late > 0:
            yield f"{h} was delivered {late:.3f} s after its epoch or session was over"


def ends(begun: Mapping[int, float]) -> dict[int, float]:
    """Return when each epoch was over at the latest: when a newer one had begun."""
    found, soonest = {}, inf
    for epoch in sorted(begun, reverse=True):
        found[epoch] = soonest
        soonest = min(soonest, begun[epoch])
    return found


def children_before_parents(run: Run) -> Iterable[str]:
    """A child's first delivery comes after every record of its parents is handled.

    By whomever first: a handler that hung goes on with what others did meanwhile.
    """
    ended: dict[tuple[ShardKey, int], float] = {}
    begun: dict[ShardKey, float] = {}
    for h in run.handled:
        name = (h.shard, h.number)
        ended[name] = min(ended.get(name, h.ended), h.ended)
        begun[h.shard] = min(begun.get(h.shard, h.began), h.began)
    done: dict[ShardKey, float] = defaultdict(float)
    for (shard, _), at in ended.items():
        done[shard] = max(done[shard], at)
    for child, parents in run.parents.items():
        for parent in parents:
            if child in begun and begun[child] < done[parent]:
                yield f"{child} began before its parent {parent} was handled"


def gone_back(run: Run) -> Iterable[str]:
    """Checkpoints and epochs never go back, and an end is one for ever."""
    last: dict[ShardKey, ShardRow] = {}
    for snapshot in run.snapshots:
        for key, row in snapshot.shards.items():
            before = last.get(key)
            if before is not None and before is not row and is_older(row, before):
                yield f"{key.shard_id}: {row} went back from {before}"
            last[key] = row


def is_older(row: ShardRow, before: ShardRow) -> bool:
    """Tell whether a row says less than one before it."""
    if row.epoch < before.epoch or (before.ended and not row.ended):
        return True
    if before.position is None:
        return False
    return row.position is None or row.position < before.position


def too_far(run: Run) -> Iterable[str]:
    """Checkpoints cover nothing that wasn't handled by then."""
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
    """Return how often records of each shard were handled again."""
    seen: set[tuple[str, int]] = set()
    counts: dict[ShardKey, int] = defaultdict(int)
    for h in run.handled:
        if (h.shard.stream_arn, h.number) in seen:
            counts[h.shard] += 1
        seen.add((h.shard.stream_arn, h.number))
    return dict(counts)


def logs(run: Run) -> dict[ShardKey, list[Produced]]:
    """Return what was produced to each shard, in order."""
    found: dict[ShardKey, list[Produced]] = defaultdict(list)
    for p in run.produced:
        found[p.shard].append(p)
    return found


def by_epoch(run: Run) -> dict[tuple[ShardKey, int], list[Handled]]:
    """Return what was handled of each shard in each epoch, in order of time."""
    found: dict[tuple[ShardKey, int], list[Handled]] = defaultdict(list)
    for h in sorted(run.handled, key=lambda h: h.began):
        found[h.shard, h.epoch].append(h)
    return found


def hand_over_gaps(run: Run) -> list[float]:
    """Return the pauses between one epoch's last delivery and the next one's first."""
    found = []
    epochs = sorted(by_epoch(run).items(), key=lambda item: item[0])
    for ((shard, _), old), ((other, _), new) in pairwise(epochs):
        if shard == other:
            found.append(new[0].began - old[-1].ended)
    return found


def summary(seconds: Sequence[float]) -> str:
    """Return median and maximum as text."""
    if not seconds:
        return "none"
    return f"median {median(seconds):.2f} s, longest {max(seconds):.2f} s"


PROMISES: dict[str, Callable[[Run], Iterable[str]]] = {
    "records lost": lost,
    "order violations": out_of_order,
    "gaps and repeats within an epoch": gaps,
    "children before their parents": children_before_parents,
    "zombie deliveries": zombies,
    "checkpoints moved back": gone_back,
    "positions beyond what was done": too_far,
}
"""What has to be nothing, whatever happens."""

"""Check in the records of a trial what the rules of its histories can't say.

Histories don't have the data of records, and don't know when a loop has done one.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kinesumer.model.streams import ShardKey
from kinesumer.ops.history.index import ShardHistory, build_index
from kinesumer.ops.history.lines import find_files, position_of, read_histories
from kinesumer.runtime.clock import SystemClock
from kinesumer.telemetry.history import History
from kinesumer.telemetry.history_file import TextSink
from kinesumer.testing.trial.journal import Handled, Produced

# The parents of each shard.
Parents: TypeAlias = "Mapping[ShardKey, Iterable[ShardKey]]"


def ancestors(shard: ShardKey, parents: Parents) -> set[ShardKey]:
    """Return the parents of a shard, their parents, and so on."""
    found = set(parents.get(shard, ()))
    return found.union(*(ancestors(parent, parents) for parent in found))


class Run(NamedTuple):
    """All observations of a run."""

    produced: Sequence[Produced]
    handled: Sequence[Handled]
    shards: Mapping[ShardKey, ShardHistory]
    parents: Parents
    # Numbers of records in failed requests. Kinesis may have accepted them anyway.
    uncertain: Container[int] = ()


def read_run(
    histories: Path,
    app: str,
    produced: Sequence[Produced],
    handled: Sequence[Handled],
    uncertain: Container[int] = (),
) -> Run:
    """Add the produced records to an app's histories, and read them."""
    with (histories / "producer.jsonl").open("wb") as file:
        history = History([TextSink(file.write)], SystemClock())
        for record in produced:
            history.produced(record.shard, [record.position])
    index = build_index(read_histories(find_files([histories])))
    shards = {
        ShardKey(*place): shard
        for (of_app, *place), shard in index.shards.items()
        if of_app == app
    }
    parents = {
        key: {key._replace(shard_id=one) for x in shard.states for one in x.parents}
        for key, shard in shards.items()
    }
    return Run(produced, handled, shards, parents, uncertain)


def first_handled(run: Run) -> dict[tuple[str, int], Handled]:
    """Return how each record was handled first, by stream and number, in time."""
    found: dict[tuple[str, int], Handled] = {}
    for h in sorted(run.handled, key=lambda h: h.ended):
        found.setdefault((h.shard.stream_arn, h.number), h)
    return found


def lost(run: Run) -> Iterable[str]:
    """Yield a violation if some produced records were never handled."""
    seen = first_handled(run)
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


def too_far(run: Run) -> Iterable[str]:
    """Yield records that a stored checkpoint covered before they were handled."""
    first = first_handled(run)
    waiting: dict[ShardKey, deque[Produced]] = defaultdict(deque)
    for p in sorted(run.produced, key=lambda p: p.position.order):
        waiting[p.shard].append(p)
    for key, shard in run.shards.items():
        log = waiting[key]
        for commit in sorted(shard.commits, key=lambda commit: commit.call.began):
            while log and position_of(log[0].position) <= commit.position:
                p = log.popleft()
                h = first.get((key.stream_arn, p.number))
                if h is None or h.ended > commit.call.began:
                    yield f"{key.shard_id}: the checkpoint covers {p}, not handled yet"


def out_of_order(run: Run) -> Iterable[str]:
    """Yield records that were first handled after a later one of the same key."""
    keys = {(p.shard.stream_arn, p.number): p.key for p in run.produced}
    last: dict[tuple[str, str], Handled] = {}
    for (arn, number), h in first_handled(run).items():
        key = keys.get((arn, number))
        if key is not None:
            before = last.get((arn, key), h)
            if h.position < before.position:
                yield f"{h} was handled after {before}"
            last[arn, key] = h


def repeated(run: Run) -> Counter[ShardKey]:
    """Return how many records of each shard were handled again."""
    first = Counter(h.shard for h in first_handled(run).values())
    return Counter(h.shard for h in run.handled) - first


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
    forced = {key: len(takeovers(shard)) for key, shard in run.shards.items()}
    overdue = Counter(
        h.shard for h in run.handled if h.ended - h.began > drain_timeout_seconds
    )
    return Allowance(Counter(forced), overdue)


def takeovers(shard: ShardHistory) -> set[int]:
    """Return the epochs that began though no owner had given the shard up."""
    owned = {state.epoch for state in shard.states if state.owner}
    given_up = {state.epoch for state in shard.states if not state.owner}
    claimed = {claim.epoch for claim in shard.claims}
    return {epoch for epoch in claimed if epoch - 1 in owned - given_up}


# Checks that must find nothing in any run.
PROMISES: dict[str, Callable[[Run], Iterable[str]]] = {
    "records lost": lost,
    "records that were never produced": unknown,
    "positions beyond what was done": too_far,
}

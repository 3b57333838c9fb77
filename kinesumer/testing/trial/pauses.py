"""The events of a run, and the pauses in the processing of each shard, by cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from kinesumer.testing.bounds import HAND_OVER_SECONDS, STEADY_SECONDS, crash_bound
from kinesumer.testing.trial.journal import Handled
from kinesumer.testing.trial.oracle import Parents, Run

# Tolerance added to each bound, since one busy machine runs all processes.
NOISE_SECONDS = 2.0


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
    by_shard = _first_handled(run)
    for shard, entries in by_shard.items():
        before = _last_of_parents(shard, by_shard, run.parents)
        is_child = before is not None
        for entry in entries:
            start = produced_at.get(entry.number, entry.ended)
            start = max(start, before.ended if before else 0.0)
            pause = _caused(before, entry, events, is_child=is_child)
            index = _killed(start, entry, events, run.parents, pause)
            if index is not None:
                killed = events[index]
                bound = crash_bound(Config(), led=killed.was_leader)
                pause = Pause(index, killed.text, 0.0, bound)
            yield pause._replace(seconds=max(0.0, entry.ended - start))
            before, is_child = entry, False


def _first_handled(run: Run) -> dict[ShardKey, list[Handled]]:
    """Return each shard's records in order of their first handling."""
    by_shard: dict[ShardKey, list[Handled]] = defaultdict(list)
    seen: set[int] = set()
    for entry in sorted(run.handled, key=lambda entry: entry.ended):
        if entry.number not in seen:
            seen.add(entry.number)
            by_shard[entry.shard].append(entry)
    return dict(by_shard)


def _last_of_parents(
    shard: ShardKey,
    by_shard: Mapping[ShardKey, list[Handled]],
    parents: Parents,
) -> Handled | None:
    """Return the record of a shard's parents that was processed last, or None.

    A parent without processed records is replaced by its own parents.
    """
    last = [
        by_shard[parent][-1]
        if by_shard.get(parent)
        else _last_of_parents(parent, by_shard, parents)
        for parent in parents.get(shard, ())
    ]
    entries = (entry for entry in last if entry is not None)
    return max(entries, key=lambda entry: entry.ended, default=None)


def _caused(
    before: Handled | None, entry: Handled, events: list[Event], *, is_child: bool
) -> Pause:
    """Return the pause before a record, as if no client had been killed."""
    if before is None:
        return Pause(0, "from the start to the first record", 0.0, None)
    kinds: tuple[str, ...]
    if is_child:
        kinds, what, bound = ("split", "merge"), "child after parents", STEADY_SECONDS
    elif (before.client, before.epoch) == (entry.client, entry.epoch):
        return Pause(len(events), "otherwise", 0.0, STEADY_SECONDS)
    else:
        kinds, what = ("start", "join", "stop", "kill"), "hand-overs after it"
        bound = HAND_OVER_SECONDS
    past = [n for n, e in enumerate(events) if e.kind in kinds and e.at <= entry.ended]
    return Pause(past[-1], f"{events[past[-1]].text}: {what}", 0.0, bound)


def _killed(
    start: float, entry: Handled, events: list[Event], parents: Parents, other: Pause
) -> int | None:
    """Return the index of the event that killed a client, if it explains a pause."""
    index = next((n for n, event in enumerate(events) if event.kind == "kill"), None)
    if index is None or other.bound is None or other.order == len(events):
        return None
    event = events[index]
    until = event.at + crash_bound(Config(), led=event.was_leader)
    if entry.ended < event.at or start > until:
        return None
    # Without a leader, no client gets the shards that other clients release. So the
    # leader's crash explains every hand-over.
    is_leaderless = event.was_leader and other.bound == HAND_OVER_SECONDS
    return index if is_leaderless or _affects(event, entry.shard, parents) else None


def _affects(event: Event, shard: ShardKey, parents: Parents) -> bool:
    return shard in event.shards or any(
        _affects(event, parent, parents) for parent in parents.get(shard, ())
    )

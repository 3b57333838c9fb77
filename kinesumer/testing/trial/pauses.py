"""The events of a run, and the pauses in the processing of each shard, by cause."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kinesumer.model.streams import ShardKey
    from kinesumer.testing.trial.journal import Handled
    from kinesumer.testing.trial.oracle import Parents, Run

# The longest pauses that the protocol allows with the default configuration. After a
# crash, this is the sum of the leader's interval, the lease, one heartbeat interval
# (two if the leader was killed), and 0.5 s for requests.
CRASH_SECONDS = 11.5
LEADER_CRASH_SECONDS = 13.5
HAND_OVER_SECONDS = 1.0
STEADY_SECONDS = 2.0  # also for the children of a shard
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


class Limit(NamedTuple):
    """A kind of pause, and its bound in seconds, or None if any length is allowed."""

    name: str
    seconds: float | None


class Pause(NamedTuple):
    """A period in which a record waited and no record of its shard was processed."""

    start: float
    seconds: float
    shard: ShardKey
    # "start", "steady", "crash", "hand-over" or "child".
    cause: str
    # The index of the event that caused the pause, or -1 if no event caused it.
    event: int


def find_pauses(run: Run, events: list[Event]) -> Iterator[Pause]:
    """Yield all pauses of a run.

    Each record ends a pause when it is first handled. The pause began when the record
    had been produced and the previous record of the shard had been handled.
    """
    produced_at = {record.number: record.at for record in run.produced}
    by_shard, crash = _first_handled(run), _Crash(events)
    for shard, entries in by_shard.items():
        before = _last_of_parents(shard, by_shard, run.parents)
        is_child = before is not None
        for entry in entries:
            start = produced_at.get(entry.number, entry.ended)
            start = max(start, before.ended if before else 0.0)
            cause, event = _cause(before, entry, events, is_child=is_child)
            if crash.explains(shard, start, entry, cause, run.parents):
                cause, event = "crash", crash.index
            yield Pause(start, max(0.0, entry.ended - start), shard, cause, event)
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


def _cause(
    before: Handled | None, entry: Handled, events: list[Event], *, is_child: bool
) -> tuple[str, int]:
    if before is None:
        return "start", _latest(events, entry.ended, ("start",))
    if is_child:
        return "child", _latest(events, entry.ended, ("split", "merge"))
    if (before.client, before.epoch) == (entry.client, entry.epoch):
        return "steady", -1
    return "hand-over", _latest(events, entry.ended, ("start", "join", "stop", "kill"))


def _latest(events: list[Event], at: float, kinds: tuple[str, ...]) -> int:
    indexes = [
        index
        for index, event in enumerate(events)
        if event.kind in kinds and event.at <= at
    ]
    return indexes[-1] if indexes else -1


class _Crash:
    """Decides whether a pause is due to the kill of a client, not to another event."""

    def __init__(self, events: list[Event]) -> None:
        self.index = next((i for i, e in enumerate(events) if e.kind == "kill"), -1)
        self._event = events[self.index] if self.index >= 0 else None

    def explains(
        self,
        shard: ShardKey,
        start: float,
        entry: Handled,
        cause: str,
        parents: Parents,
    ) -> bool:
        event = self._event
        if event is None or cause in ("start", "steady"):
            return False
        bound = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
        if entry.ended < event.at or start > event.at + bound:
            return False
        # Without a leader, no client gets the shards that other clients release. So the
        # leader's crash explains every hand-over.
        is_leaderless = event.was_leader and cause == "hand-over"
        return is_leaderless or self._affects(event, shard, parents)

    def _affects(self, event: Event, shard: ShardKey, parents: Parents) -> bool:
        return shard in event.shards or any(
            self._affects(event, parent, parents) for parent in parents.get(shard, ())
        )


def limits(events: list[Event]) -> dict[tuple[str, int], Limit]:
    """Return the bound for each pair of a cause and an event's index."""
    result = {("steady", -1): Limit("otherwise", STEADY_SECONDS)}
    for index, event in enumerate(events):
        text = event.text
        if event.kind == "start":
            result["start", index] = Limit("from the start to the first record", None)
        if event.kind in ("split", "merge"):
            name = f"{text}: child after parents"
            result["child", index] = Limit(name, STEADY_SECONDS)
        if event.kind == "kill":
            bound = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
            result["crash", index] = Limit(text, bound)
        if event.kind in ("start", "join", "stop", "kill"):
            name = f"{text}: hand-overs after it"
            result["hand-over", index] = Limit(name, HAND_OVER_SECONDS)
    return result


def longest_pauses(run: Run, events: list[Event]) -> list[tuple[Limit, Pause]]:
    """Return the longest pause for each cause and event, sorted by event."""
    bounds = limits(events)
    longest: dict[tuple[str, int], Pause] = {}
    for pause in find_pauses(run, events):
        key = (pause.cause, pause.event)
        if key not in longest or pause.seconds > longest[key].seconds:
            longest[key] = pause
    ordered = sorted(longest, key=lambda key: (key[1] < 0, key[1], key[0]))
    return [(bounds.get(key, Limit(key[0], None)), longest[key]) for key in ordered]

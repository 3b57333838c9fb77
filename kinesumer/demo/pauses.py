"""The pauses of each shard: how long records waited, and what caused it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.demo.events import (
        Event,
        Parents,
        Processed,
        RecordCounts,
        StreamShard,
    )

CRASH_SECONDS = 11.5
LEADER_CRASH_SECONDS = 13.5
HAND_OVER_SECONDS = 1.0
CHILD_SECONDS = 2.0
STEADY_SECONDS = 2.0
NOISE_SECONDS = 2.0
"""Added to each bound, since all processes run on one machine, which may be busy."""


class Limit(NamedTuple):
    """A kind of pause and its bound; None if it has no bound."""

    name: str
    seconds: float | None

    @property
    def allowed(self) -> float:
        """Return the bound with the allowance for noise."""
        return (self.seconds or 0.0) + NOISE_SECONDS


class Pause(NamedTuple):
    """A time in which a record waited, and no record of its shard was processed."""

    start: float
    seconds: float
    shard: StreamShard
    cause: str
    """start, steady, crash, hand-over, child."""
    event: int
    """The index of the event that caused the pause; -1 for none."""


def find_pauses(
    counts: RecordCounts,
    by_shard: Mapping[StreamShard, list[Processed]],
    parents: Parents,
    events: list[Event],
) -> list[Pause]:
    """Return every pause.

    A pause begins when a record was produced and the record before it was processed. It
    ends when the record is processed.
    """
    produced_at = {record.number: record.at for record in counts.produced}
    crash = _Crash(events)
    result = []
    for shard, entries in by_shard.items():
        before = _last_of_parents(shard, by_shard, parents)
        is_first = True
        for entry in entries:
            if counts.first_processed_at[entry.number] != entry.at:
                continue  # a repeated record doesn't advance the shard
            start = produced_at.get(entry.number, entry.at)
            start = max(start, before.at if before else 0.0)
            is_child = is_first and before is not None
            cause, event = _cause(before, entry, events, is_child=is_child)
            if crash.explains(shard, start, entry, cause, parents):
                cause, event = "crash", crash.index
            seconds = max(0.0, entry.at - start)
            result.append(Pause(start, seconds, shard, cause, event))
            before, is_first = entry, False
    return result


def _last_of_parents(
    shard: StreamShard,
    by_shard: Mapping[StreamShard, list[Processed]],
    parents: Parents,
) -> Processed | None:
    """Return the last entry of the parents, or of their parents if they have none."""
    last = [
        by_shard[parent][-1]
        if by_shard.get(parent)
        else _last_of_parents(parent, by_shard, parents)
        for parent in parents.get(shard, ())
    ]
    entries = (entry for entry in last if entry is not None)
    return max(entries, key=lambda entry: entry.at, default=None)


def _cause(
    before: Processed | None, entry: Processed, events: list[Event], *, is_child: bool
) -> tuple[str, int]:
    if before is None:
        return "start", _latest(events, entry.at, ("start",))
    if is_child:
        return "child", _latest(events, entry.at, ("split", "merge"))
    if (before.client, before.epoch) == (entry.client, entry.epoch):
        return "steady", -1
    return "hand-over", _latest(events, entry.at, ("start", "join", "stop", "kill"))


def _latest(events: list[Event], at: float, kinds: tuple[str, ...]) -> int:
    indexes = [
        index
        for index, event in enumerate(events)
        if event.kind in kinds and event.at <= at
    ]
    return indexes[-1] if indexes else -1


class _Crash:
    """Attributes pauses to the crash, also while other events go on."""

    def __init__(self, events: list[Event]) -> None:
        self.index = next((i for i, e in enumerate(events) if e.kind == "kill"), -1)
        self._event = events[self.index] if self.index >= 0 else None

    def explains(
        self,
        shard: StreamShard,
        start: float,
        entry: Processed,
        cause: str,
        parents: Parents,
    ) -> bool:
        event = self._event
        if event is None or cause in ("start", "steady"):
            return False
        bound = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
        if entry.at < event.at or start > event.at + bound:
            return False
        # Without a leader, no client gets the shards that other clients release.
        is_leaderless = event.was_leader and cause == "hand-over"
        return is_leaderless or self._affects(event, shard, parents)

    def _affects(self, event: Event, shard: StreamShard, parents: Parents) -> bool:
        return shard in event.shards or any(
            self._affects(event, parent, parents) for parent in parents.get(shard, ())
        )


def limits(events: list[Event]) -> dict[tuple[str, int], Limit]:
    """Return the bound for each cause and event."""
    result = {("steady", -1): Limit("otherwise", STEADY_SECONDS)}
    for index, event in enumerate(events):
        text = event.text
        if event.kind == "start":
            result["start", index] = Limit("from the start to the first record", None)
        if event.kind in ("split", "merge"):
            name = f"{text}: child after parents"
            result["child", index] = Limit(name, CHILD_SECONDS)
        if event.kind == "kill":
            bound = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
            result["crash", index] = Limit(text, bound)
        if event.kind in ("start", "join", "stop", "kill"):
            name = f"{text}: hand-overs after it"
            result["hand-over", index] = Limit(name, HAND_OVER_SECONDS)
    return result


def longest_pauses(
    pauses: list[Pause], events: list[Event]
) -> list[tuple[Limit, Pause]]:
    """Return the longest pause for each cause and event, in the events' order."""
    bounds = limits(events)
    longest: dict[tuple[str, int], Pause] = {}
    for pause in pauses:
        key = (pause.cause, pause.event)
        if key not in longest or pause.seconds > longest[key].seconds:
            longest[key] = pause
    ordered = sorted(longest, key=lambda key: (key[1] < 0, key[1], key[0]))
    return [(bounds.get(key, Limit(key[0], None)), longest[key]) for key in ordered]

"""For how long records waited while nothing of their shard was processed, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesumer.demo.counts import Ledger, Processed
    from kinesumer.demo.scenario import Event

Place = tuple[int, int]
"""A stream, by its place in the list, and the number in a shard's id."""
Lineage = Mapping[Place, Iterable[Place]]
"""The parents of each shard."""

CRASH_SECONDS = 11.5
LEADER_CRASH_SECONDS = 13.5
HAND_OVER_SECONDS = 1.0
CHILD_SECONDS = 2.0
STEADY_SECONDS = 2.0
NOISE_SECONDS = 2.0
"""Allowed on top of each bound: the demo runs all processes on one, maybe busy,
machine."""


class Limit(NamedTuple):
    """A kind of pause, and how long it may be (None: there is no bound)."""

    name: str
    seconds: float | None

    @property
    def allowed(self) -> float:
        """The bound with the allowance for noise."""
        return (self.seconds or 0.0) + NOISE_SECONDS


class Pause(NamedTuple):
    """A record waited, and nothing of its shard was processed."""

    start: float
    seconds: float
    shard: Place
    cause: str
    """start, steady, crash, hand-over, child."""
    event: int
    """Place of the event that it belongs to, -1 for none."""


def pauses(
    ledger: Ledger,
    seen: Mapping[Place, list[Processed]],
    parents: Lineage,
    events: list[Event],
) -> list[Pause]:
    """Return every pause: from the time at which the record was there, and the one
    before it processed, to its own processing."""
    put_at = {record.number: record.at for record in ledger.produced}
    crash = _Crash(events)
    found = []
    for shard, entries in seen.items():
        before = _last_of_parents(shard, seen, parents)
        first = True
        for entry in entries:
            if ledger.first_at[entry.number] != entry.at:
                continue  # a repetition moves nothing on
            put = put_at.get(entry.number, entry.at)
            start = max(put, before.at if before else 0.0)
            child = first and before is not None
            cause, event = _cause(before, entry, events, child=child)
            if crash.explains(shard, start, entry, cause, parents):
                cause, event = "crash", crash.place
            seconds = max(0.0, entry.at - start)
            found.append(Pause(start, seconds, shard, cause, event))
            before, first = entry, False
    return found


def _last_of_parents(
    shard: Place, seen: Mapping[Place, list[Processed]], parents: Lineage
) -> Processed | None:
    """Return the last processing of any parent, or of their parents if those had no
    records."""
    found = [
        seen[parent][-1]
        if seen.get(parent)
        else _last_of_parents(parent, seen, parents)
        for parent in parents.get(shard, ())
    ]
    return max((f for f in found if f is not None), key=lambda f: f.at, default=None)


def _cause(
    before: Processed | None, entry: Processed, events: list[Event], *, child: bool
) -> tuple[str, int]:
    if before is None:
        return "start", _latest(events, entry.at, ("start",))
    if child:
        return "child", _latest(events, entry.at, ("split", "merge"))
    if (before.client, before.epoch) == (entry.client, entry.epoch):
        return "steady", -1
    return "hand-over", _latest(events, entry.at, ("start", "join", "stop", "kill"))


def _latest(events: list[Event], at: float, kinds: tuple[str, ...]) -> int:
    found = [
        index
        for index, event in enumerate(events)
        if event.kind in kinds and event.at <= at
    ]
    return found[-1] if found else -1


class _Crash:
    """Whether a pause comes from the crash, whatever else happened then."""

    def __init__(self, events: list[Event]) -> None:
        self.place = next((i for i, e in enumerate(events) if e.kind == "kill"), -1)
        self._event = events[self.place] if self.place >= 0 else None

    def explains(
        self,
        shard: Place,
        start: float,
        entry: Processed,
        cause: str,
        parents: Lineage,
    ) -> bool:
        event = self._event
        if event is None or cause in ("start", "steady"):
            return False
        over = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
        if entry.at < event.at or start > event.at + over:
            return False
        # Without a leader nobody is given what others release.
        alone = event.was_leader and cause == "hand-over"
        return alone or self._concerns(shard, parents)

    def _concerns(self, shard: Place, parents: Lineage) -> bool:
        assert self._event is not None
        return shard in self._event.places or any(
            self._concerns(parent, parents) for parent in parents.get(shard, ())
        )


def limits(events: list[Event]) -> dict[tuple[str, int], Limit]:
    """Return the bound of each (cause, event)."""
    found = {("steady", -1): Limit("otherwise", STEADY_SECONDS)}
    for place, event in enumerate(events):
        text = event.text
        if event.kind == "start":
            found["start", place] = Limit("from the start to the first record", None)
        if event.kind in ("split", "merge"):
            found["child", place] = Limit(f"{text}: child after parents", CHILD_SECONDS)
        if event.kind == "kill":
            bound = LEADER_CRASH_SECONDS if event.was_leader else CRASH_SECONDS
            found["crash", place] = Limit(text, bound)
        if event.kind in ("start", "join", "stop", "kill"):
            found["hand-over", place] = Limit(
                f"{text}: hand-overs after it", HAND_OVER_SECONDS
            )
    return found


def longest(found: list[Pause], events: list[Event]) -> list[tuple[Limit, Pause]]:
    """Return the longest pause of each kind and event, in the order of the events."""
    known = limits(events)
    worst: dict[tuple[str, int], Pause] = {}
    for pause in found:
        key = (pause.cause, pause.event)
        if key not in worst or pause.seconds > worst[key].seconds:
            worst[key] = pause
    ordered = sorted(worst, key=lambda key: (key[1] < 0, key[1], key[0]))
    return [(known.get(key, Limit(key[0], None)), worst[key]) for key in ordered]

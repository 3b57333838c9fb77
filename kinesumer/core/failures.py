"""Count failures over a sliding minute, and decide which ones are incidents.

For example, a handler fails at 0 s, 30 s and 80 s. Until 140 s a stream has failures
since 0 s, because no minute passes without one.

A shard's position expires at 0 s, 20 s and 40 s. The third note within a minute begins
an incident. It ends at 100 s unless it is noted again before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kinesumer.model.incidents import (
    MAX_ERROR_LETTERS,
    QUIET_SECONDS,
    Incident,
    IncidentKind,
)
from kinesumer.model.positions import Position
from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.model.streams import ShardKey

# An incident begins with this many notes within QUIET_SECONDS. One failure may be
# chance, and a client repeats a lasting one every few seconds.
BEGINNING_NOTES = 3
# Notes about further shards or rows are ignored, since people read only a few.
MAX_SUBJECTS = 1000
K = TypeVar("K")


class LastFailure(NamedTuple):
    """A record that user code could not handle, or that could not be decoded."""

    error_type: str
    position: str


@dataclass(eq=False, slots=True)
class OutcomeMeter:
    """Counts for one owner of a shard how calls end, and which record failed last."""

    calls: int = 0
    failed: int = 0
    letters: int = 0
    skipped: int = 0
    last: LastFailure | None = None

    def fail(self, error: BaseException, position: Position) -> None:
        """Note the record at which user code or a decoder has failed."""
        self.last = LastFailure(type(error).__name__, position.text)

    def skip(self, position: Position) -> None:
        """Count a record that cannot be decoded and is skipped."""
        self.skipped += 1
        self.last = LastFailure("DecodeError", position.text)

    def read(self, key: ShardKey, done: int) -> Reading:
        """Return the counts of a shard of which so many records are done."""
        counts = Outcomes(done, self.calls, self.failed, self.letters, self.skipped)
        return Reading(key, counts, self.last)


class Reading(NamedTuple):
    """The counts of a shard since its claim."""

    key: ShardKey
    outcomes: Outcomes
    last: LastFailure | None = None


class _Stream:
    """The counts of one stream in the window."""

    def __init__(self) -> None:
        self.added: deque[tuple[float, Outcomes]] = deque()
        self.since: float | None = None
        self.error: LastError | None = None

    def add(self, outcomes: Outcomes, now: float, wall: float) -> Outcomes:
        """Add counts, and return the sums of the window."""
        self.added.append((now, outcomes))
        while now - self.added[0][0] >= QUIET_SECONDS:
            self.added.popleft()
        sums = Outcomes(*map(sum, zip(*(one for _, one in self.added), strict=True)))
        if not sums.problems:
            self.since = self.error = None
        elif self.since is None:
            self.since = wall
        return sums


class FailureWindows(Generic[K]):
    """Follows the failures of streams from reading to reading."""

    def __init__(self) -> None:
        # By stream ARN: what the last reading added.
        self.added: dict[str, Outcomes] = {}
        self._before: dict[K, Reading] = {}
        self._streams: dict[str, _Stream] = {}

    def update(
        self, readings: Mapping[K, Reading], now: float, wall: float
    ) -> list[StreamFailures]:
        """Return the streams with failures in the last minute, the worst first.

        ``readings`` holds all shards that are owned. ``now`` is of a monotonic clock,
        ``wall`` is in seconds since 1970.
        """
        self.added = {arn: Outcomes() for arn in self._streams}
        for owner, reading in readings.items():
            self._add(reading, self._before.get(owner), wall)
        self._before = dict(readings)
        found = []
        for arn, stream in self._streams.items():
            sums = stream.add(self.added[arn], now, wall)
            if stream.since is not None:
                found.append(StreamFailures(arn, stream.since, sums, stream.error))
        return sorted(found, key=lambda one: -one.outcomes.problems)

    def _add(self, reading: Reading, before: Reading | None, wall: float) -> None:
        (arn, shard_id), outcomes, last = reading
        if before is not None:
            outcomes = outcomes.minus(before.outcomes)
        self.added[arn] = self.added.get(arn, Outcomes()).plus(outcomes)
        stream = self._streams.setdefault(arn, _Stream())
        # Each failure notes another object.
        if last is not None and (before is None or last is not before.last):
            stream.error = LastError(last.error_type, shard_id, last.position, wall)


class MinuteCounts:
    """Adds counts up, and tells them a minute after the first one."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def add(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        """Add counts by stream ARN, and return the sums that are due now."""
        for arn, count in counts.items():
            if count:
                due, before = self._counts.get(arn, (now + QUIET_SECONDS, 0))
                self._counts[arn] = due, before + count
        found = {arn: n for arn, (due, n) in self._counts.items() if now >= due}
        for arn in found:
            del self._counts[arn]
        return found


class Subject(NamedTuple):
    """A kind of incident, and what it concerns."""

    kind: IncidentKind
    stream_arn: str = ""
    shard_id: str = ""


class _Notes(NamedTuple):
    """The notes of one subject."""

    incident: Incident
    # The times of the notes that may begin the incident, or only of the last one.
    times: tuple[float, ...]
    has_begun: bool


class IncidentTracker:
    """The incidents of one client, by the notes about them.

    Times named ``now`` are of a monotonic clock.
    """

    def __init__(self) -> None:
        self._notes: dict[Subject, _Notes] = {}

    def note(
        self, subject: Subject, error: str, now: float, wall: float
    ) -> Incident | None:
        """Note a failure, and return the incident if this note begins it.

        ``wall`` is the time in seconds since 1970.
        """
        before = self._notes.get(subject)
        if before is None:
            if subject.shard_id and len(self._notes) >= MAX_SUBJECTS:
                return None
            before = _Notes(Incident(*subject, since=wall, count=0), (), False)
        text = " ".join(error.split())[:MAX_ERROR_LETTERS]
        count = before.incident.count + 1
        incident = before.incident._replace(count=count, error=text)
        if before.has_begun:
            self._notes[subject] = _Notes(incident, (now,), True)
            return None
        times = (*before.times[1 - BEGINNING_NOTES :], now)
        is_many = len(times) == BEGINNING_NOTES and now - times[0] <= QUIET_SECONDS
        begins = is_many or subject.kind.about.begins_at_once
        self._notes[subject] = _Notes(incident, times, begins)
        return incident if begins else None

    def resolve(self, subject: Subject) -> Incident | None:
        """Forget a subject; return its incident, if there was one."""
        notes = self._notes.pop(subject, None)
        return notes.incident if notes is not None and notes.has_begun else None

    def expire(self, now: float) -> list[Incident]:
        """End the incidents that have not been noted for a while, and return them."""
        quiet = [
            subject
            for subject, notes in self._notes.items()
            if now - notes.times[-1] > subject.kind.about.quiet_seconds
        ]
        ended = map(self.resolve, quiet)
        return [incident for incident in ended if incident is not None]

    def current(self) -> list[Incident]:
        """Return the incidents; the kinds that matter most come first."""
        found = [notes.incident for notes in self._notes.values() if notes.has_begun]
        kinds = list(IncidentKind)
        return sorted(found, key=lambda it: (kinds.index(it.kind), it.since))

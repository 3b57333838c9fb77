"""Decide which noted failures are incidents, and when incidents end.

For example, a shard's position expires at 0 s, 20 s and 40 s. The third note within a
minute begins an incident. It ends at 100 s unless it is noted again before.
"""

from __future__ import annotations

from typing import NamedTuple

from kinesumer.model.incidents import (
    MAX_ERROR_LETTERS,
    QUIET_SECONDS,
    Incident,
    IncidentKind,
)

# An incident begins with this many notes within QUIET_SECONDS. One failure may be
# chance, and a client repeats a lasting one every few seconds.
BEGINNING_NOTES = 3
# Notes about further shards or rows are ignored, since people read only a few.
MAX_SUBJECTS = 1000


class Subject(NamedTuple):
    """A kind of incident, and what it concerns."""

    kind: IncidentKind
    stream_arn: str = ""
    shard_id: str = ""


class _Notes(NamedTuple):
    """What is known of one subject."""

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

"""Test which noted failures become incidents, and when incidents end."""

from __future__ import annotations

import pytest

from kinesumer.core.incidents import MAX_SUBJECTS, IncidentTracker, Subject
from kinesumer.model.incidents import MAX_ERROR_LETTERS, Incident, IncidentKind

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CLAIMS, REFUSED = IncidentKind.REPEATED_CLAIM, IncidentKind.READ_REFUSED
SHARD = Subject(CLAIMS, ARN, "shardId-1")
EPOCH = 1_700_000_000.0
AT_ONCE = [kind for kind in IncidentKind if kind.about.begins_at_once]


def note_at(tracker: IncidentTracker, *times: float, about: Subject = SHARD) -> bool:
    """Note a failure at each time; return whether the last note begins an incident."""
    begun = [tracker.note(about, f"error at {at:g}", at, EPOCH + at) for at in times]
    assert not any(begun[:-1])
    return begun[-1] is not None


def test_the_third_note_within_a_minute_begins_an_incident() -> None:
    tracker = IncidentTracker()
    assert not note_at(tracker, 0.0, 20.0)
    assert tracker.current() == []
    assert note_at(tracker, 60.0)
    expected = Incident(*SHARD, since=EPOCH, count=3, error="error at 60")
    assert tracker.current() == [expected]


def test_an_incident_begins_only_once_and_counts_later_notes() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0, 2.0)
    assert not note_at(tracker, 3.0, 4.0)
    [incident] = tracker.current()
    assert (incident.count, incident.since) == (5, EPOCH)
    assert incident.error == "error at 4"


def test_rare_failures_are_no_incident() -> None:
    assert not note_at(IncidentTracker(), 0.0, 40.0, 80.0, 120.0)


def test_notes_about_different_shards_or_kinds_are_not_counted_together() -> None:
    tracker = IncidentTracker()
    for number in range(5):
        assert not note_at(tracker, 1.0, about=SHARD._replace(shard_id=f"{number}"))
    assert not note_at(tracker, 1.0, about=SHARD._replace(kind=REFUSED))


@pytest.mark.parametrize("kind", AT_ONCE)
def test_some_kinds_begin_at_the_first_note(kind: IncidentKind) -> None:
    assert note_at(IncidentTracker(), 0.0, about=Subject(kind))


def test_an_incident_that_is_not_noted_for_a_minute_ends() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0, 2.0)
    assert tracker.expire(62.0) == []
    [ended] = tracker.expire(62.1)
    assert ended.count == 3
    assert tracker.current() == []


def test_a_note_that_began_nothing_is_forgotten_without_an_end() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0)
    assert tracker.expire(61.1) == []
    assert not note_at(tracker, 61.2)


def test_some_incidents_last_until_they_are_resolved() -> None:
    tracker, about = IncidentTracker(), Subject(IncidentKind.CREDENTIALS)
    note_at(tracker, 0.0, about=about)
    assert tracker.expire(1e9) == []
    resolved = tracker.resolve(about)
    assert resolved is not None
    assert tracker.resolve(about) is None


def test_resolving_what_is_not_yet_an_incident_ends_nothing() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0)
    assert tracker.resolve(SHARD) is None
    assert not note_at(tracker, 2.0)


def test_the_kinds_that_matter_most_come_first() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0, 2.0, about=SHARD._replace(kind=REFUSED))
    note_at(tracker, 3.0, about=Subject(IncidentKind.KMS, ARN))
    note_at(tracker, 4.0, about=Subject(IncidentKind.CREDENTIALS))
    kinds = [incident.kind for incident in tracker.current()]
    assert kinds == [IncidentKind.CREDENTIALS, IncidentKind.KMS, REFUSED]


def test_an_error_is_one_short_line() -> None:
    tracker = IncidentTracker()
    incident = tracker.note(Subject(IncidentKind.KMS, ARN), "a\n b" + 999 * "c", 0, 0)
    assert incident is not None
    assert incident.error.startswith("a bccc")
    assert len(incident.error) == MAX_ERROR_LETTERS


def test_the_number_of_noted_shards_is_bounded_but_not_that_of_streams() -> None:
    tracker = IncidentTracker()
    for number in range(MAX_SUBJECTS + 1):
        note_at(tracker, 0.0, 1.0, about=SHARD._replace(shard_id=f"{number}"))
        tracker.note(SHARD._replace(shard_id=f"{number}"), "", 2.0, EPOCH)
    assert len(tracker.current()) == MAX_SUBJECTS
    assert note_at(tracker, 3.0, about=Subject(IncidentKind.CREDENTIALS))

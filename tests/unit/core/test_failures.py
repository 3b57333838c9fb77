"""Test how failures are counted over the last minute, and which become incidents."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.core.failures import (
    MAX_SUBJECTS,
    FailureWindows,
    IncidentTracker,
    MinuteCounts,
    OutcomeMeter,
    Subject,
)
from kinesumer.model.incidents import (
    MAX_ERROR_LETTERS,
    QUIET_SECONDS,
    Incident,
    IncidentKind,
)
from kinesumer.model.positions import Position
from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.model.streams import ShardKey

WALL = 1_700_000_000.0
ONE, TWO = ShardKey("arn:a", "shardId-1"), ShardKey("arn:a", "shardId-2")
OTHER = ShardKey("arn:b", "shardId-1")


class Shards:
    """Shards whose records a test lets succeed and fail, and their windows."""

    def __init__(self, *keys: ShardKey) -> None:
        self.meters = {key: OutcomeMeter() for key in keys}
        self.done = dict.fromkeys(keys, 0)
        self.windows: FailureWindows[ShardKey] = FailureWindows()

    def fail(self, key: ShardKey = ONE, number: int = 1) -> None:
        self.meters[key].calls += 1
        self.meters[key].failed += 1
        self.meters[key].fail(ValueError("a secret"), Position(str(number)))

    def succeed(self, key: ShardKey = ONE, count: int = 1) -> None:
        self.meters[key].calls += count
        self.done[key] += count

    def at(self, now: float) -> list[StreamFailures]:
        readings = {
            key: meter.read(key, self.done[key]) for key, meter in self.meters.items()
        }
        return self.windows.update(readings, now, WALL + now)


def test_streams_without_failures_are_not_reported() -> None:
    shards = Shards(ONE, OTHER)
    shards.succeed(count=100)
    assert shards.at(2) == []
    assert shards.windows.added["arn:a"] == Outcomes(done=100, calls=100)


def test_a_failure_is_reported_with_its_type_and_place_but_without_text() -> None:
    shards = Shards(ONE, TWO, OTHER)
    shards.succeed(TWO, 9)
    shards.fail(ONE, 7)
    [found] = shards.at(2)
    error = LastError("ValueError", "shardId-1", "7", WALL + 2)
    assert found == StreamFailures("arn:a", WALL + 2, Outcomes(9, 10, 1), error)
    assert found.outcomes.problems == 1


def test_counts_are_those_of_the_last_minute() -> None:
    shards = Shards(ONE)
    for now in range(0, 200, 2):
        shards.succeed()
        shards.fail()
        [found] = shards.at(now)
    assert found.since == WALL
    assert found.outcomes == Outcomes(done=30, calls=60, failed=30)


def test_failures_end_after_a_minute_without_one() -> None:
    shards = Shards(ONE)
    shards.fail()
    assert shards.at(0)
    assert shards.at(QUIET_SECONDS - 1)
    assert shards.at(QUIET_SECONDS) == []
    shards.fail()
    [found] = shards.at(100)
    assert found.since == WALL + 100


def test_the_last_error_is_kept_until_another_one_or_the_end() -> None:
    shards = Shards(ONE, TWO)
    shards.fail(ONE, 1)
    shards.at(0)
    shards.fail(TWO, 2)
    [found] = shards.at(10)
    assert found.error == LastError("ValueError", "shardId-2", "2", WALL + 10)
    [found] = shards.at(20)
    assert found.error == LastError("ValueError", "shardId-2", "2", WALL + 10)
    shards.fail(ONE, 1)  # the same record again
    [found] = shards.at(30)
    assert found.error == LastError("ValueError", "shardId-1", "1", WALL + 30)


def test_letters_and_skipped_records_are_failures_too() -> None:
    shards = Shards(ONE)
    meter = shards.meters[ONE]
    meter.letters += 3
    meter.skip(Position("8", 2))
    [found] = shards.at(0)
    assert found.outcomes == Outcomes(letters=3, skipped=1)
    assert found.error == LastError("DecodeError", "shardId-1", "8:2", WALL)


def test_what_a_lost_shard_counted_stays_in_the_window() -> None:
    shards = Shards(ONE)
    shards.fail()
    shards.at(0)
    shards.meters = {ONE: OutcomeMeter()}  # claimed again
    shards.meters[ONE].calls = 5
    readings: dict[Any, Any] = {}
    [found] = shards.windows.update(readings, 1, WALL)
    assert found.outcomes.failed == 1
    [found] = shards.at(2)
    assert found.outcomes == Outcomes(calls=6, failed=1)


def test_the_worst_stream_comes_first() -> None:
    shards = Shards(ONE, OTHER)
    shards.fail(ONE)
    shards.fail(OTHER)
    shards.fail(OTHER)
    assert [found.stream_arn for found in shards.at(0)] == ["arn:b", "arn:a"]


@pytest.mark.parametrize("steps", [1, 7])
def test_counts_are_told_a_minute_after_the_first_one(steps: int) -> None:
    counts = MinuteCounts()
    for now in range(steps):
        assert counts.add({"a": 2, "b": 0}, now) == {}
    assert counts.add({}, 59.9) == {}
    assert counts.add({"a": 1}, 60) == {"a": 2 * steps + 1}
    assert counts.add({}, 500) == {}


ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CLAIMS, ENDS = IncidentKind.REPEATED_CLAIM, IncidentKind.UNCONFIRMED_END
SHARD = Subject(CLAIMS, ARN, "shardId-1")
AT_ONCE = [kind for kind in IncidentKind if kind.about.begins_at_once]


def note_at(tracker: IncidentTracker, *times: float, about: Subject = SHARD) -> bool:
    """Note a failure at each time; return whether the last note begins an incident."""
    begun = [tracker.note(about, f"error at {at:g}", at, WALL + at) for at in times]
    assert not any(begun[:-1])
    return begun[-1] is not None


@pytest.mark.parametrize(
    ("times", "begins"),
    [
        ((0.0,), False),
        ((0.0, 20.0), False),
        ((0.0, 20.0, 60.0), True),  # the third note within a minute
        ((0.0, 1.0, 2.0, 3.0, 4.0), False),  # it begins only once
        ((0.0, 40.0, 80.0, 120.0), False),
    ],
)
def test_the_third_note_within_a_minute_begins_an_incident(
    times: tuple[float, ...], begins: bool
) -> None:
    tracker = IncidentTracker()
    notes = [tracker.note(SHARD, f"error at {at:g}", at, WALL + at) for at in times]
    assert (notes[-1] is not None) is begins
    error = f"error at {times[-1]:g}"
    expected = Incident(*SHARD, since=WALL, count=len(times), error=error)
    has_begun = begins or len(times) == 5
    assert tracker.current() == [expected] * has_begun


def test_notes_about_different_shards_or_kinds_are_not_counted_together() -> None:
    tracker = IncidentTracker()
    for number in range(5):
        assert not note_at(tracker, 1.0, about=SHARD._replace(shard_id=f"{number}"))
    assert not note_at(tracker, 1.0, about=SHARD._replace(kind=ENDS))


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


def test_notes_that_began_nothing_are_forgotten_without_an_end() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0)
    assert tracker.expire(61.1) == []
    assert not note_at(tracker, 61.2, 61.3)
    assert tracker.resolve(SHARD) is None
    assert not note_at(tracker, 61.4)


def test_some_incidents_last_until_they_are_resolved() -> None:
    tracker, about = IncidentTracker(), Subject(IncidentKind.CREDENTIALS)
    note_at(tracker, 0.0, about=about)
    assert tracker.expire(1e9) == []
    resolved = tracker.resolve(about)
    assert resolved is not None
    assert tracker.resolve(about) is None


def test_the_kinds_that_matter_most_come_first() -> None:
    tracker = IncidentTracker()
    note_at(tracker, 0.0, 1.0, 2.0, about=SHARD._replace(kind=ENDS))
    note_at(tracker, 3.0, about=Subject(IncidentKind.KMS, ARN))
    note_at(tracker, 4.0, about=Subject(IncidentKind.CREDENTIALS))
    kinds = [incident.kind for incident in tracker.current()]
    assert kinds == [IncidentKind.CREDENTIALS, IncidentKind.KMS, ENDS]


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
        tracker.note(SHARD._replace(shard_id=f"{number}"), "", 2.0, WALL)
    assert len(tracker.current()) == MAX_SUBJECTS
    assert note_at(tracker, 3.0, about=Subject(IncidentKind.CREDENTIALS))

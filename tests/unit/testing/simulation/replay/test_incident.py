"""Replay an incident of a chaos run: a process was stopped, fenced and then killed.

``stopped_and_killed.recording.gz`` is of ``python -m tests.system.chaos`` with three
clients, one stream and leases of 3 s, whose storms only split shards and sent SIGSTOP,
SIGCONT and SIGKILL. The expected writes are those of the process's history.
"""

from __future__ import annotations

import gzip
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from kinesumer.coordination.held_shards import HeldShards
from kinesumer.testing.simulation.replay.run import ReplayOutcome, replay
from kinesumer.testing.simulation.replay.timeline import Event
from tests.support.recordings import record_again

INCIDENT = Path(__file__).with_name("stopped_and_killed.recording.gz")
STREAM = "chaos41-stream-0"


def shards(*numbers: int) -> list[str]:
    return [f"{STREAM} shardId-{number:012}" for number in numbers]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_bytes(gzip.decompress(INCIDENT.read_bytes()))
    return path


@pytest.fixture
def incident(file: Path) -> ReplayOutcome:
    return replay(file)


def since_the_stop(outcome: ReplayOutcome) -> list[Event]:
    """Return what happened from the long pause of the process on, to the next one."""
    [begin, end] = [e for e in outcome.events if e.what == "stopped"]
    later = dropwhile(lambda event: event is not begin, outcome.events)
    return [*takewhile(lambda event: event is not end, later)]


def writes(events: list[Event]) -> list[str]:
    return [event.text for event in events if event.what == "did"]


def test_the_client_does_what_it_did_in_the_incident(incident: ReplayOutcome) -> None:
    assert not incident.divergence, "\n".join(incident.lines)
    assert incident.seconds == pytest.approx(27.5)
    decisions = [text for text in writes(incident.events) if "commit" not in text]
    assert len(decisions) == 46


def test_the_client_takes_the_shards_of_a_killed_one(incident: ReplayOutcome) -> None:
    decisions = [text for text in writes(incident.events) if "commit" not in text]
    assert decisions[:10] == [
        "register client-003",
        "create group: refused",
        "mark dead client-002",
        "lead",
        "publish",
        "assign client-003",
        *(f"claim {name}, epoch 3" for name in shards(6, 7)),
        f"claim {shards(1)[0]}, epoch 4",
        f"claim {shards(4)[0]}, epoch 3",
    ]


def test_a_stopped_client_notices_its_lost_lease_and_claims_again(
    incident: ReplayOutcome,
) -> None:
    events = since_the_stop(incident)

    assert events[0].text == "the process does nothing for 5.5 s"
    decisions = [text for text in writes(events) if "commit" not in text]
    assert decisions[:5] == [
        "heartbeat client-003: refused",
        "register client-003",
        *(f"claim {name}, epoch 4" for name in shards(5, 3)),
        f"note tried record {shards(5)[0]}",
    ]
    logged = [event.text for event in events if event.what == "says"]
    assert any("is dead; registering a new one" in text for text in logged)


def test_a_fenced_client_commits_nothing_until_it_claims(
    incident: ReplayOutcome,
) -> None:
    """The last commits were sent before the process was stopped, as their answers show.

    Its records of the 5.5 s are handed out only after the claims.
    """
    events = since_the_stop(incident)
    until_claim = takewhile(lambda event: "claim" not in event.text, events)
    commits = [text for text in writes([*until_claim]) if "commit" in text]

    sent = dict(text.split(", sent at ") for text in commits)
    assert sent.keys() == {f"commit {name}" for name in shards(3, 4, 5)}
    assert all(float(at.removesuffix(" s")) < events[0].at for at in sent.values())


def test_a_client_that_keeps_its_shards_after_a_fence_diverges(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldShards, "drop_all", lambda self: None)

    outcome = replay(file)

    assert "shardId-000000000005" in outcome.divergence
    stopped = next(e.at for e in outcome.events if e.what == "stopped")
    assert stopped < outcome.seconds < stopped + 15


@pytest.mark.parametrize("seconds", [6, 7, 9])
def test_a_recording_that_begins_late_is_replayed_from_what_was_known(
    file: Path, tmp_path: Path, seconds: float
) -> None:
    """The client runs on, and each segment begins with what it knew."""
    later = tmp_path / "later"
    record_again(file, later, seconds)

    outcome = replay(later)

    assert not outcome.divergence, "\n".join(outcome.lines)
    assert outcome.seconds < 2 * seconds + 2

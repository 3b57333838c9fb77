"""Test which recorded answer a replayed call gets, and what is a divergence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinesumer import Config
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ports import Write
from kinesumer.telemetry.history import Line
from kinesumer.testing.simulation.replay.answers import (
    DivergedError,
    Inferred,
    Never,
    Recorded,
    RecordedAnswers,
)
from kinesumer.testing.simulation.replay.recorded_run import read_recording
from kinesumer.testing.simulation.replay.writes import arguments_of, kind_of, text_of
from kinesumer.wire import shard_writes, writes
from tests.support.recordings import APP, CLIENT, WrittenRecording

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARD = ShardRow(
    key=ShardKey(ARN, "shardId-000000000000"),
    first_hash=0,
    last_hash=2**128 - 1,
    start=Start.LATEST,
    epoch=3,
    owner="session",
)
MEMBER = MemberRow(CLIENT, "session", streams=frozenset({ARN}))
OWN_ROW = {"pk": f"member#{APP}", "sk": CLIENT, "session": "session"}
LEASE = Config().lease_duration_seconds
END = 100.0


def claim(epoch: int = 3, session: str = "session") -> Line:
    row, member = SHARD._replace(epoch=epoch), MEMBER._replace(session=session)
    return arguments_of(shard_writes.claim(APP, row, member, "nonce"))


def commit(number: str = "1") -> Line:
    return arguments_of(shard_writes.commit(APP, SHARD, Position(number)))


def release() -> Line:
    return arguments_of(shard_writes.release(APP, SHARD, None))


def heartbeat(beat: int = 1) -> Line:
    write = writes.heartbeat(APP, MEMBER, beat, state="up", lease_ms=8000)
    return arguments_of(write)


class Case:
    """A recording, and the answers of its replay."""

    def __init__(self, path: Path) -> None:
        self.written = WrittenRecording()
        self._path = path
        self._answers: RecordedAnswers | None = None

    def wrote(
        self, at: float, line: Line, *, applied: bool = True, error: str = ""
    ) -> None:
        """Add a write to the recording."""
        row = {"pk": line["key"][0], "sk": line["key"][1], **line["set"]}
        result = {"applied": applied, "row": row}
        self.written.call(at, "write", result, error, **line)

    @property
    def answers(self) -> RecordedAnswers:
        if self._answers is None:
            self.written.add(END, "end")
            self._answers = RecordedAnswers(
                read_recording(self.written.save(self._path))
            )
        return self._answers

    def begun(self, line: Line, now: float) -> float:
        """Return when the recorded call began that answers a write."""
        answer = self.answers.write(line, now)
        assert isinstance(answer, Recorded)
        return answer.call.begun

    def read(self, now: float) -> Any:
        """Return the beat in a row that is read."""
        about: Line = {"key": [f"member#{APP}", CLIENT]}
        answer = self.answers.read("get", about, now)
        match answer:
            case Recorded(call):
                return call.result["beat"]
            case Inferred(row):
                return row["beat"]
        return None


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "recording")


# --- claims and other decisions -------------------------------------------------------


def test_a_write_gets_the_answer_to_the_same_write(case: Case) -> None:
    case.wrote(5, claim())

    assert case.begun(claim(), 4.9) == 5


def test_ids_of_the_recording_become_those_of_the_replay(case: Case) -> None:
    case.wrote(1, arguments_of(writes.register(APP, MEMBER, None, "2026")))
    case.wrote(5, claim())

    again = MEMBER._replace(session="replay-1")
    case.answers.write(arguments_of(writes.register(APP, again, None, "2027")), 1)

    assert case.answers.ids == {"session": "replay-1"}
    assert case.begun(claim(session="replay-1"), 5) == 5


@pytest.mark.parametrize(
    ("replayed", "reason"),
    [
        (claim(epoch=4), "it wrote .*'epoch': 4.*, not .*'epoch': 5"),
        (release(), "Its next write of the row, at 5.000 s: claim orders shardId"),
        (claim(session="another"), "'owner': 'session'.*, not .*'owner': 'another'"),
    ],
    ids=["another epoch", "another write", "another session"],
)
def test_another_write_than_recorded_diverges(
    case: Case, replayed: Line, reason: str
) -> None:
    case.wrote(5, claim())

    with pytest.raises(DivergedError, match=reason):
        case.answers.write(replayed, 5)


def test_a_write_that_is_not_recorded_diverges(case: Case) -> None:
    with pytest.raises(DivergedError, match="It wrote the row no more"):
        case.answers.write(claim(), 5)


def test_a_write_much_earlier_than_recorded_diverges(case: Case) -> None:
    case.wrote(5 + 2 * LEASE, claim())

    with pytest.raises(DivergedError, match="claim orders"):
        case.answers.write(claim(), 5)


def test_a_write_that_is_left_out_is_overdue_after_a_lease(case: Case) -> None:
    case.wrote(5, claim())

    assert case.answers.overdue(5 + LEASE / 2) == ""
    assert "claim orders shardId-000000000000, epoch 4" in case.answers.overdue(
        6 + LEASE
    )


def test_a_write_that_is_left_out_is_missing_at_the_end(case: Case) -> None:
    case.wrote(END - 2, claim())

    assert "claim orders" in case.answers.missing()


def test_calls_of_the_last_second_get_no_answer(case: Case) -> None:
    assert case.answers.write(claim(), END - 0.5) == Never()
    assert case.answers.write(commit(), END - 0.5) == Never()
    assert case.answers.missing() == ""


def test_failed_attempts_may_be_fewer_or_more(case: Case) -> None:
    for at in (5.0, 5.2, 5.4):
        case.wrote(at, claim(), error="StoreUnavailableError")
    case.wrote(15, claim())

    found = [case.begun(claim(), now) for now in (5, 5.5, 6, 7, 14.9)]
    assert found == pytest.approx([5.0, 5.4, 5.4, 5.4, 15])
    assert case.answers.harmless["retry more than recorded"] == 2


# --- heartbeats and commits -----------------------------------------------------------


def test_heartbeats_get_the_nearest_answer(case: Case) -> None:
    for at in (2, 4, 6):
        case.wrote(at, heartbeat(at))

    assert [case.begun(heartbeat(9), now) for now in (1.5, 5.9)] == [2, 6]
    assert case.answers.harmless == {"heartbeat fewer than recorded": 1}


def test_a_commit_may_have_another_position(case: Case) -> None:
    case.wrote(5, commit("10"))

    assert case.begun(commit("9"), 5.1) == 5


def test_a_commit_more_is_harmless_if_a_later_heartbeat_shows_a_live_session(
    case: Case,
) -> None:
    case.wrote(20, heartbeat())

    assert isinstance(case.answers.write(commit(), 10), Inferred)
    assert case.answers.harmless == {"commit more than recorded": 1}


def test_a_commit_of_a_client_that_was_fenced_diverges(case: Case) -> None:
    case.wrote(2, heartbeat())
    case.wrote(20, heartbeat(), applied=False)

    with pytest.raises(DivergedError, match="no later answer shows that it might"):
        case.answers.write(commit(), 10)


def test_a_commit_of_a_former_session_diverges(case: Case) -> None:
    again = MEMBER._replace(session="session-2")
    write = writes.heartbeat(APP, again, 1, state="up", lease_ms=8000)
    case.wrote(20, arguments_of(write))

    with pytest.raises(DivergedError, match="no later answer shows that it might"):
        case.answers.write(commit(), 19)


def test_a_commit_does_not_take_the_answer_of_the_next_epoch(case: Case) -> None:
    case.wrote(20, heartbeat(), applied=False)
    case.wrote(21, claim())
    case.wrote(22, commit())

    with pytest.raises(DivergedError, match="commit orders"):
        case.answers.write(commit(), 19)


# --- reads ----------------------------------------------------------------------------


def test_a_read_gets_the_nearest_answer(case: Case) -> None:
    for at in (2, 4, 6):
        row = {**OWN_ROW, "beat": at}
        case.written.call(at, "get", row, key=[f"member#{APP}", CLIENT])

    assert [case.read(1.9), case.read(5.8)] == [2, 6]


def test_a_read_at_another_time_shows_what_the_client_knew(case: Case) -> None:
    row = {**OWN_ROW, "beat": 7}
    case.written.call(10, "query", [row], pk=f"member#{APP}", first="", last="")
    case.wrote(30, claim())
    later = {**OWN_ROW, "beat": 8}
    case.written.call(40, "query", [later], pk=f"member#{APP}", first="", last="")

    assert case.read(20) == 7
    assert case.read(50) == 7  # the client has not made its claim yet
    case.answers.write(claim(), 30)
    assert case.read(50) == 8


def test_a_row_that_was_never_read_diverges(case: Case) -> None:
    with pytest.raises(DivergedError, match=r"not recorded: get member#app client-1"):
        case.read(20)


# --- words ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "kind", "text"),
    [
        (shard_writes.mark_ended(APP, SHARD, None), "end shard", "end shard orders"),
        (shard_writes.ready(APP, SHARD), "open shard", "open shard orders"),
        (shard_writes.reopen(APP, SHARD), "reopen shard", "reopen shard orders"),
        (shard_writes.create_shard(APP, SHARD), "create shard", "create shard orders"),
        (writes.leave(APP, MEMBER, "2026"), "mark dead", "mark dead client-1"),
        (writes.lead(APP, MEMBER, None), "lead", "lead"),
        (writes.create_group(APP, "id"), "create group", "create group"),
        (
            writes.request_streams(APP, MEMBER, frozenset()),
            "request streams",
            "request streams client-1",
        ),
    ],
)
def test_writes_have_names(write: Write, kind: str, text: str) -> None:
    line = arguments_of(write)
    assert kind_of(line) == kind
    assert text_of(line).startswith(text)

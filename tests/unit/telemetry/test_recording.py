"""Test which lines a recording keeps, and that it never harms its client."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.telemetry.history import History, Line
from kinesumer.telemetry.history_file import open_client_history
from kinesumer.telemetry.recorded_calls import RecordedStore
from kinesumer.telemetry.recording import Recording, previous_segment
from kinesumer.testing.simulation.memory_store import MemoryStore
from tests.support.clock import StillClock

SHARD = ("arn:stream/orders", "shardId-0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def line(at: float, kind: str, **fields: object) -> Line:
    return {"kind": kind, "at": at, **fields}


def client(at: float = 0.0) -> Line:
    return line(at, "client", client="a")


def start(recording: Recording, at: float = 0.0) -> None:
    """Let a client start, which consumes something."""
    recording.append(client(at))
    recording.append(line(at, "consume", streams=[]))


def call(recording: Recording, at: float, number: int, **fields: object) -> None:
    recording.append(line(at, "call", call=number, **fields))


def answer(recording: Recording, at: float, number: int, result: object) -> None:
    recording.append(line(at, "answer", call=number, result=result))


def kinds(path: Path) -> list[str]:
    return [each["kind"] for each in lines(path)]


# --- segments -------------------------------------------------------------------------


def test_the_last_minutes_are_kept_in_two_files(path: Path) -> None:
    recording = Recording(path, segment_seconds=10)
    start(recording)
    for second in range(1, 100):
        recording.append(line(second, "leave"))

    kept = [
        each["at"] for file in (previous_segment(path), path) for each in lines(file)
    ]

    assert sorted(p.name for p in path.parent.iterdir()) == ["recording", "recording.1"]
    assert [at for at in kept if at] == [80, *range(80, 90), 90, *range(90, 100)]


def test_a_segment_is_replaced_when_it_is_large(path: Path) -> None:
    recording = Recording(path, segment_bytes=2_000)
    start(recording)
    for second in range(500):
        recording.append(line(second / 1000, "leave", text="x" * 100))

    sizes = [file.stat().st_size for file in (previous_segment(path), path)]

    assert max(sizes) < 2_000 + 300


def test_a_later_segment_begins_with_what_the_client_knew(path: Path) -> None:
    recording = Recording(path, segment_seconds=10)
    start(recording)
    old, new = ({"pk": "p", "sk": "a", "beat": beat} for beat in (1, 2))
    gone = {"pk": "p", "sk": "b"}
    call(recording, 1, 1, name="query", pk="p", first="", last="")
    answer(recording, 1, 1, [old, gone])
    call(recording, 2, 2, name="write", key=["p", "a"])
    answer(recording, 2, 2, {"applied": True, "row": new})
    call(recording, 2, 3, name="write", key=["p", "b"])
    answer(recording, 2, 3, {"applied": True, "row": None})
    call(recording, 3, 4, name="describe", stream="orders")
    answer(recording, 3, 4, ["arn"])
    call(recording, 4, 5, name="verify")
    recording.append(line(20, "leave"))

    first, known, *others = lines(path)

    assert first == client()
    assert known["rows"] == [new]
    assert known["answers"] == [
        {"name": "describe", "stream": "orders", "result": ["arn"]}
    ]
    assert [each["call"] for each in known["open_calls"]] == [5]
    assert known["consume"]["kind"] == "consume"
    assert [each["kind"] for each in others] == ["leave"]


def test_a_client_that_starts_again_keeps_the_recording_before(path: Path) -> None:
    for at in (0.0, 50.0):
        recording = Recording(path)
        start(recording, at)
        recording.close()

    assert lines(previous_segment(path))[0]["at"] == 0.0
    assert lines(path)[0]["at"] == 50.0


# --- counts ---------------------------------------------------------------------------


def test_requests_and_deliveries_become_counts(path: Path) -> None:
    recording = Recording(path)
    start(recording)
    for number in range(100):
        at = 1 + number / 10_000
        recording.append(line(at, "ask", loop=1, items="records"))
        positions = [[str(number), None]]
        fields = {"shard": SHARD, "epoch": 1, "positions": positions, "keys": ["ab"]}
        recording.append(line(at, "deliver", by="loop", **fields))
    recording.append(line(2, "leave"))

    counted = [each for each in lines(path) if each["kind"] in ("ask", "deliver")]

    assert sum(each["count"] for each in counted if each["kind"] == "ask") == 100
    assert sum(each["count"] for each in counted if each["kind"] == "deliver") == 100
    assert len(counted) == 3
    assert all("positions" not in each and "keys" not in each for each in counted)


def test_what_was_counted_is_written_before_the_end(path: Path) -> None:
    recording = Recording(path)
    start(recording)
    for at in (1, 1.001, 1.002):
        recording.append(line(at, "ask", loop=1, items="records"))
    recording.close()

    assert [each.get("count") for each in lines(path)[2:]] == [1, 2]


def test_the_request_that_starts_the_client_is_kept(path: Path) -> None:
    recording = Recording(path)
    recording.append(line(0, "ask", loop=1, items="batches"))
    start(recording, 5)

    assert kinds(path) == ["client", "ask", "consume"]


# --- what must not harm the client ----------------------------------------------------


def test_a_recording_that_cannot_be_written_is_reported_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    recording = Recording(path)

    with caplog.at_level(logging.WARNING, "kinesumer"):
        start(recording)
        start(recording, 10)
        recording.close()

    [record] = caplog.records
    assert f"KINESUMER_RECORD={path}: the recording ends" in record.getMessage()


def test_a_second_client_does_not_write_the_recording_of_the_first(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Recording(path), Recording(path)
    start(first)

    with caplog.at_level(logging.WARNING, "kinesumer"):
        start(second, 10)
    first.append(line(20, "leave"))

    assert "another client writes it" in caplog.text
    assert kinds(path) == ["client", "consume", "leave"]
    assert not previous_segment(path).exists()


@pytest.mark.parametrize(
    ("value", "written"),
    [(UnsupportedValue('{"L": []}'), '{"L": []}'), (10**37, 10**37)],
)
async def test_a_value_that_no_client_writes_is_recorded(
    path: Path, value: Value, written: object
) -> None:
    clock = StillClock()
    history = History([Recording(path)], clock)
    history.begin("app", "a", "auto")
    store = MemoryStore(clock)
    row: Row = {"pk": "p", "sk": "s", "other": value}
    store.restore([row], "table")

    assert await RecordedStore(store, history).get(Key("p", "s")) == row

    assert lines(path)[-1]["result"]["other"] == written


def test_processes_with_one_environment_have_files_of_their_own(tmp_path: Path) -> None:
    variables = {"KINESUMER_RECORD": str(tmp_path / "app-{pid}.rec")}
    history = open_client_history(StillClock(), variables)
    assert history is not None

    history.begin("app", "a", "auto")
    history.close()

    assert [file.name for file in tmp_path.iterdir()] == [f"app-{os.getpid()}.rec"]


def test_without_the_variables_there_is_no_history() -> None:
    assert open_client_history(StillClock(), {"KINESUMER_RECORD": ""}) is None

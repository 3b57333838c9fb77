"""Test how recordings are read, and what a replay of one reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kinesumer import Config
from kinesumer.telemetry.recording import previous_segment
from kinesumer.testing.simulation.command import main
from kinesumer.testing.simulation.replay.recorded_run import (
    RecordingError,
    read_recording,
)
from tests.support.recordings import START, WrittenRecording

HEARTBEAT = Config().heartbeat_interval_seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording"


def replay(path: Path) -> Result:
    return CliRunner().invoke(main, ["replay", str(path)])


def test_times_begin_at_the_start_of_the_client(path: Path) -> None:
    written = WrittenRecording()
    written.call(3, "verify", "table")

    run = read_recording(written.save(path))

    [call] = run.calls
    assert (call.begun, call.answered) == pytest.approx((3, 3.01))
    assert run.begin == 0
    assert run.end == pytest.approx(3.01)


def test_a_pause_of_the_process_is_a_gap(path: Path) -> None:
    written = WrittenRecording()
    for at in (1, 2, 22, 23):
        written.call(at, "verify", "table")

    [gap] = read_recording(written.save(path)).gaps()

    assert gap == pytest.approx((2.01, 22))


def test_a_call_without_an_answer_is_cut_off(path: Path) -> None:
    written = WrittenRecording()
    written.add(1, "call", call=1, name="verify")
    written.call(2, "verify", error="CancelledError")

    calls = read_recording(written.save(path)).calls

    assert [call.is_cut_off for call in calls] == [True, True]


def test_a_line_that_a_kill_cut_off_is_left_out(path: Path) -> None:
    written = WrittenRecording()
    written.call(1, "verify", "table")
    written.save(path)
    whole = path.read_text()
    path.write_text(whole + '{"kind": "call", "at": 12')

    assert len(read_recording(path).lines) == 3


def test_the_segment_before_is_read_if_it_is_of_the_same_client(path: Path) -> None:
    written = WrittenRecording()
    head = written.lines[0]
    written.call(1, "verify", "table")
    written.save(previous_segment(path))
    later = WrittenRecording()
    later.call(2, "verify", "table")
    known = {"rows": [], "answers": [], "open_calls": [], "consume": later.lines[1]}
    later.lines[:2] = [head, {"kind": "known", "at": START + 2, **known}]
    later.save(path)

    assert [round(call.begun) for call in read_recording(path).calls] == [1, 2]
    written.lines[0] = {**head, "client": "another"}
    written.save(previous_segment(path))
    run = read_recording(path)
    assert [call.begun for call in run.calls] == [HEARTBEAT]
    assert run.begin == HEARTBEAT  # until then, the client starts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "isn't a recording"),
        ("hello\n", "isn't a recording"),
        ('{"kind": "call", "at": 1, "call": 1}\n', "the first line is"),
        ('{"kind": "client", "at": 1, "format": 2}\n', "the first line is"),
        (
            json.dumps(WrittenRecording().lines[0]) + "\n",
            "no line says what was consumed",
        ),
    ],
)
def test_another_file_is_refused(path: Path, text: str, reason: str) -> None:
    path.write_text(text)

    with pytest.raises(RecordingError, match=reason):
        read_recording(path)

    result = replay(path)
    assert result.exit_code == 2
    assert "Invalid value for FILE" in result.output


def test_a_client_that_does_something_else_ends_the_replay(path: Path) -> None:
    written = WrittenRecording()
    stream = {"name": "orders", "region": None, "start": None, "fan_out": None}
    written.lines[1]["streams"] = [{**stream, "fan_out_fallback": False}]
    written.call(0.1, "open_source", {"fan_out": None}, stream="another")
    written.add(20, "end")

    result = replay(written.save(path))

    assert result.exit_code == 1
    last = result.output.splitlines()[-1]
    assert "diverged: a read that is not recorded: open_source orders" in last

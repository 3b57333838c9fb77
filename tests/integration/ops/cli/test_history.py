"""Test ``kinesumer verify history``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.cli import CONSUME, Run

RECORDS = 10  # of the stream


@pytest.fixture
def history(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """Return the file that a client of some records has written."""
    monkeypatch.setenv("KINESUMER_HISTORY", str(tmp_path))
    assert run(*CONSUME, f"--limit={RECORDS}").exit_code == 0
    [file] = tmp_path.iterdir()
    return file


def test_it_shows_what_was_checked(history: Path, run: Run) -> None:
    shown = run("verify", "history", str(history.parent))

    assert shown.exit_code == 0
    assert f"{RECORDS} deliveries" in " ".join(shown.output.split())
    assert "every rule was kept" in shown.output


def test_it_ends_with_status_4_if_a_rule_was_broken(history: Path, run: Run) -> None:
    text = history.read_text()
    delivery = next(line for line in text.splitlines() if '"deliver"' in line)
    history.write_text(f"{text}{delivery}\n")

    shown = run("verify", "history", str(history.parent))
    report = run("verify", "history", str(history.parent), "--json")

    assert shown.exit_code == report.exit_code == 4
    assert "records repeated in an epoch: " in shown.output
    assert json.loads(report.output)["faults"]["records repeated in an epoch"]


def test_it_refuses_a_directory_without_histories(tmp_path: Path, run: Run) -> None:
    shown = run("verify", "history", str(tmp_path))

    assert shown.exit_code == 1
    assert "the directories have no file *.jsonl" in shown.output

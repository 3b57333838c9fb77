"""The tables of ``status`` for people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kinesumer.admin.status import report
from kinesumer.cli.report_tables import show_status
from kinesumer.model.rows import GroupRow
from tests.unit.admin.test_status import ARN, FOUND, LAGS, SILENT, member


def test_the_tables_show_pauses_and_drains(capsys: Any) -> None:
    group = GroupRow("g", paused=True, pause_reason="night work")
    [stream] = FOUND.streams
    found = replace(
        FOUND,
        group=group,
        streams=[stream._replace(paused=True)],
        members=[member("a", drained=True)],
    )
    show_status(report("app", "table", found, LAGS, SILENT))
    text = capsys.readouterr().out
    assert "all streams are paused: night work" in text
    assert "1 ended shards; paused" in " ".join(text.split())
    assert "drained" in text
    assert "orphaned, paused" in text


def test_a_narrow_terminal_does_not_cut_names_off(
    capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    show_status(report("app", "table", FOUND, LAGS, SILENT))
    told = capsys.readouterr().out
    shown = [row for row in FOUND.shards[ARN] if not row.ended]
    assert shown
    assert all(row.key.shard_id in told for row in shown)
    assert "…  " not in told


def test_the_tables_show_shards_owners_and_problems(capsys: Any) -> None:
    show_status(report("app", "table", FOUND, LAGS, SILENT))
    text = capsys.readouterr().out
    assert "shardId-1" in text
    assert "none → a" in text
    assert "1.5 s" in text
    assert "! b looks stalled" in text

"""Test ``kinesumer doctor`` and ``kinesumer verify`` against the embedded AWS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from kinesumer.wire.cbor import decoder
from tests.support.cli import Run, report

DOCUMENT = (Path(__file__).parents[4] / "docs" / "doctor.md").read_text()
EXAMINE = ["doctor", "--app=a", "--interval=1"]


def texts(found: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in found["findings"]]


def test_records_in_danger_give_exit_status_4(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.put("orders", b"unread", "customer 1")
    stopped_app.advance(20 * 3600)
    found = report(run(*EXAMINE, "--json"), status=4)
    assert found["worst"] == "critical"
    assert "no client is alive: no records are read" in texts(found)
    assert any("of its retention old" in text for text in texts(found))
    assert any("ahead of" in t or "behind AWS's" in t for t in texts(found))
    shown = run(*EXAMINE).output
    assert "CRITICAL" in shown
    assert "→ raise the stream's retention first" in shown


def test_a_missing_table_is_a_finding(aws: EmbeddedAws, run: Run) -> None:
    found = report(run(*EXAMINE, "--json"), status=4)
    assert found["app_examined"] is False
    [text] = texts(found)
    assert "kinesumer init" in text
    assert "not examined: app a" in run(*EXAMINE).output


def test_missing_credentials_are_a_finding(environment: None, run: Run) -> None:
    found = report(run(*EXAMINE, "--region=us-east-1", "--json"), status=4)
    assert found["caller"] is None
    assert found["findings"][0]["check"] == "credentials"


def test_an_unreachable_table_gives_exit_status_1(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "not examined: app a" in result.output
    assert run("doctor").exit_code == 1


def test_an_unreachable_sts_is_a_note(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    found = report(run("doctor", "--json"))
    assert found["worst"] == "note"
    assert "clocks" not in found["checks"]
    assert found["decoder"] == decoder()
    shown = run("doctor").output
    assert f"decoder: {decoder()}" in shown
    assert "as an unknown caller" in shown
    assert "without it, clocks aren't compared" in shown


def test_an_app_is_examined_without_permission_to_write(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("dynamodb:DeleteItem")
    found = json.loads(run(*EXAMINE, "--json").output)
    assert found["app_examined"] is True
    subjects = [finding["subject"] for finding in found["findings"]]
    assert "dynamodb:DeleteItem on table kinesumer-state-store" in subjects
    assert "app a" in subjects


# --- verify ---------------------------------------------------------------------------


def verify(run: Run, status: int) -> Any:
    return report(run("verify", "--app=a", "--json"), status)


def verdicts(found: dict[str, Any]) -> list[str]:
    return sorted({shard["verdict"] for shard in found["streams"][0]["shards"]})


def test_committed_positions_are_there(stopped_app: EmbeddedAws, run: Run) -> None:
    found = verify(run, 0)
    assert (found["worst"], verdicts(found)) == ("note", ["there"])
    assert "2 there" in run("verify", "--app=a").output
    stream = found["streams"][0]
    for name in {*found, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in DOCUMENT, name


def test_a_recreated_stream_voids_positions(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.delete_stream("orders")
    stopped_app.advance(5)
    stopped_app.create_stream("orders", 2)
    found = verify(run, 4)
    assert "created again" in found["streams"][0]["problem"]
    assert "not compared" in run("verify", "--app=a").output


def test_an_unreadable_stream_is_a_warning(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.deny("kinesis:ListShards")
    found = verify(run, 3)
    assert "access denied: kinesis:ListShards" in found["streams"][0]["problem"]

"""``kinesumer doctor`` against the embedded AWS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.conftest import lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

CONSUME = ["consume", "orders", "--app=a", "--start=TRIM_HORIZON"]
EXAMINE = ["doctor", "--app=a", "--interval=1"]

pytestmark = pytest.mark.process


def texts(report: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in report["findings"]]


def test_a_healthy_fleet_has_no_findings(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    lines(start(*CONSUME), 10)
    result = run(*EXAMINE, "--json")
    report = json.loads(result.output)
    assert (report["findings"], report["worst"], result.exit_code) == ([], None, 0)
    assert report["app_examined"] is True
    document = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    assert all(f"`{name}`" in document for name in report)
    assert all(check in document for check in report["checks"])
    assert "all is well" in run("doctor").output


def test_records_in_danger_give_exit_status_4(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.put("orders", b"unread", "customer 1")
    stopped_app.advance(20 * 3600)
    result = run(*EXAMINE, "--json")
    report = json.loads(result.output)
    assert (report["worst"], result.exit_code) == ("critical", 4)
    assert "no client is alive: no records are read" in texts(report)
    assert any("of its retention old" in text for text in texts(report))
    assert any("ahead of" in t or "behind AWS's" in t for t in texts(report))
    shown = run(*EXAMINE).output
    assert "CRITICAL" in shown
    assert "→ raise the stream's retention first" in shown


def test_a_missing_table_is_a_finding(aws: EmbeddedAws, run: Run) -> None:
    result = run(*EXAMINE, "--json")
    report = json.loads(result.output)
    assert result.exit_code == 4
    assert report["app_examined"] is False
    [text] = texts(report)
    assert "kinesumer init" in text
    assert "not examined: app a" in run(*EXAMINE).output


def test_missing_credentials_are_a_finding(environment: None, run: Run) -> None:
    result = run(*EXAMINE, "--region=us-east-1", "--json")
    report = json.loads(result.output)
    assert (result.exit_code, report["caller"]) == (4, None)
    assert report["findings"][0]["check"] == "credentials"


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
    result = run("doctor", "--json")
    report = json.loads(result.output)
    assert (report["worst"], result.exit_code) == ("note", 0)
    assert "clocks" not in report["checks"]
    shown = run("doctor").output
    assert "as an unknown caller" in shown
    assert "without it, clocks aren't compared" in shown


def test_doctor_fails_for_an_unknown_app(orders: EmbeddedAws, run: Run) -> None:
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "knows no app 'a'" in result.stderr


def test_an_app_is_examined_without_permission_to_write(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("dynamodb:DeleteItem")
    result = run(*EXAMINE, "--json")
    report = json.loads(result.output)
    assert report["app_examined"] is True
    subjects = [finding["subject"] for finding in report["findings"]]
    assert "dynamodb:DeleteItem on table kinesumer-state-store" in subjects
    assert "app a" in subjects


def test_doctor_writes_nothing(orders: EmbeddedAws, run: Run) -> None:
    assert run("doctor").exit_code == 0
    body = json.dumps({"TableName": "kinesumer-state-store"}).encode()
    assert orders.dynamodb("Scan", body)["Items"] == []

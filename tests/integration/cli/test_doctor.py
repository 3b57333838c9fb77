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


@pytest.fixture
def orders(aws: EmbeddedAws) -> EmbeddedAws:
    """A table, and a stream of two shards with some records."""
    aws.create_table()
    aws.create_stream("orders", 2)
    for number in range(10):
        aws.put("orders", b"order %d" % number, f"customer {number}")
    return aws


def texts(told: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in told["findings"]]


def test_a_healthy_fleet_has_no_findings(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    lines(start(*CONSUME), 10)
    result = run(*EXAMINE, "--json")
    told = json.loads(result.output)
    assert (told["findings"], told["worst"], result.exit_code) == ([], None, 0)
    assert told["app_examined"] is True
    document = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    assert all(f"`{name}`" in document for name in told)
    assert all(check in document for check in told["checks"])
    assert "all is well" in run("doctor").output


def test_what_threatens_records_is_the_exit_status(left: EmbeddedAws, run: Run) -> None:
    left.put("orders", b"unread", "customer 1")
    left.advance(20 * 3600)
    result = run(*EXAMINE, "--json")
    told = json.loads(result.output)
    assert (told["worst"], result.exit_code) == ("critical", 4)
    assert "no client is alive: no records are read" in texts(told)
    assert any("of its retention old" in text for text in texts(told))
    assert any("ahead of" in t or "behind AWS's" in t for t in texts(told))
    shown = run(*EXAMINE).output
    assert "CRITICAL" in shown
    assert "→ raise the stream's retention first" in shown


def test_a_table_that_isnt_there_is_a_finding(aws: EmbeddedAws, run: Run) -> None:
    result = run(*EXAMINE, "--json")
    told = json.loads(result.output)
    assert result.exit_code == 4
    assert told["app_examined"] is False
    [text] = texts(told)
    assert "kinesumer init" in text
    assert "not examined: app a" in run(*EXAMINE).output


def test_missing_credentials_are_a_finding(environment: None, run: Run) -> None:
    result = run(*EXAMINE, "--region=us-east-1", "--json")
    told = json.loads(result.output)
    assert (result.exit_code, told["caller"]) == (4, None)
    assert told["findings"][0]["check"] == "credentials"


def test_a_table_that_doesnt_answer_is_no_mere_warning(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "not examined: app a" in result.output
    assert run("doctor").exit_code == 1


def test_networks_without_a_way_to_sts_are_no_finding_to_act_on(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    result = run("doctor", "--json")
    told = json.loads(result.output)
    assert (told["worst"], result.exit_code) == ("note", 0)
    assert "clocks" not in told["checks"]
    shown = run("doctor").output
    assert "as an unknown caller" in shown
    assert "without it, clocks aren't compared" in shown


def test_an_unknown_app_is_a_fault(orders: EmbeddedAws, run: Run) -> None:
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "knows no app 'a'" in result.stderr


def test_it_looks_at_an_app_though_writes_arent_allowed(
    left: EmbeddedAws, run: Run
) -> None:
    left.deny("dynamodb:DeleteItem")
    result = run(*EXAMINE, "--json")
    told = json.loads(result.output)
    assert told["app_examined"] is True
    subjects = [finding["subject"] for finding in told["findings"]]
    assert "dynamodb:DeleteItem on table kinesumer-state-store" in subjects
    assert "app a" in subjects


def test_nothing_is_written(orders: EmbeddedAws, run: Run) -> None:
    assert run("doctor").exit_code == 0
    body = json.dumps({"TableName": "kinesumer-state-store"}).encode()
    assert orders.dynamodb("Scan", body)["Items"] == []

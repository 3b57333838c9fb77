"""Test the reports of acceptance runs, and their costs."""

from __future__ import annotations

import json

import pytest

from kinesumer.testing.trial.acceptance.report import Report, Result, Verdict, masked
from kinesumer.testing.trial.acceptance.run import Options, plan

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/a"


def report(*verdicts: Verdict) -> Report:
    results = [
        Result("streams", f"check {n}", verdict, 1.0, f"{ARN} | it", {"records": 7})
        for n, verdict in enumerate(verdicts)
    ]
    return Report("2026-01-31T12:00:00Z", "us-east-1", "AWS", 61.0, results, [])


@pytest.mark.parametrize(
    ("verdicts", "is_good"),
    [
        (["passed", "skipped"], True),
        (["passed", "failed"], False),
        (["skipped"], False),
        ([], False),
    ],
)
def test_a_run_is_good_if_a_check_passed_and_none_failed(
    verdicts: list[Verdict], is_good: bool
) -> None:
    made = report(*verdicts)
    assert made.is_good is is_good
    assert made.verdict.startswith("GOOD") is is_good
    assert json.loads(made.json())["good"] is is_good


def test_reports_hold_no_account_and_no_key() -> None:
    made = report("failed")
    for text in (made.json(), made.markdown()):
        assert "123456789012" not in text
        assert "arn:aws:kinesis:us-east-1:***:stream/a" in text
    assert masked("key AKIAABCDEFGHIJKLMNOP") == "key ***"
    assert masked("shardId-000000000001") == "shardId-000000000001"


def test_a_check_is_one_row_of_the_markdown() -> None:
    rows = [
        line for line in report("passed").markdown().splitlines() if "check 0" in line
    ]
    assert len(rows) == 1
    assert "\\| it; records: 7 |" in rows[0]


def test_a_run_costs_less_than_a_dollar_by_default() -> None:
    default = plan(Options(), has_role=False)
    assert 0 < default.dollars < 1
    full = plan(Options(fan_out=True), has_role=True)
    assert default.dollars < full.dollars < 3
    assert full.minutes < 60

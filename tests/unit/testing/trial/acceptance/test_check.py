"""Test how checks fail, and the reports, costs and names of acceptance runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.testing.trial.acceptance.account import (
    PREFIX,
    TAG,
    RunNames,
    find_leftovers,
)
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    Report,
    Result,
    Verdict,
    expect,
    expect_equal,
    expect_error,
    masked,
    registrar,
)
from kinesumer.testing.trial.acceptance.run import Options, plan

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/a"


def test_a_false_condition_fails_with_its_text() -> None:
    expect(True, "never shown")
    with pytest.raises(CheckFailedError, match="no record arrived"):
        expect(False, "no record arrived")


def test_unequal_values_are_both_named_and_long_ones_are_cut() -> None:
    expect_equal([1], [1])
    with pytest.raises(CheckFailedError, match="shards: found 1, expected 2"):
        expect_equal(1, 2, "shards")
    with pytest.raises(CheckFailedError) as raised:
        expect_equal(b"x" * 500_000, b"")
    assert len(str(raised.value)) < MAX_ERROR_LETTERS + 100


def raise_in_block(error: Exception | None, text: str = "") -> None:
    with expect_error(ValueError, text):
        if error is not None:
            raise error


def test_an_error_is_expected_with_its_kind_and_text() -> None:
    raise_in_block(ValueError("stream orders"), "orders")
    with pytest.raises(CheckFailedError, match="no ValueError was raised"):
        raise_in_block(None)
    with pytest.raises(CheckFailedError, match="doesn't contain 'orders'"):
        raise_in_block(ValueError("stream clicks"), "orders")
    with pytest.raises(KeyError):
        raise_in_block(KeyError("an error of another kind"))


def test_a_check_is_named_as_its_function() -> None:
    checks: list[Check[[]]] = []

    @registrar(checks)(3)
    async def records_come_in_order() -> None:
        """Do nothing."""

    assert checks == [records_come_in_order]
    assert checks[0].name == "records come in order"
    assert checks[0].shards == 3


# --- reports and costs ----------------------------------------------------------------


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


# --- names ----------------------------------------------------------------------------

TAGS = {
    f"{PREFIX}-1-a": {TAG: "1"},
    f"{PREFIX}-of-somebody-else": {"team": "billing"},
    f"{PREFIX}-untagged": {},
    "orders": {TAG: "1"},
}


class Streams:
    """Streams by name, with their tags."""

    async def names(self, prefix: str) -> list[str]:
        return [name for name in TAGS if name.startswith(prefix)]

    async def tags(self, name: str) -> dict[str, str]:
        return TAGS[name]


async def test_what_has_the_prefix_and_the_tag_is_left_over() -> None:
    streams: Any = Streams()
    assert await find_leftovers(streams) == [f"{PREFIX}-1-a"]


def test_each_run_has_names_and_tags_of_its_own() -> None:
    one, other = RunNames.new(), RunNames.new()
    assert one.prefix != other.prefix
    assert one.table.startswith(f"{one.prefix}-")
    assert one.tags == {TAG: one.run_id}

"""Positions at which nothing stands."""

from __future__ import annotations

from typing import Any

from kinesumer.admin import verify
from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.positions import invalid_positions
from tests.unit.admin.doctor.looks import ARN, KEYS, listed, seen


def positions(*verdicts: verify.Verdict) -> Any:
    found = dict(zip(KEYS, verdicts, strict=True))
    return list(invalid_positions(seen(streams={ARN: listed(verdicts=found)})))


def test_positions_that_are_right_arent_told() -> None:
    assert positions(verify.THERE, verify.QUIET) == []
    assert positions(verify.ENDED, verify.NOT_STARTED) == []


def test_each_kind_of_trouble_is_told_once_with_its_shards() -> None:
    [one] = positions(verify.EXPIRED, verify.EXPIRED)
    assert one.severity is Severity.WARNING
    assert one.text.startswith("expired: shardId-0, shardId-1: its record is older")
    two = positions(verify.FOREIGN, verify.EXPIRED)
    assert [each.severity for each in two] == [Severity.CRITICAL, Severity.WARNING]


def test_a_position_that_couldnt_be_asked_isnt_told() -> None:
    refused = verify.Verdict(verify.UNCHECKED, Severity.WARNING, "slow down")
    assert positions(refused, verify.THERE) == []

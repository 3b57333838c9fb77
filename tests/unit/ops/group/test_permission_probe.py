"""Test findings about credentials, permissions, the table, and clocks."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    SourceUnavailableError,
    StateStoreMissingError,
    StreamMissingError,
)
from kinesumer.ops.group.doctor.permission_probe import (
    Probe,
    clock_skew,
    failed_probes,
    seconds_ahead,
    unusable_store,
)
from kinesumer.ops.group.problems import Severity
from tests.support.doctor import check_finding

NOTE, WARNING, CRITICAL = Severity
WORKED = Probe("kinesis:GetRecords", "orders")
READ_DENIED = AccessDeniedError("kinesis:GetRecords", "orders", "why")
EXPIRED = AccessDeniedError("dynamodb:Query", "table t", "expired", "renew them")
ROLE_DENIED = AccessDeniedError("sts:AssumeRole", "arn:aws:iam::1:role/reader")
LIMITS_DENIED = AccessDeniedError("kinesis:DescribeLimits", "*")
BUSY = SourceUnavailableError("1 a second")


@pytest.mark.parametrize(
    ("probe", "severity", "texts"),
    [
        (
            WORKED._replace(error=READ_DENIED),
            CRITICAL,
            ["kinesis:GetRecords on orders: ", "why", "--role"],
        ),
        (WORKED._replace(error=EXPIRED), CRITICAL, ["→ renew them"]),
        (
            WORKED._replace(error=ROLE_DENIED),
            CRITICAL,
            ["sts:AssumeRole on arn:aws:iam::1:role/reader: "],
        ),
        (WORKED._replace(error=LIMITS_DENIED), NOTE, ["shard limits aren't checked"]),
        (
            WORKED._replace(error=StreamMissingError("no stream orders")),
            CRITICAL,
            ["no stream orders"],
        ),
        (WORKED._replace(error=BUSY), WARNING, ["couldn't be tested"]),
        (Probe("kinesis:DescribeLimits", "*", BUSY), NOTE, ["couldn't be tested"]),
    ],
)
def test_a_failed_probe_is_reported_once(
    probe: Probe, severity: Severity, texts: list[str]
) -> None:
    probes = [probe, WORKED, probe._replace(resource="another")]
    for text in texts:
        check_finding(failed_probes(probes), severity, text)
    assert not list(unusable_store("t", probes))


@pytest.mark.parametrize(
    ("error", "check", "subject"),
    [
        (CredentialsError("none"), "credentials", "AWS credentials"),
        (StateStoreMissingError("no table t"), "state store", "table t"),
    ],
)
def test_a_store_that_cant_be_used_is_reported_once(
    error: Any, check: str, subject: str
) -> None:
    probes = [WORKED._replace(error=error), WORKED] * 2
    [finding] = unusable_store("t", probes)
    assert finding[:3] == (check, CRITICAL, subject)
    assert not list(failed_probes(probes))


def test_an_action_that_worked_isnt_reported() -> None:
    assert not [*failed_probes([WORKED]), *unusable_store("t", [WORKED])]


@pytest.mark.parametrize("times", [(1000.0, 1000.2), (1000.9, 1001.5), (999.0, 1002.0)])
def test_clocks_that_agree_within_the_resolution_are_right(
    times: tuple[float, float],
) -> None:
    assert not list(clock_skew(seconds_ahead(1000.0, *times), []))


@pytest.mark.parametrize(
    ("before", "after", "severity", "text"),
    [
        (1021.0, 1021.2, NOTE, "at least 20 s ahead of AWS's; leases, heartbeats and"),
        (899.0, 900.0, WARNING, "100 s behind"),
        (1300.0, 1300.0, CRITICAL, "ahead"),
    ],
)
def test_the_skew_of_a_clock_is_reported(
    before: float, after: float, severity: Severity, text: str
) -> None:
    ahead = seconds_ahead(1000.0, before, after)
    check_finding(clock_skew(ahead, []), severity, text)


def test_a_clock_that_aws_rejects_is_critical() -> None:
    error = SourceUnavailableError("Signature expired: 20260101 is now earlier than …")
    probes = [WORKED._replace(error=error)]
    text = "AWS rejects the time of requests: Signature expired"
    check_finding(clock_skew(0.0, probes), CRITICAL, text)

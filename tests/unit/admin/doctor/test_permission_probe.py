"""Credentials, permissions, the table, and clocks."""

from __future__ import annotations

from kinesumer.admin.doctor.clock_skew import ClockReading, clock_skew
from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.permission_probe import Probe, failed_probes, unusable_store
from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    KinesumerError,
    SourceUnavailableError,
    StateStoreMissingError,
    StreamMissingError,
)


def failed(error: KinesumerError) -> list[Probe]:
    return [Probe("kinesis:GetRecords", "orders", error), Probe("sts:X", "-")]


def test_a_missing_action_is_named() -> None:
    [one] = failed_probes(
        failed(AccessDeniedError("kinesis:GetRecords", "orders", "why"))
    )
    assert one.severity is Severity.CRITICAL
    assert one.subject == "kinesis:GetRecords on orders"
    assert "why" in one.text
    assert "--role" in one.advice


def test_credentials_that_have_expired_need_no_policy() -> None:
    error = AccessDeniedError("dynamodb:Query", "table t", "expired", "renew them")
    [one] = failed_probes(failed(error))
    assert one.advice == "renew them"


def test_a_role_that_cant_be_assumed_is_reported_once() -> None:
    error = AccessDeniedError("sts:AssumeRole", "arn:aws:iam::1:role/reader")
    trials = [Probe("kinesis:ListShards", "a", error), *failed(error)]
    [one] = failed_probes(trials)
    assert one.subject == "sts:AssumeRole on arn:aws:iam::1:role/reader"


def test_an_action_that_only_the_doctor_needs_is_noted() -> None:
    [one] = failed_probes(failed(AccessDeniedError("kinesis:DescribeLimits", "*")))
    assert one.severity is Severity.NOTE


def test_a_stream_that_isnt_there_is_critical() -> None:
    [one] = failed_probes(failed(StreamMissingError("no stream orders")))
    assert one.severity is Severity.CRITICAL


def test_an_action_that_couldnt_be_tried_is_a_warning() -> None:
    [one] = failed_probes(failed(SourceUnavailableError("503")))
    assert one.severity is Severity.WARNING
    optional = Probe(
        "kinesis:DescribeLimits", "*", SourceUnavailableError("1 a second")
    )
    [one] = failed_probes([optional])
    assert one.severity is Severity.NOTE


def test_an_action_that_worked_isnt_reported() -> None:
    assert not list(failed_probes([Probe("kinesis:GetRecords", "orders")]))
    assert not list(unusable_store("t", [Probe("kinesis:GetRecords", "orders")]))


def test_missing_credentials_are_reported_once() -> None:
    trials = failed(CredentialsError("none")) * 2
    [one] = unusable_store("t", trials)
    assert (one.check, one.severity) == ("credentials", Severity.CRITICAL)
    assert not list(failed_probes(trials))


def test_a_missing_table_is_reported() -> None:
    trials = failed(StateStoreMissingError("no table t"))
    [one] = unusable_store("t", trials)
    assert (one.check, one.subject) == ("state store", "table t")
    assert not list(failed_probes(trials))


def test_clocks_that_agree_within_the_resolution_are_right() -> None:
    for before, after in ((1000.0, 1000.2), (1000.9, 1001.5), (999.0, 1002.0)):
        assert not list(clock_skew(ClockReading(1000.0, before, after), []))
    assert not list(clock_skew(None, []))


def test_the_skew_of_a_clock_is_reported() -> None:
    [one] = clock_skew(ClockReading(1000.0, 1021.0, 1021.2), [])
    assert one.severity is Severity.NOTE
    assert "at least 20 s ahead of AWS's" in one.text
    assert "leases, heartbeats and positions don't depend on it" in one.text
    [one] = clock_skew(ClockReading(1000.0, 899.0, 900.0), [])
    assert one.severity is Severity.WARNING
    assert "100 s behind" in one.text
    [one] = clock_skew(ClockReading(1000.0, 1300.0, 1300.0), [])
    assert one.severity is Severity.CRITICAL


def test_a_clock_that_aws_rejects_is_critical() -> None:
    error = SourceUnavailableError("Signature expired: 20260101 is now earlier than …")
    [one] = clock_skew(None, failed(error))
    assert one.severity is Severity.CRITICAL

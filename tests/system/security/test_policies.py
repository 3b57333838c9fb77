"""The IAM policies grant what kinesumer calls, and nothing else.

The calls are those that the sessions of the whole suite stored: see scripts/test.
"""

from __future__ import annotations

import re

import pytest

from tests.support.aws_calls import AwsCall, read_calls
from tests.system.security.documents import POLICIES, Grant, document, grants

PLACEHOLDERS = {
    "${TABLE_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+",
    "${LEASE_TABLE_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+",
    "${STREAM_ARN}": r"arn:aws:kinesis:[^:]+:\d{12}:stream/[^/]+",
    "${LETTERS_STREAM_ARN}": r"arn:aws:kinesis:[^:]+:\d{12}:stream/[^/]+",
    "${READER_ROLE_ARN}": r"arn:aws:iam::\d{12}:role/.+",
    "${WRITER_ROLE_ARN}": r"arn:aws:iam::\d{12}:role/.+",
}
GRANTS = set(grants(*POLICIES))
PLAYED_BY_MOTO = "sqs:", "s3:"
"""Of what the embedded AWS isn't asked: test_least_privilege_of_dead_letters.py."""
NEEDS_NO_GRANT = "sts:GetCallerIdentity"
"""Everybody may, whatever policies say."""
NAMES_NO_RESOURCE = "kinesis:DescribeLimits"


def covers(grant: Grant, call: AwsCall) -> bool:
    """Return whether a grant allows the call to who made it."""
    # What is refused before its resource is known is judged by its action alone.
    assumed = ":assumed-role/" in call.caller
    return (
        grant.action == call.action
        and (call.resource == "*" or _matches(grant.resource, call.resource))
        and assumed == grant.policy.endswith("-role")
    )


def _matches(pattern: str, resource: str) -> bool:
    for placeholder, meaning in PLACEHOLDERS.items():
        pattern = pattern.replace(placeholder, meaning)
    return re.fullmatch(pattern, resource) is not None


@pytest.fixture
def calls(pytestconfig: pytest.Config) -> set[AwsCall]:
    files = pytestconfig.getoption("--read-calls")
    if not files:
        pytest.skip("the calls of the whole suite are judged: see scripts/test")
    return read_calls(files)


def test_every_call_of_the_suite_is_granted(calls: set[AwsCall]) -> None:
    refused = {
        call
        for call in calls
        if call.action != NEEDS_NO_GRANT
        and not any(covers(grant, call) for grant in GRANTS)
    }

    assert not refused


def test_nothing_is_granted_that_is_never_called(calls: set[AwsCall]) -> None:
    idle = {
        grant
        for grant in GRANTS
        if not grant.action.startswith(PLAYED_BY_MOTO)
        and not any(covers(grant, call) for call in calls)
    }

    assert not idle


@pytest.mark.parametrize(
    ("role", "own"), [("reader-role", "consumer"), ("writer-role", "producer")]
)
def test_a_role_may_do_with_a_stream_what_its_own_accounts_may(
    role: str, own: str
) -> None:
    def on_streams(policy: str) -> set[str]:
        found = grants(policy)
        return {grant.action for grant in found if grant.resource == "${STREAM_ARN}"}

    assert on_streams(role) == on_streams(own)
    assert len(grants(role)) == len(on_streams(role))


def test_a_reader_role_is_assumed_only_with_the_external_id() -> None:
    [statement] = document("reader-role-trust")["Statement"]

    assert statement["Action"] == "sts:AssumeRole"
    assert statement["Condition"] == {
        "StringEquals": {"sts:ExternalId": "${EXTERNAL_ID}"}
    }


def test_no_policy_grants_by_a_pattern() -> None:
    wide = {grant for grant in GRANTS if "*" in grant.action + grant.resource}

    assert {grant.action for grant in wide} == {NAMES_NO_RESOURCE}

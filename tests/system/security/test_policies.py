"""Test that the IAM policies grant exactly the actions that kinesumer calls.

The calls were recorded by the sessions of the whole suite (see scripts/test).
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import execnet
import pytest

from kinesumer.testing.embedded_aws.identity import read_policy
from kinesumer.testing.trial.acceptance.account import policy
from tests.support.aws_calls import AwsCall, CallRecorder, read_calls
from tests.system.security.documents import (
    CHECKED_WITHIN_CALLS,
    POLICIES,
    Grant,
    document,
    grants,
)

PLACEHOLDERS = {
    "${TABLE_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+",
    "${LEASE_TABLE_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+",
    "${STREAM_ARN}": r"arn:aws:kinesis:[^:]+:\d{12}:stream/[^/]+",
    "${STREAM_CONSUMER_ARN}": r"arn:aws:kinesis:[^:]+:\d{12}:stream/[^/]+/consumer/.+",
    "${LETTERS_STREAM_ARN}": r"arn:aws:kinesis:[^:]+:\d{12}:stream/[^/]+",
    "${READER_ROLE_ARN}": r"arn:aws:iam::\d{12}:role/.+",
    "${WRITER_ROLE_ARN}": r"arn:aws:iam::\d{12}:role/.+",
    "${SOURCE_TABLE_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+",
    "${TABLE_STREAM_ARN}": r"arn:aws:dynamodb:[^:]+:\d{12}:table/[^/]+/stream/.+",
}
GRANTS = set(grants(*POLICIES))
FOR_BOTH = {
    name
    for name in POLICIES
    if name.startswith(("fan-out", "operator", "table-streams"))
}
"""Policies for users, and for the roles that read streams of other accounts."""
ACCEPTANCE = read_policy(
    policy(fan_out=True, tables=True, role_arn="*:role/partner"), "*"
)
"""What ``kinesumer acceptance --policy`` prints. Another test compares it to a run."""
PLAYED_BY_MOTO = "sqs:", "s3:", "glue:"
"""The embedded AWS lacks them: see test_least_privilege_of_dead_letters.py and
test_least_privilege_of_schemas.py."""
NEEDS_NO_GRANT = "sts:GetCallerIdentity"
"""Every caller may call this, whatever the policies say."""
OPTIONAL = "kinesis:ListStreams"
"""It suggests a name for a misspelt stream. Without the right, the suggestion is left
out."""
TRANSACTION = "dynamodb:TransactWriteItems"
"""IAM has no such action: a transaction needs the actions of its parts."""
NAME_NO_RESOURCE = {"kinesis:DescribeLimits", "glue:GetSchemaVersion"}


def covers(grant: Grant, call: AwsCall) -> bool:
    """Return whether a grant allows a call to its caller."""
    # A call refused before its resource is known is compared by action only.
    # A pod's own role has what a user has. Other roles are those of other accounts.
    assumed = re.search(r":assumed-role/(?!pod/)", call.caller) is not None
    return (
        grant.action == call.action
        and (call.resource == "*" or _matches(grant.resource, call.resource))
        and (grant.policy in FOR_BOTH or assumed == grant.policy.endswith("-role"))
    )


def _matches(patterns: str, resource: str) -> bool:
    for placeholder, meaning in PLACEHOLDERS.items():
        patterns = patterns.replace(placeholder, meaning)
    return any(re.fullmatch(pattern, resource) for pattern in patterns.split(" "))


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
        if call.action not in (NEEDS_NO_GRANT, OPTIONAL, TRANSACTION)
        and not any(r.covers(call.action, call.resource, ()) for r in ACCEPTANCE)
        and not any(covers(grant, call) for grant in GRANTS)
    }

    assert not refused


def test_nothing_is_granted_that_is_never_called(calls: set[AwsCall]) -> None:
    idle = {
        grant
        for grant in GRANTS
        if not grant.action.startswith(PLAYED_BY_MOTO)
        and grant.action not in CHECKED_WITHIN_CALLS
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

    assert {grant.action for grant in wide} == NAME_NO_RESOURCE


def test_calls_with_any_characters_reach_the_file_from_a_worker(tmp_path: Path) -> None:
    call = AwsCall("kinesis:PutRecord", "stream/\ud800", "user")
    output: dict[str, Any] = {}
    path = tmp_path / "calls.json"
    config: Any = SimpleNamespace(getoption=lambda name: path, workeroutput=output)
    worker = CallRecorder(config)
    worker._calls.add(call)
    worker.pytest_sessionstart()
    worker.pytest_sessionfinish()
    del config.workeroutput
    controller = CallRecorder(config)
    controller.pytest_sessionstart()
    received = execnet.loads(execnet.dumps(output))
    controller.pytest_testnodedown(SimpleNamespace(workeroutput=received))
    controller.pytest_sessionfinish()
    assert read_calls([str(path)]) == {call}
